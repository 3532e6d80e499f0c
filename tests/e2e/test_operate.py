"""A running gateway: started by its command, armed, reloaded, restarted, and ended by signals."""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.control.audit import read
from tests.e2e.processes import LINESIDE, free_port, listens, process, wait_for

pytestmark = pytest.mark.timeout(180)


def lineside(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINESIDE, *arguments], capture_output=True, text=True, check=False, cwd=folder, timeout=60)


def snapshot(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(lineside(folder, "status", "gateway.yaml", "--json").stdout)
    return state


def inferred(folder: Path) -> int:
    return int(snapshot(folder)["models"][0]["outcomes"].get("inferred", 0))


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[tuple[Path, int, int]]:
    """A folder with a configuration, and a plant that it reads. The broker it names is not there."""
    port, metrics = free_port(), free_port()
    assert lineside(tmp_path, "init").returncode == 0
    text = (tmp_path / "gateway.yaml").read_text()
    text = text.replace("port: 5020", f"port: {port}").replace("port: 1883", f"port: {free_port()}").replace("9108", str(metrics))
    (tmp_path / "gateway.yaml").write_text(text)
    with process([LINESIDE, "simulate", "plant", "--port", str(port)]):
        wait_for(lambda: listens(port), "the plant")
        yield tmp_path, port, metrics


@contextmanager
def running(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with process([LINESIDE, "run", "gateway.yaml"], folder / "log.txt", cwd=folder) as gateway:
        wait_for(lambda: "running; dashboard" in (folder / "log.txt").read_text() or gateway.poll() is not None, "the gateway")
        assert gateway.poll() is None, (folder / "log.txt").read_text()
        yield gateway


def test_nothing_is_written_until_armed_and_every_write_is_audited_before(plant: tuple[Path, int, int]) -> None:
    folder, _, metrics = plant
    with running(folder):
        wait_for(lambda: inferred(folder) > 2, "predictions", 60)
        assert [target["written"] for target in snapshot(folder)["targets"]] == [0, 0]
        armed = lineside(folder, "command", "arm", "gateway.yaml", "--target", "pump1-out")
        wait_for(lambda: snapshot(folder)["targets"][0]["verified"] > 3, "writes", 30)
        held = lineside(folder, "command", "hold", "gateway.yaml", "--target", "pump1-out")
        state = {target["name"]: target["state"] for target in snapshot(folder)["targets"]}
        released = lineside(folder, "command", "release", "gateway.yaml", "--target", "pump2-out")
        text = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics").read().decode()
        health = lineside(folder, "status", "gateway.yaml")

    assert armed.returncode == held.returncode == 0
    assert state == {"pump1-out": "HELD", "pump2-out": "OFF"}
    assert released.returncode == 2
    assert "nothing to release" in released.stderr
    assert 'lineside_predictions_total{model="bearing",outcome="inferred"}' in text
    # The broker is away: the gateway says so instead of looking well.
    assert health.returncode == 1
    assert "broker" in health.stdout
    records = list(read(folder / "state" / "audit.jsonl"))
    kinds = [record["kind"] for record in records]
    assert kinds.index("command") < kinds.index("write")
    assert not any(record["body"].get("target") == "pump2-out" for record in records if record["kind"] == "write")


def test_a_reload_of_a_bad_file_keeps_the_old_one_and_a_good_one_keeps_what_is_armed(plant: tuple[Path, int, int]) -> None:
    folder, _, _ = plant
    file = folder / "gateway.yaml"
    good = file.read_text()
    with running(folder):
        wait_for(lambda: inferred(folder) > 2, "predictions", 60)
        lineside(folder, "command", "arm", "gateway.yaml")
        file.write_text(good.replace("unit: l/min", "unit: l/mni", 1))
        bad = lineside(folder, "reload", "gateway.yaml")
        still = snapshot(folder)
        file.write_text(good.replace("holding 1100", "holding 1200"))
        reloaded = lineside(folder, "reload", "gateway.yaml")
        wait_for(lambda: inferred(folder) > 2, "predictions after the reload", 60)
        after = snapshot(folder)

    assert bad.returncode == 2
    assert "did you mean 'l/min'?" in bad.stderr
    assert "the old configuration stays in service" in bad.stderr
    assert any(alarm["condition"]["kind"] == "reload refused" for alarm in still["alarms"])
    assert reloaded.returncode == 0, reloaded.stderr
    # pump1-out is as it was; pump2-out has moved and must be armed anew.
    assert {target["name"]: target["state"] for target in after["targets"]} == {"pump1-out": "ARMED", "pump2-out": "OFF"}


def test_after_a_restart_the_window_is_refilled_from_history(plant: tuple[Path, int, int]) -> None:
    folder, _, _ = plant
    with running(folder):
        wait_for(lambda: inferred(folder) > 2, "predictions", 60)
    with running(folder):
        wait_for(lambda: inferred(folder) > 2, "predictions after the restart", 30)
        warming = snapshot(folder)["models"][0]["outcomes"].get("warming up", 0)
        states = {target["state"] for target in snapshot(folder)["targets"]}

    # A window is 32 steps for each of two pumps; a cold start would need 62 steps of warm-up.
    assert warming < 62
    assert states == {"OFF"}


def test_two_gateways_on_one_state_folder_are_one_too_many(plant: tuple[Path, int, int]) -> None:
    folder, _, _ = plant
    with running(folder):
        second = lineside(folder, "run", "gateway.yaml")

    assert second.returncode == 2
    assert "another gateway" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("after_s", [0.2, 0.6, 1.5])
def test_a_signal_in_any_state_of_the_start_leaves_nothing_that_hinders_the_next_one(
    plant: tuple[Path, int, int], name: signal.Signals, after_s: float
) -> None:
    folder, _, _ = plant
    with process([LINESIDE, "run", "gateway.yaml"], folder / "log.txt", cwd=folder) as gateway:
        end = time.monotonic() + after_s
        wait_for(lambda: time.monotonic() >= end or gateway.poll() is not None, "the moment")
        gateway.send_signal(name)
        gateway.wait(20)
    text = (folder / "log.txt").read_text()
    assert "Traceback" not in text, text
    with running(folder):
        assert snapshot(folder)["state"] == "running"


def test_a_damaged_history_is_moved_aside_and_said(plant: tuple[Path, int, int]) -> None:
    folder, _, _ = plant
    (folder / "state").mkdir()
    (folder / "state" / "history.db").write_bytes(b"this is no database" * 500)
    with running(folder):
        alarms = snapshot(folder)["alarms"]

    assert any("damaged" in alarm["condition"]["text"] for alarm in alarms)
    assert list((folder / "state").glob("history.damaged-*"))


def test_a_plant_that_goes_and_comes_back_is_lost_and_found_again(tmp_path: Path) -> None:
    port = free_port()
    lineside(tmp_path, "init")
    text = (tmp_path / "gateway.yaml").read_text().replace("port: 5020", f"port: {port}").replace("port: 9108", "port: 0")
    (tmp_path / "gateway.yaml").write_text(text)
    with running(tmp_path):
        wait_for(lambda: any(a["condition"]["kind"] == "unreachable" for a in snapshot(tmp_path)["alarms"]), "the alarm")
        with process([LINESIDE, "simulate", "plant", "--port", str(port)]):
            wait_for(lambda: snapshot(tmp_path)["sources"][0]["good_tags"] == 10, "good tags", 60)
        wait_for(lambda: snapshot(tmp_path)["sources"][0]["good_tags"] == 0, "bad tags", 30)
        with process([LINESIDE, "simulate", "plant", "--port", str(port)]):
            wait_for(lambda: snapshot(tmp_path)["sources"][0]["good_tags"] == 10, "good tags again", 60)
