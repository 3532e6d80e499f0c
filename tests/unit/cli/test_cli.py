"""The command line: quick to start, every help with an example, every error one line with a remedy."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.root import _COMMANDS

LINESIDE = str(Path(sys.executable).parent / "lineside")
HEAVY = {"numpy", "pydantic", "aiohttp", "textual", "onnxruntime", "pymodbus", "aiomqtt", "torch", "rich", "sqlite_utils", "yaml"}


def lineside(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINESIDE, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env=env, timeout=60)


def test_importing_the_command_line_pulls_in_nothing_heavy() -> None:
    code = "import sys, gateway.cli.root; print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    run = lineside(name, "--help")

    assert run.returncode == 0
    assert "Example: lineside" in run.stdout


@pytest.mark.parametrize("name", ["train", "inspect", "verify"])
def test_every_model_command_has_help_with_an_example(name: str) -> None:
    assert f"Example: lineside model {name}" in lineside("model", name, "--help").stdout


def test_the_sample_configuration_is_accepted_and_not_overwritten(tmp_path: Path) -> None:
    assert lineside("init", cwd=tmp_path).returncode == 0
    checked = lineside("check", "gateway.yaml", cwd=tmp_path)
    again = lineside("init", cwd=tmp_path)

    assert checked.returncode == 0
    assert "correct" in checked.stdout
    assert again.returncode == 2
    assert "--force" in again.stderr


def test_the_schema_is_json_and_knows_the_sections() -> None:
    assert {"gateway", "sources", "models", "publish", "control"} <= set(json.loads(lineside("schema").stdout)["properties"])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["check", "nowhere.yaml"], 2, "nowhere.yaml: no such file -> make one with `lineside init`"),
        (["run", "nowhere.yaml"], 2, "no such file"),
        (["status", "gateway.yaml"], 2, "no gateway serves"),
        (["reload", "gateway.yaml"], 2, "no gateway serves"),
        (["tui", "gateway.yaml"], 2, "needs a terminal"),
        (["model", "inspect", "nowhere"], 2, "no bundle at nowhere"),
        (["replay", "nowhere.csv", "--bundle", "demo"], 2, "no such file"),
        (["simulate", "plant", "--fault", "rust@3:1"], 2, "no fault"),
        (["demo", "--for", "soon"], 2, "no duration"),
        (["chekc"], 2, "No such command"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy_and_no_traceback(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    lineside("init", cwd=tmp_path)
    run = lineside(*arguments, cwd=tmp_path)

    assert run.returncode == code
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_a_state_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    lineside("init", cwd=tmp_path)
    (tmp_path / "state").write_text("a file where the folder should be")
    run = lineside("run", "gateway.yaml", cwd=tmp_path)

    assert run.returncode == 2
    assert "state folder" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_plain_locale_and_a_closed_pipe_do_no_harm(tmp_path: Path) -> None:
    lineside("init", cwd=tmp_path)
    run = lineside("check", "gateway.yaml", cwd=tmp_path, env=os.environ | {"LC_ALL": "C"})
    piped = subprocess.run(["sh", "-c", f"{LINESIDE} schema | head -c 10"], capture_output=True, text=True, check=False)

    assert run.returncode == 0
    assert "Traceback" not in piped.stderr


def test_a_back_test_prints_the_summary_and_writes_every_prediction(tmp_path: Path) -> None:
    lineside("simulate", "plant", "--csv", "plant.csv", "--for", "60s", "--seed", "3", cwd=tmp_path)
    run = lineside("replay", "plant.csv", "--bundle", "demo", "--asset", "pump1", "--asset", "pump2", "--out", "said.csv", cwd=tmp_path)

    assert run.returncode == 0, run.stderr
    assert "bearing_temperature_5s" in run.stdout
    assert "balanced" in run.stdout
    assert "WRONG" not in run.stdout
    assert len((tmp_path / "said.csv").read_text().splitlines()) > 400


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_plant_ends_cleanly_on_a_signal(name: str) -> None:
    with subprocess.Popen([LINESIDE, "simulate", "plant", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as plant:
        assert plant.stdout is not None
        assert plant.stderr is not None
        assert b"pump plant on" in plant.stdout.readline()
        plant.send_signal(getattr(signal, name))
        assert plant.wait(10) == 0
        assert plant.stderr.read() == b""
