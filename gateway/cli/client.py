"""A client of a running gateway's API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gateway.core.errors import ConfigError, TransientError


def socket_of(file: Path) -> Path:
    """The API socket of a configuration file, or the path itself if it is a socket.

    Raises:
        ConfigError: The file is wrong.
    """
    if file.is_socket():
        return file
    from gateway.config.load import load

    return load(file).socket


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
