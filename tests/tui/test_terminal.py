"""The dashboard on a real terminal: what it writes there, and that it never outlives it."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from tests.tui.scripted import ScriptedHouse, serving
from tests.tui.snapshots import source_lost
from tui.terminal import Colourless

_COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
_SEQUENCE = re.compile(rb"\x1b\[[0-9;?=<>$]*[A-Za-z]|\x1b[=>]|\x1b[P\]].*?\x1b\\")
_DEADLINE_S = 20.0
_PROGRAM = """
import sys
from pathlib import Path
from gateway.core.clock import SystemClock
from tui.app import LinesideApp
LinesideApp(Path(sys.argv[1]), SystemClock(), operator=True).run(mouse=False)
"""


class Terminal:
    """The other side of a pseudo-terminal: collects what is written and can hang up."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self._master, False)
        self.written = b""
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            self.written += os.read(self._master, 65536)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._master)
        self._more.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(_DEADLINE_S):
            while text not in self.written:
                self._more.clear()
                await self._more.wait()

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def hang_up(self) -> None:
        if self._master >= 0:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)
            self._master = -1


@asynccontextmanager
async def dashboard(
    folder: Path, *, controlling: bool = True, ignoring: bool = False, **environment: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Terminal]]:
    """A dashboard in a process of its own on a terminal, with a gateway behind it, once it has drawn."""

    def prepare() -> None:
        os.setsid()
        if controlling:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if ignoring:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    terminal = Terminal()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG")}
    env = kept | {"TERM": "xterm-256color", "LANG": "C.UTF-8"} | environment
    async with serving(folder, ScriptedHouse(source_lost())) as path:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, str(path)),
            stdin=terminal.slave,
            stdout=terminal.slave,
            stderr=terminal.slave,
            env=env,
            preexec_fn=prepare,
        )
        os.close(terminal.slave)
        try:
            await terminal.until(b"power, cable")
            yield process, terminal
        finally:
            terminal.hang_up()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def ends(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(_DEADLINE_S):
        return await process.wait()


@pytest.mark.parametrize(
    ("controlling", "ignoring"), [(True, False), (True, True), (False, False)], ids=["hang-up", "hang-up ignored", "end of file only"]
)
async def test_it_leaves_when_its_terminal_is_gone(tmp_path: Path, controlling: bool, ignoring: bool) -> None:
    async with dashboard(tmp_path, controlling=controlling, ignoring=ignoring) as (process, terminal):
        terminal.hang_up()
        assert await ends(process) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, b"q", b"\x03"], ids=["SIGTERM", "SIGINT", "q", "Ctrl-C"])
async def test_it_leaves_the_terminal_as_it_found_it(tmp_path: Path, how: signal.Signals | bytes) -> None:
    async with dashboard(tmp_path) as (process, terminal):
        if isinstance(how, bytes):
            terminal.press(how)
        else:
            process.send_signal(how)
        await terminal.until(b"\x1b[?1049l")  # back from the second screen
        await terminal.until(b"\x1b[?25h")  # the cursor is there again
        assert await ends(process) == 0


async def test_with_no_color_not_one_colour_reaches_the_terminal(tmp_path: Path) -> None:
    async with dashboard(tmp_path, NO_COLOR="1") as (_, terminal):
        terminal.press(b"h")
        await terminal.until(b"Effect")
        terminal.press(b"n")
        terminal.press(b"?")
        await terminal.until(b"act soon")
        assert not _COLOUR.findall(terminal.written)
        assert b"\x1b[7m" in terminal.written  # the unacknowledged alarm is still reversed


async def test_without_no_color_there_are_colours_to_be_seen(tmp_path: Path) -> None:
    async with dashboard(tmp_path) as (_, terminal):
        assert _COLOUR.findall(terminal.written)


async def test_a_plain_locale_gets_nothing_but_ascii(tmp_path: Path) -> None:
    async with dashboard(tmp_path, LC_ALL="C") as (_, terminal):
        terminal.press(b"h")
        await terminal.until(b"Effect")
        terminal.press(b"n")
        terminal.press(b"a")
        await terminal.until(b"to acknowledge")
        terminal.press(b"?")
        await terminal.until(b"act soon")
        assert _SEQUENCE.sub(b"", terminal.written).isascii()


def test_colours_go_and_weight_and_reverse_stay() -> None:
    styled = Segment("x", Style(color="red", bgcolor="blue", bold=True, reverse=True))
    (plain,) = Colourless().apply([styled], Color(0, 0, 0))

    assert plain.text == "x"
    assert plain.style is not None
    assert (plain.style.color, plain.style.bgcolor, plain.style.bold, plain.style.reverse) == (None, None, True, True)
    assert Colourless().apply([Segment("x")], Color(0, 0, 0)) == [Segment("x")]
