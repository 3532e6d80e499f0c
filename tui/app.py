"""The dashboard: a process of its own on the gateway's API. If it ends, the gateway does not notice."""

import os
from pathlib import Path
from typing import ClassVar, Protocol

from textual.app import App
from textual.binding import Binding, BindingType
from textual.theme import Theme

from gateway.core.clock import NS_PER_S, Clock
from gateway.core.errors import TransientError
from gateway.core.snapshot import GatewaySnapshot
from tui.glyphs import ASCII, UNICODE, Glyphs, can_print_unicode
from tui.link import Link
from tui.screens.alarms import AlarmScreen
from tui.screens.dialogs import ConfirmScreen, HelpScreen
from tui.screens.overview import OverviewScreen

_REFRESH_S = 0.5
_EFFECTS = {
    "arm": "predictions will be written to the machine",
    "disarm": "nothing will be written any more, the heartbeat stops",
    "hold": "the hold value is written with bad quality, the heartbeat runs on",
    "release": "predictions will be written again",
}
_QUIET = Theme(
    name="lineside",
    primary="#8a8a8a",
    secondary="#8a8a8a",
    accent="#00afaf",
    foreground="#bcbcbc",
    background="#262626",
    surface="#2b2b2b",
    panel="#303030",
    success="#8a8a8a",
    warning="#d7af00",
    error="#d70000",
    dark=True,
)


class Source(Protocol):
    """Where snapshots come from and commands go."""

    async def snapshot(self) -> GatewaySnapshot:
        """The present state."""
        ...

    async def send(self, kind: str, target: str, **arguments: str) -> str:
        """Send a command."""
        ...


class LinesideApp(App[None]):
    """Draws at most twice a second, however fast data arrives.

    Args:
        socket: The API's unix socket.
        clock: For the time since the link was lost.
        operator: Whether commands that change what is written may be given.
        link: Another source of snapshots, for tests and pictures.
        glyphs: Shapes; found out from the terminal if None.
    """

    TITLE = "Lineside"
    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: $background; } Footer { background: $panel; } OptionList { border: none; height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "alarms", "Alarms", id="app.alarms"),
        Binding("p", "pause", "Pause", id="app.pause"),
        Binding("m", "guard('arm')", "Arm", id="guard.arm"),
        Binding("d", "guard('disarm')", "Disarm", id="guard.disarm"),
        Binding("h", "guard('hold')", "Hold", id="guard.hold"),
        Binding("r", "guard('release')", "Release", id="guard.release"),
        Binding("question_mark", "help", "Help", key_display="?", id="app.help"),
        Binding("q", "quit", "Quit", id="app.quit"),
    ]

    def __init__(
        self, socket: Path, clock: Clock, *, operator: bool = False, link: Source | None = None, glyphs: Glyphs | None = None
    ) -> None:
        super().__init__()
        self._link: Source = link or Link(socket)
        self._clock = clock
        self._operator = operator
        self._glyphs = glyphs or (UNICODE if can_print_unicode() else ASCII)
        self._colour = not os.environ.get("NO_COLOR")
        self._paused = False
        self._last: GatewaySnapshot | None = None
        self._lost_ns: int | None = None
        self._start_ns = clock.mono_ns()

    def on_mount(self) -> None:
        """Open the overview and begin to ask."""
        self.register_theme(_QUIET)
        self.theme = "lineside"
        self._overview = OverviewScreen(self._glyphs, colour=self._colour)
        self._alarms = AlarmScreen(self._glyphs, colour=self._colour)
        self.push_screen(self._overview)
        self.set_interval(_REFRESH_S, self._ask)
        self.call_later(self._ask)

    def _ask(self) -> None:
        self.run_worker(self.refresh_snapshot(), name="link", exclusive=True, exit_on_error=False)

    async def refresh_snapshot(self) -> None:
        """Ask once and draw. No answer is a state of the picture, never an end."""
        try:
            snapshot = await self._link.snapshot()
        except TransientError:
            now_ns = self._clock.mono_ns()
            self._lost_ns = self._lost_ns if self._lost_ns is not None else now_ns
            self._overview.overview.lost_s = (now_ns - self._lost_ns) / NS_PER_S
            return
        self._lost_ns = None
        shown = self._overview.overview
        shown.lost_s, shown.paused = None, self._paused
        # Paused, the values stand still; clock and alarms never do.
        if self._paused and shown.snapshot is not None:
            from dataclasses import replace  # noqa: PLC0415 - only here

            shown.snapshot = replace(
                shown.snapshot, wall_ns=snapshot.wall_ns, alarms=snapshot.alarms, state=snapshot.state, loop_delay_ms=snapshot.loop_delay_ms
            )
        else:
            shown.snapshot = snapshot
        first, self._last = self._last is None, snapshot
        if first:
            self.refresh_bindings()
        self._alarms.show(snapshot.alarms)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Commands are not offered to those who only look, nor where there is nothing to write to."""
        if action == "guard":
            return self._operator and self._last is not None and bool(self._last.targets)
        return True

    def action_alarms(self) -> None:
        """Open the alarm list."""
        if self.screen is self._overview:
            self.push_screen(self._alarms)

    def action_pause(self) -> None:
        """Let the values stand still, or go on."""
        self._paused = not self._paused
        self._ask()

    def action_help(self) -> None:
        """Explain signs and keys."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_guard(self, kind: str) -> None:
        """Ask, then send a command for all write targets."""
        if self._last is None or isinstance(self.screen, ConfirmScreen):
            return
        arrow = self._glyphs.arrow
        after = {"arm": "ARMED", "disarm": "OFF", "hold": "HELD", "release": "ARMED"}[kind]
        changes = "\n".join(f"  {target.name}: {target.state} {arrow} {after}" for target in self._last.targets)
        question = f"{kind.upper()} all write targets?\n\n{changes}\n\nEffect: {_EFFECTS[kind]}."

        async def carry_out(agreed: bool | None) -> None:
            if agreed:
                await self.send(kind, "")

        self.push_screen(ConfirmScreen(question), carry_out)

    async def send(self, kind: str, target: str) -> None:
        """Send a command and show the answer."""
        try:
            answer = await self._link.send(kind, target)
        except TransientError as error:
            answer = str(error)
        self.notify(answer, markup=False)
        self._ask()
