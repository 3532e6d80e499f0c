"""The reference network: an LSTM beside a linear path that starts as the ridge, so that the recurrent part has to earn its place."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from inference.workshop.linear import Ridge

Floats = npt.NDArray[np.float32]

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_WORTH = 0.002  # relative gain on the validation part below which a recurrent output is dropped


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the network is trained."""

    hidden: int = 32
    layers: int = 1
    epochs: int = 40
    batch: int = 256
    rate: float = 2e-3
    weight_decay: float = 1e-4
    patience: int = 6


class ForecastNetwork(nn.Module):
    """`[n, steps, features]` scaled windows to `[n, outputs]` scaled outputs.

    Args:
        features: Inputs.
        steps: Window length.
        outputs: Outputs.
        recipe: Sizes.
    """

    def __init__(self, features: int, steps: int, outputs: int, recipe: Recipe) -> None:
        super().__init__()
        self.linear = nn.Linear(steps * features, outputs)
        self.lstm = nn.LSTM(features, recipe.hidden, recipe.layers, batch_first=True)
        self.head = nn.Linear(recipe.hidden, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return self.straight(windows) + self.recurrent(windows)

    def start_from(self, ridge: Ridge) -> None:
        """Make the linear path the ridge."""
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(ridge.weight.T.astype(np.float32)))
            self.linear.bias.copy_(torch.from_numpy(ridge.bias.astype(np.float32)))

    def trained(self) -> list[nn.Parameter]:
        """What training moves: the recurrent path."""
        return [*self.lstm.parameters(), *self.head.parameters()]

    def straight(self, windows: torch.Tensor) -> torch.Tensor:
        """The linear path alone."""
        path: torch.Tensor = self.linear(windows.flatten(1))
        return path

    def recurrent(self, windows: torch.Tensor) -> torch.Tensor:
        """The recurrent path alone."""
        states, _ = self.lstm(windows)
        path: torch.Tensor = self.head(states[:, -1])
        return path


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A trained network and what its recurrent part brought.

    Attributes:
        network: In evaluation mode.
        share: Share of the recurrent path that was kept for each output, `[outputs]`; 0 where it brought nothing.
        gain: Relative fall of the validation error through the recurrent part, over all outputs.
        curve: Validation error by epoch, the untrained network first.
    """

    network: ForecastNetwork
    share: npt.NDArray[np.float64]
    gain: float
    curve: tuple[float, ...]


def train(
    training: tuple[Floats, Floats],
    validation: tuple[Floats, Floats],
    ridge: Ridge,
    recipe: Recipe,
    seed: int,
    progress: Callable[[int, float], None] = lambda _epoch, _error: None,
) -> Trained:
    """Train on one thread, the same way for the same seed; the best epoch on the validation part is kept, "no training" included.

    Args:
        training: Scaled windows and targets (NaN where unknown).
        validation: The same of the validation part.
        ridge: The start of the linear path; it stays as it is.
        recipe: Sizes and rates.
        seed: Of everything random.
        progress: Told each epoch and its validation error.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    order = np.random.default_rng(seed)
    windows, targets = (torch.from_numpy(part) for part in training)
    _, steps, features = windows.shape
    network = ForecastNetwork(features, steps, targets.shape[1], recipe)
    network.start_from(ridge)
    with torch.no_grad():
        rest = targets - torch.cat([network.straight(part) for part in windows.split(4096)])
    # Each output weighs the same, however well the ridge does on it.
    scale = torch.nan_to_num(rest).std(dim=0).clamp_min(1e-6)
    optimiser = torch.optim.AdamW(network.trained(), lr=recipe.rate, weight_decay=recipe.weight_decay)
    judge = _Judge(validation, scale.numpy())
    best, curve = copy.deepcopy(network.state_dict()), [judge.error(network)]
    for epoch in range(1, recipe.epochs + 1):
        network.train()
        for rows in torch.from_numpy(order.permutation(len(windows))).split(recipe.batch):
            _step(network, optimiser, windows[rows], rest[rows], scale)
        curve.append(judge.error(network))
        progress(epoch, curve[-1])
        if curve[-1] <= min(curve):
            best = copy.deepcopy(network.state_dict())
        if len(curve) - 1 - int(np.argmin(curve)) >= recipe.patience:
            break
    network.load_state_dict(best)
    return _earned(network.eval(), judge, tuple(curve))


def _step(
    network: ForecastNetwork, optimiser: torch.optim.Optimizer, windows: torch.Tensor, rest: torch.Tensor, scale: torch.Tensor
) -> None:
    """One step of the recurrent path towards what the linear one leaves."""
    wanted = rest / scale
    known = torch.isfinite(wanted)
    error = torch.where(known, network.recurrent(windows) / scale - torch.nan_to_num(wanted), 0.0)
    loss = error.square().sum() / known.sum().clamp_min(1)
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.trained(), 1.0)
    optimiser.step()


class _Judge:
    """Validation error of a network, each output in units of the ridge's residual."""

    def __init__(self, validation: tuple[Floats, Floats], scale: npt.NDArray[np.float32]) -> None:
        self._windows = torch.from_numpy(validation[0])
        self._targets = validation[1]
        self._scale = scale

    def paths(self, network: ForecastNetwork) -> tuple[Floats, Floats]:
        """Linear and recurrent path on the validation part."""
        network.eval()
        with torch.no_grad():
            straight = torch.cat([network.straight(part) for part in self._windows.split(4096)])
            recurrent = torch.cat([network.recurrent(part) for part in self._windows.split(4096)])
        return straight.numpy(), recurrent.numpy()

    def errors(self, outputs: Floats) -> npt.NDArray[np.float64]:
        """Mean square of each output."""
        result: npt.NDArray[np.float64] = np.nanmean(((outputs - self._targets) / self._scale).astype(np.float64) ** 2, axis=0)
        return result

    def error(self, network: ForecastNetwork) -> float:
        """Over all outputs."""
        straight, recurrent = self.paths(network)
        return float(self.errors(straight + recurrent).mean())


def _earned(network: ForecastNetwork, judge: _Judge, curve: tuple[float, ...]) -> Trained:
    """Keep of the recurrent path, output by output, the share that does best on the validation part, and nothing where it gains nothing."""
    straight, recurrent = judge.paths(network)
    table = np.stack([judge.errors(straight + np.float32(share) * recurrent) for share in _SHARES])
    chosen = table.argmin(axis=0)
    chosen[table.min(axis=0) > table[0] * (1 - _WORTH)] = 0
    share = np.array(_SHARES)[chosen]
    with torch.no_grad():
        factor = torch.from_numpy(share.astype(np.float32))
        network.head.weight.mul_(factor[:, None])
        network.head.bias.mul_(factor)
    after = table[chosen, np.arange(table.shape[1])].mean()
    return Trained(network, share, float(1 - after / table[0].mean()), curve)


def answers(network: ForecastNetwork, windows: Floats) -> tuple[Floats, Floats]:
    """Outputs of the whole network and of its linear path alone, `[n, outputs]` each."""
    with torch.no_grad():
        parts = [(network(part), network.straight(part)) for part in torch.from_numpy(windows).split(4096)]
    return torch.cat([whole for whole, _ in parts]).numpy(), torch.cat([straight for _, straight in parts]).numpy()
