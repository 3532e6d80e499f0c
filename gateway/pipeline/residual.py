"""Predicted against measured, while running: the error of each output beside persistence on the same steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gateway.core.clock import NS_PER_S
from gateway.core.prediction import Outcome, OutputSpec, Prediction
from gateway.core.snapshot import ScoreStatus
from gateway.core.window import Window
from preprocess.spec import ChainSpec

Row = npt.NDArray[np.float64]


@dataclass(slots=True)
class _AssetMemory:
    """What one asset has said and not yet been judged on, by the end of its window."""

    newest_ns: int = 0
    measured: dict[int, Row] = field(default_factory=dict)
    said: dict[int, Row] = field(default_factory=dict)


class Residuals:
    """Compares forecasts with the measurements that come after them.

    Only outputs that forecast an input a whole number of steps ahead are judged, and only on steps where that input was observed.

    Args:
        chain: Gives the period and the order of the inputs.
        outputs: The model's outputs.
    """

    def __init__(self, chain: ChainSpec, outputs: Sequence[OutputSpec]) -> None:
        self._period_ns = round(chain.period_s * NS_PER_S)
        self._outputs = tuple(outputs)
        names = [spec.name for spec in chain.inputs]
        steps = [spec.horizon_s / chain.period_s for spec in outputs]
        judged = [i for i, spec in enumerate(outputs) if spec.source_input in names and abs(steps[i] - round(steps[i])) < 1e-6 < steps[i]]
        self._by_horizon: dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = {}
        for ahead in sorted({round(steps[i]) for i in judged}):
            rows = [i for i in judged if round(steps[i]) == ahead]
            columns = [names.index(outputs[i].source_input) for i in rows]
            self._by_horizon[ahead * self._period_ns] = (np.array(rows, np.intp), np.array(columns, np.intp))
        self._reach_ns = max(self._by_horizon, default=0)
        self._assets: dict[str, _AssetMemory] = {}
        self._count = np.zeros(len(outputs), np.int64)
        self._squares = np.zeros(len(outputs))
        self._persistence = np.zeros(len(outputs))

    def window(self, window: Window) -> None:
        """Judge what was said about the steps that this window brings."""
        memory = self._assets.setdefault(window.asset, _AssetMemory())
        steps = len(window.aligned)
        oldest_new = steps - min((window.end_ns - memory.newest_ns) // self._period_ns, steps)
        if window.end_ns < memory.newest_ns:
            # A new epoch of the source's clock: nothing said before it can be judged.
            memory.said.clear()
            memory.measured.clear()
            oldest_new = 0
        for row in range(max(oldest_new, 0), steps):
            end_ns = window.end_ns - (steps - 1 - row) * self._period_ns
            self._judge(memory, end_ns, window.aligned[row], window.observed[row])
        memory.newest_ns = window.end_ns
        memory.measured[window.end_ns] = window.aligned[-1].copy()
        _forget(memory.said, window.end_ns - self._reach_ns)
        _forget(memory.measured, window.end_ns - self._reach_ns)

    def prediction(self, prediction: Prediction) -> None:
        """Remember what was said."""
        memory = self._assets.get(prediction.asset)
        if prediction.outcome is Outcome.INFERRED and memory is not None and self._by_horizon:
            memory.said[prediction.end_ns] = prediction.outputs

    def _judge(self, memory: _AssetMemory, end_ns: int, measured: Row, observed: npt.NDArray[np.bool_]) -> None:
        for horizon_ns, (rows, columns) in self._by_horizon.items():
            said, base = memory.said.get(end_ns - horizon_ns), memory.measured.get(end_ns - horizon_ns)
            if said is None or base is None:
                continue
            seen = observed[columns] & np.isfinite(said[rows])
            rows_seen, columns_seen = rows[seen], columns[seen]
            self._count[rows_seen] += 1
            self._squares[rows_seen] += (said[rows_seen] - measured[columns_seen]) ** 2
            self._persistence[rows_seen] += (base[columns_seen] - measured[columns_seen]) ** 2

    def status(self) -> tuple[ScoreStatus, ...]:
        """Scores of the outputs judged so far."""
        return tuple(
            ScoreStatus(
                spec.name,
                spec.unit,
                spec.horizon_s,
                int(self._count[i]),
                float(np.sqrt(self._squares[i] / self._count[i])),
                float(np.sqrt(self._persistence[i] / self._count[i])),
            )
            for i, spec in enumerate(self._outputs)
            if self._count[i]
        )


def _forget(kept: dict[int, Row], before_ns: int) -> None:
    """Dictionaries keep insertion order, so the old entries are in front."""
    for key in [key for key in kept if key < before_ns]:
        del kept[key]
