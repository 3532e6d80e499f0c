"""Small feeds of batches and watermarks for tests of the signal path."""

from collections.abc import Iterable, Sequence

import numpy as np

from gateway.core.batch import Batch, Watermark
from gateway.core.clock import NS_PER_S
from gateway.core.tags import DataType, GroupMode, Tag, TagTable
from preprocess.spec import ChainSpec, InputSpec
from preprocess.steps import AssetBinding, Step, Steps

START_S = 1_000


def at_ns(seconds: float) -> int:
    return START_S * NS_PER_S + round(seconds * NS_PER_S)


def table_of(groups: dict[str, list[str]], *, period_s: float = 1.0, mode: GroupMode = GroupMode.SAMPLED) -> TagTable:
    table = TagTable()
    for name, tags in groups.items():
        group = table.add_group(name, "plc", period_s, mode=mode)
        for tag in tags:
            table.add(Tag(tag, "1", DataType.FLOAT32, group.id))
    return table


def batch(
    table: TagTable,
    seconds: float,
    values: dict[str, float],
    *,
    qualities: Sequence[int] = (),
    stamps: Sequence[float] = (),
    received: int = 0,
) -> Batch:
    tags = np.array([table.number(name) for name in values], np.int32)
    times = [at_ns(s) for s in stamps] or [at_ns(seconds)] * len(tags)
    quality = np.array(qualities or [0] * len(tags), np.uint16)
    group = table[int(tags[0])].group
    return Batch(group, 0, received, received + 1, 0, tags, np.array(list(values.values())), quality, np.array(times, np.int64))


def chain_of(names: Sequence[str] = ("x",), window: int = 4, **changes: object) -> ChainSpec:
    inputs = tuple(InputSpec(name=name, unit="1", hold_limit_s=2.0) for name in names)
    return ChainSpec(**{"period_s": 1.0, "window": window, "inputs": inputs, **changes})  # type: ignore[arg-type]  # keywords by name


def steps_of(chain: ChainSpec, table: TagTable, assets: dict[str, dict[str, str]] | None = None) -> Steps:
    wiring = assets or {"a": {name: name for name in chain.signals()}}
    bindings = [AssetBinding(asset, {signal: table.number(tag) for signal, tag in tags.items()}) for asset, tags in wiring.items()]
    return Steps(chain, bindings, table)


def run(steps: Steps, items: Iterable[Batch | Watermark]) -> list[Step]:
    return [step for item in items for step in steps.feed(item)]


def same(left: Sequence[Step], right: Sequence[Step]) -> bool:
    """Whether two runs closed the same steps with the same outcomes and bit-equal windows."""
    return [_bits(step) for step in left] == [_bits(step) for step in right]


def _bits(step: Step) -> object:
    assets = [
        (
            a.asset,
            a.outcome,
            a.coverage,
            a.quality,
            a.window and (a.window.values.tobytes(), a.window.aligned.tobytes(), a.window.observed.tobytes()),
        )
        for a in step.assets
    ]
    return step.end_ns, step.epoch, step.due, assets
