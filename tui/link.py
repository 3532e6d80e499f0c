"""The one part of the dashboard that knows the socket."""

from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gateway.core.errors import TransientError
from gateway.core.snapshot import GatewaySnapshot

_TIMEOUT = aiohttp.ClientTimeout(total=2.0)
_START = "is the gateway running? start it with: lineside run FILE"


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
            TransientError: No answer, or none that can be read.
        """
        try:
            async with self._session() as session, session.get("/v1/snapshot") as response:
                body = await response.read()
        except TimeoutError as error:
            raise TransientError("the gateway does not answer within 2 s", remedy="look at its log and at the load of the box") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _no_link(self._socket, error) from error
        if response.status != 200:
            raise TransientError(f"the gateway answers {response.status}", remedy="look at its log")
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise TransientError(f"an answer this dashboard cannot read: {error}", remedy="use the gateway's own version of it") from error

    async def send(self, kind: str, target: str, *, expected: str = "", expires_wall_ns: int = 0, **arguments: str) -> str:
        """Send a command; the answer is a line for the operator.

        Args:
            kind: What is asked.
            target: What it concerns.
            expected: State the operator saw; the command is refused if it is another by now.
            expires_wall_ns: After it the gateway does not carry it out any more.
            arguments: Further text by name.

        Raises:
            TransientError: No answer: it is not known whether the command was carried out.
        """
        body = {
            "kind": kind,
            "target": target,
            "actor": "dashboard",
            "arguments": arguments,
            "expected": expected,
            "expires_wall_ns": expires_wall_ns,
        }
        try:
            async with self._session() as session, session.post("/v1/command", json=body) as response:
                answer: Any = msgspec.json.decode(await response.read())
        except aiohttp.ClientConnectorError as error:
            raise TransientError(f"no link: {kind} was not sent", remedy="try again once the gateway answers") from error
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            raise TransientError(f"no answer to {kind}; it may or may not have acted", remedy="look at the state") from error
        verdict = answer.get("verdict", "refused")
        return f"{verdict}: {answer.get('reason') or answer.get('error', '')}"


def _no_link(socket: Path, error: Exception) -> TransientError:
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, PermissionError):
            return TransientError(f"no right to use {socket}", remedy="log in as its owner, or join the socket's group")
        return TransientError(f"nobody serves {socket}", remedy=_START)
    return TransientError(f"the connection broke: {error}", remedy=_START)
