"""A recording on the wire: its rows as registers, at their recorded times, as fast as wanted."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self

import numpy as np

from connectors.replay.recording import Recording
from connectors.simulator.server import ModbusServer, Tables
from gateway.core.clock import NS_PER_S, Clock

STAMP_ADDRESS = 0
COUNTER_ADDRESS = 2
VALUES_ADDRESS = 4
UNIT = 1
_DEVICE_FAILURE = 4


class OnHole(StrEnum):
    """What the device does while the recording has no row."""

    FREEZE = "freeze"
    EXCEPTION = "exception"


class RecordingPlant:
    """Serves recordings one after the other.

    Input registers: 0-1 unix seconds of the row (uint32), 2-3 number of the row from 1 (uint32), from 4 on its columns (float32 ABCD, NaN
    for an empty cell). In a hole nothing moves, or every read gets exception 4.

    Args:
        recordings: Played in this order; between two there is no pause.
        clock: Drives the rows.
        speed: Recorded seconds per second.
        on_hole: See above.
        port: As in `ModbusServer`.
        host: Address to listen on.
        wait: Start with the first request, not before.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        clock: Clock,
        *,
        speed: float = 1.0,
        on_hole: OnHole = OnHole.FREEZE,
        port: int = 0,
        host: str = "127.0.0.1",
        wait: bool = False,
    ) -> None:
        self.finished = asyncio.Event()
        self.row = 0
        self._recordings = recordings
        self._clock = clock
        self._speed = speed
        self._on_hole = on_hole
        self._in_hole = False
        self._tables = Tables()
        self._asked = asyncio.Event()
        if not wait:
            self._asked.set()
        self._server = ModbusServer({UNIT: self._tables}, host=host, port=port, before=self._before)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Port it listens on."""
        return self._server.port

    @property
    def rows(self) -> int:
        """Rows in all."""
        return sum(len(recording.time_ns) for recording in self._recordings)

    def _before(self, unit: int, function: int) -> int:  # noqa: ARG002 - the server's signature
        self._asked.set()
        return _DEVICE_FAILURE if self._in_hole and self._on_hole is OnHole.EXCEPTION else 0

    async def __aenter__(self) -> Self:
        self._serve(self._recordings[0], 0)
        await self._server.__aenter__()
        self._task = asyncio.create_task(self._play(), name="recording plant")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._server.__aexit__(kind, error, trace)

    def _serve(self, recording: Recording, row: int) -> None:
        self._tables.put_uint32(STAMP_ADDRESS, int(recording.time_ns[row]) // NS_PER_S)
        self._tables.put_uint32(COUNTER_ADDRESS, self.row + 1)
        self._tables.put_float32(VALUES_ADDRESS, recording.values[row].astype(np.float32))

    async def _play(self) -> None:
        await self._asked.wait()
        due_ns = self._clock.mono_ns()
        for recording in self._recordings:
            period_ns = recording.period_s * NS_PER_S
            before_ns = int(recording.time_ns[0]) - round(period_ns)
            for row, time_ns in enumerate(recording.time_ns.tolist()):
                wait_ns = time_ns - before_ns
                before_ns = time_ns
                if wait_ns > 1.5 * period_ns:
                    # The row before is over one period after it came; from then on there is a hole.
                    due_ns += round(period_ns / self._speed)
                    await self._clock.sleep_until(due_ns)
                    self._in_hole = True
                    wait_ns -= round(period_ns)
                due_ns += round(wait_ns / self._speed)
                await self._clock.sleep_until(due_ns)
                self._in_hole = False
                self._serve(recording, row)
                self.row += 1
        self.finished.set()
