"""What a training gave, for a reader: the model beside its linear path alone, the ridge and "same as now"."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.table import Table

from gateway.core.prediction import OutputSpec
from inference.bundle import Bundle, OutputScore
from inference.workshop.score import by_target

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """RMSE on the test part in engineering units, `[outputs]` each: the network, its linear path alone, the ridge, "same as now"."""

    model: Values
    linear: Values
    ridge: Values
    persistence: Values

    def by_output(self, outputs: Sequence[OutputSpec]) -> dict[str, OutputScore]:
        """For the manifest."""
        rows = zip(self.model.tolist(), self.linear.tolist(), self.ridge.tolist(), self.persistence.tolist(), strict=True)
        return {spec.name: OutputScore(*row) for spec, row in zip(outputs, rows, strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a training gave.

    Attributes:
        outputs: The outputs.
        scores: Errors on the test part.
        spread: Standard deviation of each output's input on the training part, `[outputs]`.
        gain: Relative fall of the validation error through the recurrent part.
        curve: Validation error by epoch, the untrained network first.
        bundle: What was written.
    """

    outputs: tuple[OutputSpec, ...]
    scores: Scores
    spread: Values
    gain: float
    curve: tuple[float, ...]
    bundle: Bundle

    def table(self) -> Table:
        """Errors side by side, over the horizons of each forecast input."""
        table = Table(title="RMSE on the test part", title_justify="left")
        columns = {
            "model": self.scores.model,
            "linear path alone": self.scores.linear,
            "ridge": self.scores.ridge,
            "persistence": self.scores.persistence,
        }
        for heading in ("output", "unit"):
            table.add_column(heading)
        for heading in (*columns, "model / ridge", "model MSE, standardised"):
            table.add_column(heading, justify="right")
        units = {spec.source_input: spec.unit for spec in self.outputs}
        pooled = {heading: by_target(self.outputs, values) for heading, values in columns.items()}
        spread = by_target(self.outputs, self.spread)
        for name, unit in units.items():
            values = [pooled[heading][name] for heading in columns]
            ratio, standardised = values[0] / values[2], (values[0] / spread[name]) ** 2
            table.add_row(name, unit, *(f"{value:.4g}" for value in values), f"{ratio:.3f}", f"{standardised:.3f}")
        return table

    @property
    def remark(self) -> str:
        """What must be said of the recurrent part."""
        return remark(self.gain)


def remark(gain: float) -> str:
    """What must be said of a recurrent part that lowers the validation error by this share."""
    if gain <= 0:
        return "the recurrent part adds nothing on the validation part: this is a linear model"
    return f"the recurrent part lowers the validation error by {gain:.1%}"
