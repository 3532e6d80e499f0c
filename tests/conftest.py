"""What a test may need from outside, how to get it, and the list of what was missing."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recordings import RECORDINGS


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A thing some tests need, whether it is here, and the command that brings it."""

    present: Callable[[], bool]
    remedy: str


def _has_library(name: str) -> bool:
    compiler = shutil.which("gcc")
    if compiler is None or shutil.which("pkg-config") is None:
        return False
    return subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0


COUNTERPARTS = {
    "mosquitto": Counterpart(lambda: all(map(shutil.which, ("mosquitto", "mosquitto_sub"))), "make peers"),
    "libmodbus": Counterpart(lambda: _has_library("libmodbus"), "make peers"),
    "tmux": Counterpart(lambda: shutil.which("tmux") is not None, "make peers"),
    "torch": Counterpart(lambda: importlib.util.find_spec("torch") is not None, "make peers"),
    "recordings": Counterpart(
        RECORDINGS.is_dir, f"put the public recordings into {RECORDINGS} or name their folder in LINESIDE_RECORDINGS"
    ),
}
_missing: dict[str, int] = {}
_present: dict[str, bool] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what cannot run here; where nothing may be skipped (CI), it fails instead."""
    for item in items:
        for mark in item.iter_markers("needs"):
            for thing in mark.args:
                counterpart = COUNTERPARTS[thing]
                if thing not in _present:
                    _present[thing] = counterpart.present()
                if not _present[thing]:
                    _missing[thing] = _missing.get(thing, 0) + 1
                    item.add_marker(pytest.mark.skip(reason=f"{thing} is missing: {counterpart.remedy}"))


def pytest_collection_finish() -> None:
    """Hypothesis reads all our modules for constants at its first draw, once per checkout; no test of ours is to pay for that."""

    @settings(max_examples=1, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.tuples(st.integers(), st.floats(), st.text(), st.binary()))
    def first_draw(_drawn: object) -> None:
        pass

    first_draw()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists what was missing and how to get it."""
    if _missing:
        terminalreporter.section("not run on this machine")
        for thing, count in sorted(_missing.items()):
            terminalreporter.write_line(f"{thing}: {count} test(s) not run. To get it: {COUNTERPARTS[thing].remedy}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With CI=true a skip is an error."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter is not None else 0
    if skipped and exitstatus == 0 and os.environ.get("CI") == "true":
        session.exitstatus = 1


@pytest.fixture
def repository() -> Path:
    """Root of the project."""
    return Path(__file__).resolve().parent.parent
