"""The terminal's end, and its lack of colours: what Textual leaves to the program."""

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_LOOK_MS = 500
_PATIENCE_S = 2.0
_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class Colourless(LineFilter):
    """Takes every colour out and leaves weight and reverse: NO_COLOR means none, not grey."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's signature
        """Lines without colours."""
        return [Segment(text, _plain(style) if style else None, control) for text, style, control in segments]


def _plain(style: Style) -> Style:
    return Style(bold=style.bold, reverse=style.reverse, underline=style.underline, meta=style.meta)


@contextlib.contextmanager
def leaving(leave: Callable[[], None], fileno: int = 0) -> Iterator[None]:
    """Call `leave` when the process is asked to end or its terminal is gone; must be entered on the event loop.

    A terminal that has hung up reads as an endless end of file, on which Textual's reader spins, and writes to it may block for ever.
    So a thread waits for the hang-up itself, and where leaving takes too long, it ends the process: the dashboard owns nothing.
    """
    loop, over = asyncio.get_running_loop(), threading.Event()
    thread = threading.Thread(target=_watch, args=(loop, leave, over, fileno), name="terminal", daemon=True)
    thread.start()
    for number in _SIGNALS:
        loop.add_signal_handler(number, leave)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        # The last drawing may still block: the thread looks on until the terminal is seen to be well or the process is gone.
        over.set()


def _watch(loop: asyncio.AbstractEventLoop, leave: Callable[[], None], over: threading.Event, fileno: int) -> None:
    terminal = select.poll()
    terminal.register(fileno, 0)  # hang-up and error are reported without being asked for
    while not terminal.poll(_LOOK_MS):
        if over.is_set():
            return
    with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
        loop.call_soon_threadsafe(leave)
    threading.Event().wait(_PATIENCE_S)
    os._exit(0)
