"""A client of a running gateway's API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gateway.core.errors import ConfigError, TransientError


def socket_of(file: Path) -> Path:
    """The API socket that a configuration file names, or the path itself if it is a socket.

    A file with mistakes still says where its gateway is to be found, so that it can be reloaded, looked at and disarmed.

    Raises:
        ConfigError: The file does not say it.
    """
    if file.is_socket():
        return file
    from gateway.config.document import read_document

    data = read_document(file).data
    section = data.get("gateway") if isinstance(data, dict) else None
    if not isinstance(section, dict):
        raise ConfigError(f"{file}: no section `gateway`", remedy="give the configuration of the gateway, or its socket")
    socket = section.get("socket")
    return file.parent / str(socket) if socket else file.parent / str(section.get("state_dir", "state")) / "lineside.sock"


@asynccontextmanager
async def connect(socket: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A session over the socket.

    Raises:
        ConfigError: No gateway serves it.
        TransientError: The connection was lost.
    """
    connector = aiohttp.UnixConnector(path=str(socket))
    async with aiohttp.ClientSession("http://lineside", connector=connector) as session:
        try:
            yield session
        except aiohttp.ClientConnectorError as error:
            raise ConfigError(f"no gateway serves {socket}", remedy="start it with `lineside run`") from error
        except aiohttp.ClientError as error:
            raise TransientError(f"connection to the gateway lost: {error}", remedy="see its log") from error


async def send(socket: Path, body: dict[str, Any]) -> dict[str, Any]:
    """Send a command and return the answer."""
    async with connect(socket) as session, session.post("/v1/command", json=body) as response:
        answer: dict[str, Any] = await response.json()
        return answer
