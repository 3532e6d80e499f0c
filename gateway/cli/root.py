"""The commands by name, each imported when it is called, and what an error looks like."""

import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click

_COMMANDS = {
    "init": ("gateway.cli.init", "init", "write a commented sample configuration"),
    "check": ("gateway.cli.check", "check", "check a configuration; every mistake at once"),
    "schema": ("gateway.cli.check", "schema", "print the JSON schema of the configuration, for editors"),
    "run": ("gateway.cli.run", "run", "run the gateway"),
    "reload": ("gateway.cli.operate", "reload", "make a running gateway read its configuration again"),
    "command": ("gateway.cli.operate", "command", "arm, disarm, hold, release or acknowledge"),
    "status": ("gateway.cli.operate", "status", "print the state of a running gateway"),
    "tui": ("gateway.cli.tui", "tui", "open the dashboard of a running gateway"),
    "demo": ("gateway.cli.demo", "demo", "simulated plant, broker, gateway and dashboard in one"),
    "simulate": ("gateway.cli.simulate", "simulate", "serve a simulated plant or a recording over Modbus TCP"),
    "record": ("gateway.cli.record", "record", "tape what a predictor of a running gateway takes"),
    "replay": ("gateway.cli.replay", "replay", "run a model over a recording or tape, without sockets"),
    "model": ("gateway.cli.model", "model", "train, inspect and verify model bundles"),
}


class _Lazy(click.Group):
    """Knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("lineside"), prog_name="lineside")
def cli() -> None:
    """Lineside: PLC in, LSTM, prediction with its latency back to PLC, SCADA and MQTT.

    Example: lineside init gateway.yaml, then lineside check gateway.yaml, then lineside run gateway.yaml
    """


def _check_names() -> None:
    """Each of our top-level packages must be ours: another distribution may bring one of the same name.

    Raises:
        ConfigError: One of them is somebody else's, or missing.
    """
    from gateway.core.errors import ConfigError

    ours = Path(__file__).resolve().parents[2]
    for name in ("connectors", "inference", "preprocess", "tui"):
        spec = find_spec(name)
        if spec is None or spec.origin is None or Path(spec.origin).resolve().parents[1] != ours:
            where = spec.origin if spec is not None else "nowhere"
            raise ConfigError(f"package '{name}' is not Lineside's ({where})", remedy="install Lineside into an environment of its own")


def main() -> None:
    """Entry point: errors become one line and an exit code (2: correct something; 1: it failed; 130: interrupted)."""
    from gateway.core.errors import ConfigError, LinesideError

    try:
        _check_names()
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except LinesideError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody left to tell.
        sys.stderr.close()
        sys.exit(1)
