"""Owns the lines, and makes the sources and targets that share them."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from connectors.modbus.client import TcpClient
from connectors.modbus.line import Line
from connectors.modbus.settings import ModbusSourceSettings, ModbusTargetSettings
from connectors.modbus.source import ModbusSource
from connectors.modbus.target import ModbusTarget
from gateway.core.clock import Clock
from gateway.core.prediction import OutputSpec
from gateway.core.tags import TagTable


class ModbusConnector:
    """One per process: whatever goes to the same host and port goes over the same line.

    Args:
        clock: For slots, stamps and pauses.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[tuple[str, int], Line] = {}
        self._owners: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        owners = list(self._owners.values())
        for owner in owners:
            owner.cancel()
        await asyncio.gather(*owners, return_exceptions=True)
        self._owners.clear()
        self._lines.clear()

    def line(self, settings: ModbusSourceSettings) -> Line:
        """The line to a source's address, opened with its first request."""
        key = (settings.host, settings.port)
        if key not in self._lines:
            client = TcpClient(settings.host, settings.port, self._clock)
            name = f"{settings.host}:{settings.port}"
            self._lines[key] = Line(name, client, self._clock, pause_s=settings.pause_ms / 1000)
            self._owners[key] = asyncio.create_task(self._lines[key].run(), name=f"line {name}")
        return self._lines[key]

    def source(self, settings: ModbusSourceSettings, table: TagTable) -> ModbusSource:
        """A source; its tags and groups must be in the table."""
        return ModbusSource(settings, table, self.line(settings), self._clock)

    def target(
        self,
        name: str,
        settings: ModbusTargetSettings,
        source: ModbusSourceSettings,
        outputs: Sequence[OutputSpec],
    ) -> ModbusTarget:
        """A target on the line of a source."""
        return ModbusTarget(name, settings, source, outputs, self.line(source), self._clock)
