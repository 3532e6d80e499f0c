"""What the parts of the house expect of each other."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from gateway.core.batch import Batch, Watermark
from gateway.core.command import Command, CommandResult
from gateway.core.condition import Condition
from gateway.core.prediction import Prediction
from gateway.core.snapshot import SinkStatus, SourceStatus
from gateway.core.tags import Group

Flowing = Batch | Watermark | Prediction


class Resource(Protocol):
    """Something that `async with` owns; leaving it is safe at any time, also after a failed entry."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Source(Resource, Protocol):
    """Reads tags. Entering never fails for an absent peer, and no peer's fault ends the iteration."""

    @property
    def name(self) -> str:
        """As configured."""
        ...

    @property
    def groups(self) -> Sequence[Group]:
        """The groups it feeds."""
        ...

    def items(self) -> AsyncIterator[Batch | Watermark]:
        """What arrives, each watermark behind the batches it speaks of."""
        ...

    def conditions(self) -> Sequence[Condition]:
        """What is wrong with it now or was before (then inactive)."""
        ...

    def status(self) -> SourceStatus:
        """Its state; the counts of tags and ages are filled in by whoever holds the latest values."""
        ...

    def raw_status(self, tag: int) -> str:
        """The protocol's own last word about a tag ("exception 2: illegal data address"), empty if it was fine."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """One encoded message for a subscriber."""

    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of each message handed to a sink, by its position: every position is in exactly one."""

    accepted: tuple[int, ...] = ()
    rejected: tuple[tuple[int, str], ...] = ()
    kept: tuple[int, ...] = ()


class Sink(Resource, Protocol):
    """Delivers messages to a subscriber; accepted means that the peer has confirmed them."""

    @property
    def name(self) -> str:
        """As configured."""
        ...

    async def ready(self) -> None:
        """Return once there is a connection."""
        ...

    async def deliver(self, messages: Sequence[Message]) -> Delivery:
        """Hand over messages. Never raises for the peer's faults: what it did not take is kept or rejected."""
        ...

    def conditions(self) -> Sequence[Condition]:
        """What is wrong with it now or was before (then inactive)."""
        ...

    def status(self) -> SinkStatus:
        """State of the connection; the outbox fills in its own counts."""
        ...


Words = Mapping[str, tuple[int, ...]]


class Target(Protocol):
    """Writes a group of fields to a device and reads them back: registers, a node or a method alike.

    Field names: `value:<output>`, `quality`, `age_ms`, `latency_ms`, `loop_ms`, `sequence`, `heartbeat`.
    """

    @property
    def name(self) -> str:
        """As configured."""
        ...

    @property
    def fields(self) -> frozenset[str]:
        """Fields it has a place for."""
        ...

    def encode(self, values: Mapping[str, float]) -> Words:
        """Raw words of each field, as they will stand in the device.

        Raises:
            DataError: A value does not fit its place.
        """
        ...

    async def write(self, words: Words, valid_until_mono_ns: int) -> None:
        """Write the fields, in one request where the protocol allows.

        Raises:
            TransientError: Not written, or not known to be written, by `valid_until_mono_ns`.
            PermanentError: The device refuses; a retry cannot help.
        """
        ...

    async def read_back(self, fields: Sequence[str], valid_until_mono_ns: int) -> Words:
        """What stands in the device now.

        Raises:
            TransientError: No answer in time.
            PermanentError: The device refuses to be read.
        """
        ...


Arrays = Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """Outputs of one call by name, first axis the batch, and the rows that failed with their reason."""

    outputs: Arrays
    row_errors: Mapping[int, str] = field(default_factory=dict)
    started_mono_ns: int = 0
    ended_mono_ns: int = 0


class Backend(Resource, Protocol):
    """Runs a model. `infer` is a pure function of its arrays and never runs on the event loop."""

    @property
    def name(self) -> str:
        """Rung, as shown to the operator (`cpu-float`)."""
        ...

    @property
    def reason(self) -> str:
        """Why this one serves."""
        ...

    async def infer(self, arrays: Arrays, deadline_mono_ns: int) -> Inference:
        """One call on a batch.

        Args:
            arrays: C-contiguous native float32 by input name, first axis the batch.
            deadline_mono_ns: After it the answer is of no use.

        Raises:
            TransientError: No answer by the deadline; the next call may succeed.
            PermanentError: The back end is lost.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a model said to a list of windows.

    Attributes:
        outputs: Engineering units, `[windows, outputs] float64`.
        quality: Of each window's outputs, to be combined with the window's own.
        row_errors: Windows that could not be answered, with the reason.
        backend: Rung that answered.
        started_mono_ns: Start of the call.
        ended_mono_ns: End of the call.
    """

    outputs: npt.NDArray[np.float64]
    quality: Sequence[int]
    row_errors: Mapping[int, str]
    backend: str
    started_mono_ns: int
    ended_mono_ns: int


class CommandHandler(Protocol):
    """Carries out the commands of the kinds it is registered for."""

    async def handle(self, command: Command) -> CommandResult:
        """Carry it out; a refusal is a result, not an exception."""
        ...


class Journal(Protocol):
    """Keeps what happened, for queries; never blocks the caller."""

    def record(self, kind: str, wall_ns: int, body: Mapping[str, object]) -> None:
        """Keep one entry (`kind` is `alarm`, `event`, `command`)."""
        ...
