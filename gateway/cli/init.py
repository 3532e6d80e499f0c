"""`lineside init`."""

from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default=Path("gateway.yaml"))
@click.option("--force", is_flag=True, help="Replace an existing file.")
def init(file: Path, *, force: bool) -> None:
    """Write a commented sample configuration that `lineside check` accepts.

    It reads the simulated plant of `lineside simulate plant --port 5020` and predicts with the model that comes with Lineside.

    Example: lineside init gateway.yaml
    """
    from importlib.resources import files

    from gateway.core.errors import ConfigError

    if file.exists() and not force:
        raise ConfigError(f"{file} exists", remedy="name another file, or replace it with --force")
    try:
        file.write_text(files("gateway.config").joinpath("sample.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}", remedy="choose a folder you may write to") from error
    click.echo(f"{file} written; next: lineside check {file}")
