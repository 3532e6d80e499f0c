"""How a forecast is judged: root mean square error per output over the steps that were observed."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gateway.core.prediction import OutputSpec

Values = npt.NDArray[np.float64]


def squared_errors(predicted: Values, targets: Values, seen: npt.NDArray[np.bool_]) -> Values:
    """`[n, outputs]`, NaN where nothing was observed."""
    return np.where(seen, (predicted - targets) ** 2, np.nan)


def rmse(predicted: Values, targets: Values, seen: npt.NDArray[np.bool_]) -> Values:
    """Root mean square error of each output, `[outputs]`, over observed steps."""
    result: Values = np.sqrt(np.nanmean(squared_errors(predicted, targets, seen), axis=0))
    return result


def by_target(outputs: Sequence[OutputSpec], values: Values) -> dict[str, float]:
    """Root mean square over the horizons of each forecast input."""
    names = dict.fromkeys(spec.source_input or spec.name for spec in outputs)
    chosen = {name: [i for i, spec in enumerate(outputs) if (spec.source_input or spec.name) == name] for name in names}
    return {name: float(np.sqrt(np.mean(values[rows] ** 2))) for name, rows in chosen.items()}
