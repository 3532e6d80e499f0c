"""Real counterparts as child processes: started, waited for, and ended."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LINESIDE = str(Path(sys.executable).parent / "lineside")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    """Wait for a condition under a deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {deadline_s} s")
        time.sleep(0.02)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def process(command: list[str], out: Path | None = None, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that has ended when the block has. Its standard input stays open until then."""
    target: IO[bytes] | int = out.open("wb") if out is not None else subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=target, stderr=subprocess.STDOUT if out is not None else None, cwd=cwd)
    try:
        yield child
    finally:
        if child.stdin is not None:
            child.stdin.close()
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if out is not None and not isinstance(target, int):
            target.close()


@contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    """A real broker on a free port."""
    port = free_port()
    configuration = folder / "mosquitto.conf"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    executable = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin") or "mosquitto"
    with process([executable, "-c", str(configuration)], folder / "mosquitto.log"):
        wait_for(lambda: listens(port), "mosquitto")
        yield port


def compiled(source: Path, folder: Path) -> Path:
    """A C program linked with libmodbus."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libmodbus"], check=True, capture_output=True, text=True).stdout.split()
    out = folder / source.stem
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-o", str(out), str(source), *flags], check=True)
    return out
