"""`make bench`: speed as a ratio to a named reference in the same run; never a test."""

import argparse
import json
import platform
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pymodbus.client.mixin import ModbusClientMixin

from connectors.modbus.codec import Codec, Field
from connectors.modbus.settings import WireType
from gateway.core.batch import Batch, Watermark
from gateway.core.tags import DataType, Tag, TagTable
from gateway.pipeline.flow import Fanout
from gateway.pipeline.queue import FlowQueue
from preprocess.spec import ChainSpec, InputSpec
from preprocess.steps import AssetBinding, Steps


@dataclass(frozen=True, slots=True)
class Result:
    """One figure beside its reference."""

    suite: str
    case: str
    value: float
    unit: str
    reference: str
    ratio: float


def cpu_us(work: Callable[[], object], rounds: int = 5, least_s: float = 0.1) -> float:
    """CPU microseconds of one call: the best of some rounds."""
    count = 1
    while True:
        started = time.process_time()
        for _ in range(count):
            work()
        if time.process_time() - started > least_s:
            break
        count *= 2
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(count):
            work()
        best = min(best, (time.process_time() - started) / count)
    return best * 1e6


def decode() -> list[Result]:
    """A block of 60 float32 beside pymodbus' conversion of each tag, and beside a bare struct."""
    data = struct.pack(">60f", *range(60))
    registers = list(struct.unpack(">120H", data))
    codec = Codec([Field(2 * i, WireType.FLOAT32) for i in range(60)])
    swapped = Codec([Field(2 * i, WireType.FLOAT32, "CDAB", 0.1, 1.0) for i in range(60)])
    compiled = struct.Struct(">60f")
    kind = ModbusClientMixin.DATATYPE.FLOAT32
    per_tag = cpu_us(lambda: [ModbusClientMixin.convert_from_registers(registers[2 * i : 2 * i + 2], kind) for i in range(60)])
    ours, scaled = cpu_us(lambda: codec.decode(data)), cpu_us(lambda: swapped.decode(data))
    bare = cpu_us(lambda: compiled.unpack(data))
    return [
        Result("decode", "60 float32, ABCD", ours, "us", "pymodbus per tag", ours / per_tag),
        Result("decode", "60 float32, CDAB, scaled", scaled, "us", "pymodbus per tag", scaled / per_tag),
        Result("decode", "60 float32, ABCD", ours, "us", "struct.unpack to a tuple", ours / bare),
    ]


def windows() -> list[Result]:
    """1,000 tags at 10 Hz on a 1-s grid, as a share of one core."""
    table = TagTable()
    group = table.add_group("g", "s", 0.1)
    tags = [table.add(Tag(f"t{i}", "1", DataType.FLOAT32, group.id)) for i in range(1000)]
    chain = ChainSpec(period_s=1.0, window=60, inputs=tuple(InputSpec(name=f"x{i}", unit="1") for i in range(10)))
    assets = [AssetBinding(f"a{a}", {f"x{i}": tags[10 * a + i] for i in range(10)}) for a in range(100)]
    steps = Steps(chain, assets, table)
    numbers, quality = np.array(tags, np.int32), np.zeros(1000, np.uint16)
    values = np.random.default_rng(0).standard_normal(1000)
    now_ns = 0

    def second() -> None:
        nonlocal now_ns
        for _ in range(10):
            now_ns += 100_000_000
            steps.feed(Batch(group.id, 0, 0, 0, 0, numbers, values, quality, np.full(1000, now_ns, np.int64)))
            steps.feed(Watermark(group.id, now_ns))

    share = cpu_us(second, least_s=0.5) / 1e6
    return [Result("windows", "1,000 tags at 10 Hz, 100 assets", 100 * share, "% of a core", "2 % of a core", share / 0.02)]


def fanout() -> list[Result]:
    """One batch of 100 values to three consumers, beside one copy of its values."""
    numbers, values = np.arange(100, dtype=np.int32), np.zeros(100)
    batch = Batch(0, 0, 0, 0, 0, numbers, values, np.zeros(100, np.uint16), np.zeros(100, np.int64))
    fan, queues = Fanout(), [FlowQueue(100_000) for _ in range(3)]
    for queue in queues:
        fan.outlet(queue)

    def once() -> None:
        fan.put(batch)
        for queue in queues:
            with queue.take_all():
                pass

    ours, copy = cpu_us(once), cpu_us(values.tolist)
    return [Result("fanout", "100 values to 3 queues and out", ours, "us", "ndarray.tolist of the values", ours / copy)]


SUITES = {"decode": decode, "windows": windows, "fanout": fanout}


def main() -> None:
    """Run one suite or all, print a table, and write JSON if wanted."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=[*SUITES, "all"], default="all")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = [result for name, suite in SUITES.items() if arguments.suite in (name, "all") for result in suite()]
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}; not an RK3568 unless it says so")
    for r in results:
        print(f"{r.suite:8} {r.case:34} {r.value:10.2f} {r.unit:12} {r.ratio:8.4f} x {r.reference}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1))


main()
