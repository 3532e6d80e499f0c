"""A machine that takes writes, a journal that remembers, and predictions to offer."""

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gateway.control.limits import Limit, TargetRules
from gateway.core.clock import NS_PER_S, Clock
from gateway.core.errors import DataError
from gateway.core.prediction import Outcome, OutputSpec, Prediction, Trace
from gateway.core.protocols import Words

OUTPUTS = (OutputSpec("flow", "l/min"), OutputSpec("temp", "degC"))
FIELDS = frozenset({"heartbeat", "quality", "sequence", "age_ms", "latency_ms", "loop_ms", "value:flow", "value:temp"})
RULES = TargetRules({"flow": Limit(0, 100), "temp": Limit(-40, 150)})


@dataclass
class Machine:
    """Satisfies `Target`: keeps words like registers, and does wrong what a test asks for.

    `hook` is called with each write before it takes effect; `fault` is raised instead of writing; `gate` holds writes up.
    """

    name: str = "pump1-out"
    fields: frozenset[str] = FIELDS
    words: dict[str, tuple[int, ...]] = field(default_factory=dict)
    writes: list[dict[str, float]] = field(default_factory=list)
    beats: list[int] = field(default_factory=list)
    fault: Exception | None = None
    read_fault: Exception | None = None
    gate: asyncio.Event | None = None
    corrupt: str = ""
    hook: Callable[[Mapping[str, float]], None] = lambda _values: None

    def encode(self, values: Mapping[str, float]) -> Words:
        """Eight bytes of a double each, so that nothing is rounded."""
        if not all(np.isfinite(value) for value in values.values()):
            raise DataError("not a number")
        return {name: struct.unpack(">4H", struct.pack(">d", value)) for name, value in values.items()}

    async def write(self, words: Words, valid_until_mono_ns: int) -> None:
        """Take the fields."""
        del valid_until_mono_ns
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        values: dict[str, float] = {name: struct.unpack(">d", struct.pack(">4H", *word))[0] for name, word in words.items()}
        self.hook(values)
        self.words.update(words)
        if "heartbeat" in values:
            self.beats.append(int(values["heartbeat"]))
        else:
            self.writes.append(values)

    async def read_back(self, fields: Sequence[str], valid_until_mono_ns: int) -> Words:
        """What stands here now."""
        del valid_until_mono_ns
        if self.read_fault is not None:
            raise self.read_fault
        return {name: (0, 0, 0, 1) if name == self.corrupt else self.words[name] for name in fields}


@dataclass
class Memory:
    """Satisfies `Journal`."""

    entries: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)

    def record(self, kind: str, wall_ns: int, body: Mapping[str, object]) -> None:
        """Keep an entry."""
        del wall_ns
        self.entries.append((kind, dict(body)))


def prediction(
    clock: Clock,
    values: Sequence[float] = (50.0, 20.0),
    *,
    sequence: int = 1,
    quality: int = 0,
    outcome: Outcome = Outcome.INFERRED,
    made_ago_s: float = 0.0,
    asset: str = "pump1",
) -> Prediction:
    """A prediction made some seconds ago from inputs half a second older."""
    now_ns = clock.mono_ns() - round(made_ago_s * NS_PER_S)
    trace = Trace(now_ns - 500_000_000, now_ns - 400_000_000, now_ns - 20_000_000, now_ns - 10_000_000, now_ns)
    return Prediction(
        *("bearing", asset, sequence, clock.wall_ns(), "gateway", np.array(values, np.float64), quality, outcome),
        digest="d",
        backend="cpu-float",
        trace=trace,
        made_wall_ns=clock.wall_ns(),
        oldest_lag_ns=0,
        oldest_received_mono_ns=now_ns - 400_000_000,
    )
