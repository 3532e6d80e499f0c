"""`lineside tui`."""

import sys
from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--operator", is_flag=True, help="Allow arm, disarm, hold and release, each after a question.")
@click.option("--picture", type=click.Path(path_type=Path), help="Save one picture of it (SVG) instead; needs no terminal.")
def tui(file: Path, picture: Path | None, *, operator: bool) -> None:
    """Open the dashboard of a running gateway (FILE is its configuration or its socket).

    It is a process of its own: closing it changes nothing. NO_COLOR and plain locales are respected.

    Example: lineside tui gateway.yaml
    """
    from gateway.cli.client import socket_of
    from gateway.core.clock import SystemClock
    from gateway.core.errors import ConfigError

    if picture is not None:
        import asyncio

        from tui.picture import save_picture

        picture.parent.mkdir(parents=True, exist_ok=True)
        asyncio.run(save_picture(socket_of(file), picture))
        click.echo(f"picture saved to {picture}")
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("the dashboard needs a terminal", remedy="use `lineside status FILE` instead")
    socket = socket_of(file)
    from tui.app import LinesideApp

    LinesideApp(socket, SystemClock(), operator=operator).run(mouse=False)
