"""Recordings to training examples, through the very objects that serve."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.errors import ConfigError
from gateway.core.prediction import OutputSpec
from gateway.core.tags import TagTable
from gateway.core.window import Window
from preprocess.spec import ChainSpec
from preprocess.steps import AssetBinding, Steps

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Feed:
    """One recording: what a source would have given, with the tags of each asset."""

    name: str
    table: TagTable
    assets: Sequence[AssetBinding]
    items: Iterable[Batch | Watermark]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Windows and what came after them.

    Attributes:
        aligned: Engineering units, `[n, steps, features]`.
        targets: What the outputs should have been, held over holes, `[n, outputs]`; NaN beyond the recording's end.
        seen: Whether a sample was observed at that later step, `[n, outputs]`.
        base: The newest value of each output's input, `[n, outputs]`: what persistence says.
    """

    aligned: Values
    targets: Values
    seen: npt.NDArray[np.bool_]
    base: Values

    def __len__(self) -> int:
        return len(self.aligned)

    def part(self, start: int, stop: int) -> "Dataset":
        """Examples `start` to `stop`."""
        return Dataset(self.aligned[start:stop], self.targets[start:stop], self.seen[start:stop], self.base[start:stop])


def windows_of(chain: ChainSpec, feed: Feed) -> list[Window]:
    """The windows that would have been inferred, in order."""
    steps = Steps(chain, feed.assets, feed.table)
    closed = (step for item in feed.items for step in steps.feed(item))
    return [asset.window for step in closed for asset in step.assets if asset.window is not None]


def examples(chain: ChainSpec, outputs: Sequence[OutputSpec], feeds: Iterable[Feed]) -> Dataset:
    """Examples of several recordings; no window crosses from one to the next.

    Raises:
        ConfigError: A recording gives no window.
    """
    return joined([_examples_of(chain, outputs, feed) for feed in feeds])


def joined(parts: Sequence[Dataset]) -> Dataset:
    """One after the other."""
    return Dataset(
        np.concatenate([part.aligned for part in parts]),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.seen for part in parts]),
        np.concatenate([part.base for part in parts]),
    )


def _examples_of(chain: ChainSpec, outputs: Sequence[OutputSpec], feed: Feed) -> Dataset:
    windows = windows_of(chain, feed)
    if not windows:
        raise ConfigError(f"{feed.name}: not one whole window", remedy="give a longer recording, or a shorter window in the specification")
    names = [spec.name for spec in chain.inputs]
    features = [names.index(spec.source_input) for spec in outputs]
    later_ns = [round(spec.horizon_s * NS_PER_S) for spec in outputs]
    measured = _measured(windows, round(chain.period_s * NS_PER_S))
    targets = np.full((len(windows), len(outputs)), np.nan)
    seen = np.zeros((len(windows), len(outputs)), np.bool_)
    for i, window in enumerate(windows):
        for j, (feature, ahead_ns) in enumerate(zip(features, later_ns, strict=True)):
            later = measured.get((window.asset, window.end_ns + ahead_ns))
            if later is not None:
                targets[i, j] = later[0][feature]
                seen[i, j] = later[1][feature]
    aligned = np.stack([window.aligned for window in windows])
    return Dataset(aligned, targets, seen, aligned[:, -1, features])


def _measured(windows: Sequence[Window], period_ns: int) -> dict[tuple[str, int], tuple[Values, npt.NDArray[np.bool_]]]:
    """Aligned and observed row of every step by asset and end; a step that was caught up stands in the next window."""
    rows: dict[tuple[str, int], tuple[Values, npt.NDArray[np.bool_]]] = {}
    for window in windows:
        for back in range(len(window.aligned)):
            key = (window.asset, window.end_ns - back * period_ns)
            if key in rows:
                break
            rows[key] = (window.aligned[-1 - back], window.observed[-1 - back])
    return rows
