"""The API server."""

import os
import pwd
import socket
import stat
import struct
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog
from aiohttp import web

from gateway.core.command import Command, CommandKind, CommandResult
from gateway.core.errors import ConfigError, LinesideError
from gateway.core.snapshot import GatewaySnapshot

log = structlog.get_logger(__name__)

_SOCKET_PATH_LIMIT = 100
_MAX_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Queries:
    """What the API asks the house for.

    Attributes:
        snapshot: The summary, with the tags named.
        ailments: Why the gateway is not well, empty if it is.
        history: Samples of a tag between two source times.
        predictions: Stored predictions of a model and asset.
        journal: The newest entries.
        command: Carries out a command.
        metrics: Prometheus text.
        tape: Frames of a model's intake from now on.
    """

    snapshot: Callable[[list[str]], GatewaySnapshot]
    ailments: Callable[[], list[str]]
    history: Callable[[str, int, int, int], Awaitable[Any]]
    predictions: Callable[[str, str, int], Awaitable[Any]]
    journal: Callable[[int], Awaitable[Any]]
    command: Callable[[Command], Awaitable[CommandResult]]
    metrics: Callable[[], bytes]
    tape: Callable[[str], AsyncIterator[bytes]]


class ApiServer:
    """Serves the API on a unix socket, and health and metrics on a loopback port.

    Args:
        path: The socket; a stale one is replaced, one that is served is respected.
        queries: What it asks.
        metrics_host: Address of the TCP port.
        metrics_port: The port; 0 for none.
    """

    def __init__(self, path: Path, queries: Queries, *, metrics_host: str = "127.0.0.1", metrics_port: int = 0) -> None:
        self._path = path
        self._queries = queries
        self._metrics_host = metrics_host
        self._metrics_port = metrics_port
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Serve.

        Raises:
            ConfigError: The socket or the port cannot be had; nothing is left behind.
        """
        _claim(self._path)
        where = str(self._path)
        try:
            await self._serve(self._routes(everything=True), lambda runner: web.UnixSite(runner, str(self._path)))
            self._path.chmod(0o660)
            if self._metrics_port:
                where = f"{self._metrics_host}:{self._metrics_port}"
                site = lambda runner: web.TCPSite(runner, self._metrics_host, self._metrics_port)  # noqa: E731 - one line beside its twin
                await self._serve(self._routes(everything=False), site)
        except OSError as error:
            await self.__aexit__(None, None, None)
            raise ConfigError(
                f"cannot serve on {where}: {error.strerror}", remedy="change gateway.metrics.port or gateway.socket"
            ) from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()
        with suppress(OSError):
            self._path.unlink()

    async def _serve(self, routes: list[web.RouteDef], site: Callable[[web.AppRunner], web.BaseSite]) -> None:
        app = web.Application(middlewares=[_errors])
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await site(runner).start()

    def _routes(self, *, everything: bool) -> list[web.RouteDef]:
        routes = [web.get("/v1/health", self._health), web.get("/metrics", self._metrics)]
        if everything:
            routes += [
                web.get("/v1/snapshot", self._snapshot),
                web.get("/v1/history", self._history),
                web.get("/v1/predictions", self._predictions),
                web.get("/v1/journal", self._journal),
                web.get("/v1/tape", self._tape),
                web.post("/v1/command", self._command),
            ]
        return routes

    async def _health(self, _request: web.Request) -> web.Response:
        ailments = self._queries.ailments()
        return _json({"well": not ailments, "reasons": ailments}, status=503 if ailments else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._queries.metrics(), content_type="text/plain", charset="utf-8")

    async def _snapshot(self, request: web.Request) -> web.Response:
        return _json(self._queries.snapshot(request.query.getall("tag", [])))

    async def _history(self, request: web.Request) -> web.Response:
        since_ns, until_ns = _number(request, "since_ns", 0), _number(request, "until_ns", 2**63 - 1)
        return _json(await self._queries.history(_text(request, "tag"), since_ns, until_ns, _number(request, "limit", 1000)))

    async def _predictions(self, request: web.Request) -> web.Response:
        return _json(await self._queries.predictions(_text(request, "model"), _text(request, "asset"), _number(request, "limit", 100)))

    async def _journal(self, request: web.Request) -> web.Response:
        return _json(await self._queries.journal(_number(request, "limit", 100)))

    async def _tape(self, request: web.Request) -> web.StreamResponse:
        """Frames for as long as the client stays."""
        frames = self._queries.tape(_text(request, "model"))
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        with suppress(ConnectionError):
            async for frame in frames:
                await response.write(frame)
        return response

    async def _command(self, request: web.Request) -> web.Response:
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, Any])
            command = Command(
                str(body.get("id") or uuid.uuid4()),
                _actor(request, str(body.get("actor", ""))),
                CommandKind(body["kind"]),
                str(body.get("target", "")),
                {str(k): str(v) for k, v in dict(body.get("arguments", {})).items()},
                str(body.get("expected", "")),
                int(body.get("expires_wall_ns", 0)),
            )
        except (msgspec.DecodeError, KeyError, ValueError, TypeError) as error:
            kinds = ", ".join(CommandKind)
            return _json({"error": f"no command: {error}", "remedy": f"send kind (one of {kinds}) and target"}, status=400)
        result = await self._queries.command(command)
        return _json(result, status=200 if result.verdict != "refused" else 409)


def _actor(request: web.Request, claimed: str) -> str:
    """Who is at the other end of the socket, as the kernel knows it; what the client says of itself comes behind."""
    try:
        _, uid = _peer(request.get_extra_info("socket"))
        user = pwd.getpwuid(uid).pw_name
    except (OSError, AttributeError):
        user = "unknown"
    except KeyError:
        user = f"uid {uid}"
    return f"{user} ({claimed})" if claimed and claimed != user else user


def _peer(connection: Any) -> tuple[int, int]:  # noqa: ANN401 - asyncio hands out a look-alike of a socket
    """Process and user at the other end of a unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, uid, _ = struct.unpack("3i", credentials)
    return int(process), int(uid)


def _claim(path: Path) -> None:
    """Take a socket's path: replace a socket that nobody serves any more, and nothing else.

    Raises:
        ConfigError: Somebody serves it, it is something else, or it cannot be one.
    """
    if len(os.fsencode(path)) > _SOCKET_PATH_LIMIT:
        raise ConfigError(f"socket path of {len(str(path))} characters is too long", remedy="set gateway.socket to a path below 100")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot serve on {path}: {error.strerror}", remedy="make its folder writable, or set gateway.socket") from error
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} exists and is no socket", remedy="set gateway.socket to a path of its own")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
            process, _ = _peer(probe)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            # Busy or not ours is not stale: only a refused connection proves that nobody listens.
            raise ConfigError(f"{path} is taken: {error.strerror or error}", remedy="stop who uses it, or set gateway.socket") from error
    raise ConfigError(f"another gateway (process {process}) serves {path}", remedy="stop it, or give this one another state_dir")


@web.middleware
async def _errors(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """A client sees a sentence, never a traceback."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _json({"error": error.reason}, status=error.status)
    except LinesideError as error:
        return _json({"error": error.text, "remedy": error.remedy}, status=409)
    except Exception:
        log.exception("api.failed", path=request.path)
        return _json({"error": "internal error, see the gateway's log"}, status=500)


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", status=status)


def _text(request: web.Request, name: str) -> str:
    value = request.query.get(name, "")
    if not value:
        raise web.HTTPBadRequest(reason=f"'{name}' is missing")
    return value


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name)
    try:
        value = default if text is None else int(text)
    except ValueError:
        raise web.HTTPBadRequest(reason=f"'{name}' is no whole number") from None
    # To SQLite a negative limit is none at all.
    return min(max(value, 1), _MAX_ROWS) if name == "limit" else value
