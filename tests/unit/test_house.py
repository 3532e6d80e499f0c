"""The arrows of the house hold, and nobody else owns its names."""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import gateway


def test_arrows_point_downwards(repository: Path) -> None:
    run = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--config", "pyproject.toml", "--no-cache"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout


def test_each_top_level_name_resolves_to_our_install(repository: Path) -> None:
    assert distribution("lineside").metadata["Name"] == "lineside"
    assert Path(gateway.__file__).is_relative_to(repository)
    assert not (repository / "gateway/__init__.py").read_text()
