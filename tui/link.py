"""The one part of the dashboard that knows the socket."""

from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gateway.core.errors import TransientError
from gateway.core.snapshot import GatewaySnapshot

_TIMEOUT = aiohttp.ClientTimeout(total=2.0)


class Link:
    """Asks the gateway for snapshots and sends it commands, each on a connection of its own.

    Args:
        socket: The API's unix socket.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._decoder = msgspec.json.Decoder(GatewaySnapshot)

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(path=str(self._socket))
        return aiohttp.ClientSession("http://lineside", connector=connector, timeout=_TIMEOUT)

    async def snapshot(self) -> GatewaySnapshot:
        """The present state.

        Raises:
            TransientError: No answer.
        """
        try:
            async with self._session() as session, session.get("/v1/snapshot") as response:
                return self._decoder.decode(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            raise TransientError(f"no link to the gateway: {error}", remedy="check whether it runs") from error

    async def send(self, kind: str, target: str, **arguments: str) -> str:
        """Send a command; the answer is a line for the operator.

        Raises:
            TransientError: No answer: it is not known whether the command was carried out.
        """
        body = {"kind": kind, "target": target, "actor": "dashboard", "arguments": arguments}
        try:
            async with self._session() as session, session.post("/v1/command", json=body) as response:
                answer: dict[str, Any] = await response.json()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientError(f"no answer to {kind}; it may or may not have acted", remedy="look at the state") from error
        verdict = answer.get("verdict", "refused")
        return f"{verdict}: {answer.get('reason') or answer.get('error', '')}"
