"""A broker inside the demo's process, in a thread of its own, so that the demo needs nothing installed."""

import asyncio
import logging
import socket
import threading
from types import TracebackType
from typing import Any, Self

from gateway.core.errors import ConfigError

_START_TIMEOUT_S = 15.0


def free_port(host: str, wanted: int = 0) -> int:
    """A port nobody listens on: the wanted one if possible."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ConfigError(f"no free port on {host}", remedy="close some programs")


class EmbeddedBroker:
    """An amqtt broker on loopback. For the demo only.

    Args:
        port: Wanted port; a free one is taken if it is in use, or if it is 0.
    """

    def __init__(self, port: int = 0) -> None:
        self.host = "127.0.0.1"
        self.port = free_port(self.host, port)
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="embedded broker", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        if not await asyncio.to_thread(self._ready.wait, _START_TIMEOUT_S):
            self._error = TimeoutError(f"not ready after {_START_TIMEOUT_S:.0f} s")
        if self._error is not None:
            raise ConfigError(f"the embedded broker does not start: {self._error}", remedy="pip install 'lineside[demo]'")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, _START_TIMEOUT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for the start
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        from amqtt.broker import Broker  # noqa: PLC0415 - an extra that only the demo has

        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        for port in (self.port, 0):
            # Between the probe and the start, another program may have taken the port.
            self.port = port or free_port(self.host)
            broker = Broker(self._configuration())
            try:
                await broker.start()
            except Exception as error:
                if not port or "in use" not in str(error):
                    raise
                continue
            break
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
        await broker.shutdown()

    def _configuration(self) -> dict[str, Any]:
        return {
            "listeners": {"default": {"type": "tcp", "bind": f"{self.host}:{self.port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
