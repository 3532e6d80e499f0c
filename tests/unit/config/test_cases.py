"""Every case folder: a configuration and exactly what `lineside check` says of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.core.errors import ConfigError

CASES = Path(__file__).resolve().parents[2] / "cases" / "config"


def said(path: Path) -> str:
    """What the user reads, with the folder left out."""
    try:
        load(path)
    except ConfigError as error:
        return str(error).replace(f"{path.parent}/", "")
    return ""


@pytest.mark.parametrize("case", sorted(folder.name for folder in CASES.iterdir()))
def test_a_case_is_judged_as_written_down(case: str) -> None:
    folder = CASES / case
    expected = (folder / "expected.txt").read_text(encoding="utf-8").strip()

    assert said(folder / "config.yaml") == expected


def test_check_ends_with_2_and_no_traceback() -> None:
    command = [str(Path(sys.executable).parent / "lineside"), "check", str(CASES / "everything_at_once" / "config.yaml")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    assert len(run.stderr.strip().splitlines()) >= 5
