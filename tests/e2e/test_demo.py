"""What a new user gets from the first command."""

import re
import socket
import subprocess
import time

import pytest

from tests.e2e.processes import LINESIDE

pytestmark = pytest.mark.timeout(180)


def test_the_headless_demo_ends_by_itself_and_accounts_for_everything() -> None:
    with socket.socket() as taken:
        # A port in use: a free one is chosen and said.
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        started = time.monotonic()
        run = subprocess.run(
            [LINESIDE, "demo", "--headless", "--for", "22s", "--port", str(port), "--broker-port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )

    assert run.returncode == 0, run.stderr
    assert time.monotonic() - started < 90
    assert run.stdout.count(f"({port} is in use)") == 2
    assert re.search(r"\d+ predictions", run.stdout)
    for words in ("balanced", "Forecast error", "Latency", "inference", "read back equal", "confirmed", "golden windows reproduced"):
        assert words in run.stdout, words
    assert "WRONG" not in run.stdout
    rows = re.findall(r"(bearing_temperature|vibration)_\ds\D+\d+\s*│\s*(\d+)\D+([\d.]+)\s*│\s*([\d.]+)", run.stdout)
    assert len(rows) == 4
    assert "Traceback" not in run.stderr


def test_two_demos_at_once_do_not_disturb_each_other() -> None:
    demos = [
        subprocess.Popen([LINESIDE, "demo", "--headless", "--for", "8s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for demo in demos:
        _, errors = demo.communicate(timeout=90)
        assert demo.returncode == 0, errors


def test_ctrl_c_ends_all_of_it_cleanly() -> None:
    demo = subprocess.Popen([LINESIDE, "demo", "--headless"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "warm-up" in line:
            break
    demo.send_signal(2)
    out, errors = demo.communicate(timeout=60)

    assert demo.returncode == 0
    assert "plant, broker and gateway are down" in out
    assert "Traceback" not in errors
