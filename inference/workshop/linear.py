"""Ridge regression on scaled windows: the baseline, and the linear path of the network."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_PENALTIES = (1.0, 10.0, 100.0, 1000.0, 10000.0)


@dataclass(frozen=True, slots=True, eq=False)
class Ridge:
    """`scaled output = flattened window @ weight + bias`.

    Attributes:
        weight: `[steps * features, outputs] float64`.
        bias: `[outputs] float64`.
        penalty: Chosen on the validation part for each output, `[outputs]`.
    """

    weight: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]
    penalty: npt.NDArray[np.float64]

    def __call__(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Scaled outputs `[n, outputs]` of scaled windows `[n, steps, features]`."""
        return _flat(values) @ self.weight + self.bias


def fit_ridge(
    values: npt.NDArray[np.float32],
    targets: npt.NDArray[np.float32],
    validation: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
) -> Ridge:
    """The ridge that does best on the validation part, output by output.

    Args:
        values: Scaled windows, `[n, steps, features]`.
        targets: Scaled targets, `[n, outputs]`; rows with NaN are left out.
        validation: The same two of the validation part.
    """
    known = np.isfinite(targets).all(axis=1)
    x, y = _flat(values[known]), targets[known].astype(np.float64)
    center_x, center_y = x.mean(axis=0), y.mean(axis=0)
    x, y = x - center_x, y - center_y
    gram, moment = x.T @ x, x.T @ y
    weights = [np.linalg.solve(gram + penalty * np.eye(len(gram)), moment) for penalty in _PENALTIES]
    rows = _flat(validation[0])
    errors = np.stack([np.nanmean((rows @ w + center_y - center_x @ w - validation[1]) ** 2, axis=0) for w in weights])
    best = errors.argmin(axis=0)
    weight = np.stack([weights[choice][:, output] for output, choice in enumerate(best)], axis=1)
    return Ridge(weight, center_y - center_x @ weight, np.array(_PENALTIES)[best])


def _flat(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    return values.reshape(len(values), -1).astype(np.float64)
