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
        penalty: Chosen on the validation part.
    """

    weight: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]
    penalty: float

    def __call__(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Scaled outputs `[n, outputs]` of scaled windows `[n, steps, features]`."""
        return _flat(values) @ self.weight + self.bias


def fit_ridge(
    values: npt.NDArray[np.float32],
    targets: npt.NDArray[np.float32],
    validation: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
) -> Ridge:
    """The ridge that does best on the validation part.

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
    best: Ridge | None = None
    best_error = np.inf
    for penalty in _PENALTIES:
        weight = np.linalg.solve(gram + penalty * np.eye(len(gram)), moment)
        ridge = Ridge(weight, center_y - center_x @ weight, penalty)
        error = float(np.nanmean((ridge(validation[0]) - validation[1]) ** 2))
        if error < best_error:
            best, best_error = ridge, error
    if best is None:
        raise ValueError("the validation part has no finite targets")
    return best


def _flat(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    return values.reshape(len(values), -1).astype(np.float64)
