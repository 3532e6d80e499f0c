"""The pump plant on the wire: measurements in input registers, predictions taken in holding registers."""

import asyncio
from types import TracebackType
from typing import Self

import numpy as np

from connectors.simulator.plant import PUMPS, SIGNALS, Injection, PumpPhysics, Row
from connectors.simulator.server import ModbusServer, Tables
from gateway.core.clock import NS_PER_S, Clock

UNIT = 1
PREDICTION_BLOCKS = {pump: 1000 + 100 * i for i, pump in enumerate(PUMPS)}


def address_of(pump: str, signal: str) -> int:
    """Input register of a signal (float32, ABCD)."""
    return 2 * (PUMPS.index(pump) * len(SIGNALS) + SIGNALS.index(signal))


class PumpPlant:
    """Runs the physics against the clock and serves it.

    Args:
        clock: Drives the plant.
        port: As in `ModbusServer`.
        host: Address to listen on.
        seed: Of the physics.
        speed: Plant seconds per second.
        period_s: Step of the physics, in plant time.
        injections: Faults to come.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        seed: int = 7,
        speed: float = 1.0,
        period_s: float = 0.05,
        injections: tuple[Injection, ...] = (),
    ) -> None:
        self.physics = PumpPhysics(seed, injections)
        self._clock = clock
        self._speed = speed
        self._period_s = period_s
        self._tables = Tables()
        self._server = ModbusServer({UNIT: self._tables}, host=host, port=port, before=self._before)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Port it listens on."""
        return self._server.port

    def _before(self, unit: int, function: int) -> int:  # noqa: ARG002 - the server's signature
        """A plant whose controller is silent does not answer."""
        return -1 if any(self.physics.silent(pump) for pump in range(len(PUMPS))) else 0

    async def __aenter__(self) -> Self:
        self._serve(self.physics.step(self._period_s))
        await self._server.__aenter__()
        self._task = asyncio.create_task(self._run(), name="pump plant")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._server.__aexit__(kind, error, trace)

    def _serve(self, values: Row) -> None:
        self._tables.put_float32(0, values.astype(np.float32).ravel())

    async def _run(self) -> None:
        step_ns = round(self._period_s / self._speed * NS_PER_S)
        due_ns = self._clock.mono_ns()
        while True:
            due_ns += step_ns
            await self._clock.sleep_until(due_ns)
            self._serve(self.physics.step(self._period_s))
