"""Owns the lines, and makes the sources and targets that share them."""

import asyncio
from collections.abc import Collection, Sequence
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.keep(())

    def line(self, settings: ModbusSourceSettings) -> Line:
        """The line to a source's address, opened with its first request. Of sources that share it, the most careful one sets its pace."""
        key = (settings.host, settings.port)
        if key not in self._lines:
            name = f"{settings.host}:{settings.port}"
            client = TcpClient(settings.host, settings.port)
            line = Line(name, client, self._clock, pause_s=settings.pause_ms / 1000, max_in_flight=settings.max_in_flight)
            self._lines[key] = line
            line.start()
        line = self._lines[key]
        line.calm(settings.pause_ms / 1000, settings.max_in_flight)
        return line

    async def keep(self, addresses: Collection[tuple[str, int]]) -> None:
        """Close the lines to all other addresses, after a reload that left them out."""
        gone = [self._lines.pop(key) for key in list(self._lines) if key not in addresses]
        await asyncio.gather(*(line.stop() for line in gone))

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
