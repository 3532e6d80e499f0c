"""Small batches, watermarks and tables for the tests of the pipeline."""

from collections.abc import Sequence

import numpy as np

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.prediction import Outcome, Prediction, Trace
from gateway.core.quality import Code
from gateway.core.tags import DataType, Tag, TagTable

START_S = 1_700_000_000


def at_ns(seconds: float) -> int:
    """Source time, seconds after the start of the tests."""
    return START_S * NS_PER_S + round(seconds * NS_PER_S)


def batch(
    group: int,
    tags: Sequence[int],
    values: Sequence[float],
    seconds: float | Sequence[float],
    *,
    cycle: int = 0,
    quality: int = Code.GOOD,
    received_s: float = 0.0,
) -> Batch:
    """A batch of float values; `seconds` is one source time or one for each row."""
    times = [seconds] * len(tags) if isinstance(seconds, int | float) else list(seconds)
    mono_ns = 1_000 * NS_PER_S + round(received_s * NS_PER_S)
    return Batch(
        group,
        cycle,
        mono_ns - 1_000_000,
        mono_ns,
        at_ns(received_s),
        np.array(tags, np.int32),
        np.array(values, np.float64),
        np.full(len(tags), quality, np.uint16),
        np.array([at_ns(t) for t in times], np.int64),
    )


def mark(group: int, seconds: float, *, alive: bool = True) -> Watermark:
    """A watermark."""
    return Watermark(group, at_ns(seconds), alive)


def prediction(sequence: int) -> Prediction:
    """A prediction that says nothing."""
    return Prediction(
        "model", "asset", sequence, at_ns(sequence), "gateway", np.zeros(1), Code.GOOD, Outcome.INFERRED, "digest", "cpu", Trace(), 0
    )


def table(*groups: tuple[str, int], period_s: float = 1.0, domain: str = "gateway", silence_limit_s: float | None = None) -> TagTable:
    """Groups `(name, tags)` of one source called plc, their tags named `group.n`."""
    result = TagTable()
    for name, count in groups:
        group = result.add_group(f"plc/{name}", "plc", period_s, domain=domain, silence_limit_s=silence_limit_s)
        for n in range(count):
            result.add(Tag(f"{name}.{n}", "bar", DataType.FLOAT64, group.id, 0.0, 10.0))
    return result
