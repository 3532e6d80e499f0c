"""`lineside reload`, `lineside command` and `lineside status`."""

import asyncio
from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path)


def _carry_out(socket: Path, body: dict[str, Any]) -> None:
    from gateway.cli.client import send
    from gateway.core.errors import ConfigError

    answer = asyncio.run(send(socket, body))
    text = answer.get("reason") or answer.get("error") or answer.get("verdict", "")
    if answer.get("verdict") not in ("accepted", "verified"):
        raise ConfigError(text, remedy=answer.get("remedy", ""))
    click.echo(text)


@click.command()
@click.argument("file", type=FILE)
@click.option("--socket", type=FILE, help="Socket of the gateway, where the file itself cannot be read any more.")
def reload(file: Path, socket: Path | None) -> None:
    """Make a running gateway read its configuration again.

    A file with mistakes changes nothing: the old configuration stays in service, and the mistakes are printed.

    Example: lineside reload gateway.yaml
    """
    from gateway.cli.client import socket_of

    socket = socket or socket_of(file)
    _carry_out(socket, {"kind": "reload", "arguments": {"path": str(file.absolute())}})


@click.command()
@click.argument("kind", type=click.Choice(["arm", "disarm", "hold", "release", "ack", "shelve"]))
@click.argument("file", type=FILE)
@click.option("--target", default="", help="Write target or alarm key; all of them if left out.")
@click.option("--reason", default="", help="Why (shelve).")
@click.option("--for", "duration_s", default="", help="Seconds (shelve).")
def command(kind: str, file: Path, target: str, reason: str, duration_s: str) -> None:
    """Arm, disarm, hold or release write targets; acknowledge or shelve alarms. Every command is audited.

    Example: lineside command hold gateway.yaml --target pump1-out
    """
    from gateway.cli.client import socket_of

    _carry_out(socket_of(file), {"kind": kind, "target": target, "arguments": {"reason": reason, "duration_s": duration_s}})


@click.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the whole snapshot.")
def status(file: Path, *, as_json: bool) -> None:
    """Print the state of a running gateway. Exit code 1 if it is not well.

    Example: lineside status gateway.yaml
    """
    import sys

    from gateway.cli.client import connect, socket_of

    async def ask() -> tuple[bytes, dict[str, Any]]:
        async with connect(socket_of(file)) as session:
            async with session.get("/v1/snapshot") as response:
                snapshot = await response.read()
            async with session.get("/v1/health") as response:
                return snapshot, await response.json()

    snapshot, health = asyncio.run(ask())
    if as_json:
        click.echo(snapshot.decode())
    else:
        import msgspec
        from rich.console import Console

        from gateway.cli.summary import show
        from gateway.core.snapshot import GatewaySnapshot

        show(msgspec.json.decode(snapshot, type=GatewaySnapshot), Console())
        for reason in health["reasons"]:
            click.echo(f"not well: {reason}")
    sys.exit(0 if health["well"] else 1)
