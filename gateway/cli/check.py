"""`lineside check` and `lineside schema`."""

from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check a configuration without opening a socket.

    Every mistake is reported at once, as file:line:column, what is wrong, and what would be right. Exit code 2 if there is one.

    Example: lineside check gateway.yaml
    """
    from gateway.config.load import load

    settings = load(file).settings
    tags = sum(len(group.tags) for source in settings.sources for group in source.groups) + len(settings.derived)
    counts = f"{len(settings.sources)} sources, {tags} tags, {len(settings.models)} models, {len(settings.control.targets)} write targets"
    click.echo(f"{file}: correct ({counts})")


@click.command()
def schema() -> None:
    """Print the JSON schema of the configuration, for editors.

    Example: lineside schema > lineside.schema.json, and as first line of the configuration:
    # yaml-language-server: $schema=lineside.schema.json
    """
    import json

    from gateway.config.schema import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))
