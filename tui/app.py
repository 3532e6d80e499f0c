"""The dashboard: a process of its own on the gateway's API. If it ends, the gateway does not notice."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Protocol

from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.theme import Theme

from gateway.core.clock import NS_PER_S, Clock, sleep_s
from gateway.core.errors import TransientError
from gateway.core.snapshot import GatewaySnapshot, TargetStatus
from tui.glyphs import ASCII, UNICODE, Glyphs, can_print_unicode
from tui.link import Link
from tui.screens.alarms import AlarmScreen
from tui.screens.dialogs import ConfirmScreen, HelpScreen
from tui.screens.overview import OverviewScreen
from tui.terminal import Colourless, leaving
from tui.view import Picture

_REFRESH_S = 0.5
_SILENT_S = 3.0  # without an answer for so long nothing is shown as live, whatever the link is doing
_MESSAGE_S = 10.0
_EXPIRY_S = 5.0
# What a command asks of a target: the state it starts from, the state it ends in, what that means for the machine.
_COMMANDS = {
    "arm": (("OFF",), "ARMED", "predictions will be written to the machine"),
    "disarm": (("ARMED", "HELD"), "OFF", "nothing will be written any more, the heartbeat stops"),
    "hold": (("ARMED",), "HELD", "the hold value is written with bad quality, the heartbeat runs on"),
    "release": (("HELD",), "ARMED", "predictions will be written again"),
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

    async def send(self, kind: str, target: str, *, expected: str = "", expires_wall_ns: int = 0, **arguments: str) -> str:
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
    CSS = "Screen { background: $background; } ModalScreen { background: $background 60%; } Footer { background: $panel; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "alarms", "Alarms", id="app.alarms"),
        Binding("p", "pause", "Pause", id="app.pause"),
        Binding("m", "guard('arm')", "Arm", id="guard.arm"),
        Binding("d", "guard('disarm')", "Disarm", id="guard.disarm"),
        Binding("h", "guard('hold')", "Hold", id="guard.hold"),
        Binding("r", "guard('release')", "Release", id="guard.release"),
        Binding("question_mark", "help", "Help", key_display="?", id="app.help"),
        Binding("q,ctrl+c", "quit", "Quit", key_display="q", id="app.quit"),
    ]

    def __init__(
        self, socket: Path, clock: Clock, *, operator: bool = False, link: Source | None = None, glyphs: Glyphs | None = None
    ) -> None:
        super().__init__()
        self._link: Source = link or Link(socket)
        self._clock = clock
        self._operator = operator
        self._glyphs = glyphs or (UNICODE if can_print_unicode() else ASCII)
        self._picture = Picture()
        self._last: GatewaySnapshot | None = None
        self._answered_ns = clock.mono_ns()
        self._said_ns = 0
        colour = not self.no_color  # what Textual read from NO_COLOR
        self._overview = OverviewScreen(self._glyphs, colour=colour)
        self._alarms = AlarmScreen(self._glyphs, colour=colour, acknowledge=self._acknowledge)
        self._terminal = contextlib.ExitStack()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """NO_COLOR means no colour at all; Textual's own filter leaves greys."""
        return [*super().get_line_filters(), Colourless()] if self.no_color else super().get_line_filters()

    async def on_mount(self) -> None:
        """Open the overview and begin to ask."""
        self.register_theme(_QUIET)
        self.theme = "lineside"
        if not self.is_headless:
            self._terminal.enter_context(leaving(self.exit))
        self.install_screen(self._overview, "overview")
        self.install_screen(self._alarms, "alarms")
        await self.push_screen("overview")
        self.run_worker(self._follow(), name="link", group="link")
        self.set_interval(_REFRESH_S, self._age)

    def on_unmount(self) -> None:
        """Let the terminal be."""
        self._terminal.close()

    async def _follow(self) -> None:
        """Ask, draw, wait; a slow gateway is asked again only once it has answered."""
        while True:
            await self.refresh_snapshot()
            await sleep_s(self._clock, _REFRESH_S)

    async def refresh_snapshot(self) -> None:
        """Ask once and draw. No answer is a state of the picture, never an end."""
        try:
            snapshot = await self._link.snapshot()
        except TransientError as error:
            self._show(replace(self._picture, lost_s=self._silent_s, fault=error.text, remedy=error.remedy))
            return
        self._answered_ns = self._clock.mono_ns()
        self._last = snapshot
        shown = self._picture.snapshot
        if self._picture.paused and shown is not None:
            # Paused, the values stand still; clock, alarms, stages and write states never do.
            snapshot = replace(snapshot, tags=shown.tags, models=shown.models)
        self._show(replace(self._picture, snapshot=snapshot, lost_s=None, fault="", remedy=""))

    @property
    def _silent_s(self) -> float:
        return (self._clock.mono_ns() - self._answered_ns) / NS_PER_S

    def _age(self) -> None:
        """Time passes without answers too: what is old must not look live."""
        picture = self._picture
        if picture.message and self._clock.mono_ns() - self._said_ns > _MESSAGE_S * NS_PER_S:
            picture = replace(picture, message="")
        if self._silent_s > _SILENT_S or not picture.live:
            fault = picture.fault or "the gateway does not answer"
            picture = replace(picture, lost_s=self._silent_s, fault=fault, remedy=picture.remedy or "look at its log")
        self._show(picture)

    def _show(self, picture: Picture) -> None:
        if picture == self._picture:
            return
        before, self._picture = self._picture, picture
        self._overview.show(picture)
        self._alarms.show(picture)
        if _offers(before) != _offers(picture):
            self.refresh_bindings()

    def _say(self, message: str) -> None:
        self._said_ns = self._clock.mono_ns()
        self._show(replace(self._picture, message=message))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Commands are offered only to operators, only over a link that is there, and only where they change something."""
        if action == "guard":
            return self._operator and self._picture.live and bool(self._concerned(str(parameters[0])))
        return True

    def _concerned(self, kind: str) -> list[TargetStatus]:
        starts = _COMMANDS[kind][0]
        return [target for target in self._last.targets if _state(target) in starts] if self._last is not None else []

    def action_alarms(self) -> None:
        """Open the alarm list."""
        if self.screen is self._overview:
            self.push_screen("alarms")

    def action_overview(self) -> None:
        """Back to the overview."""
        if self.screen is self._alarms:
            self.pop_screen()

    def action_pause(self) -> None:
        """Let the values stand still, or go on."""
        paused = not self._picture.paused
        values = self._picture.snapshot if paused else self._last
        self._show(replace(self._picture, paused=paused, snapshot=values))

    def action_help(self) -> None:
        """Explain signs and keys."""
        self.push_screen(HelpScreen(self._glyphs))

    def action_guard(self, kind: str) -> None:
        """Ask, then send a command for the write targets it would change."""
        last, concerned = self._last, self._concerned(kind)
        if last is None or not concerned:
            return
        _, end, effect = _COMMANDS[kind]
        changes = [(target.name, f"{target.state} {self._glyphs.arrow} {end}") for target in concerned]
        seen = {target.name: _state(target) for target in concerned}

        async def carry_out(agreed: list[str] | None) -> None:
            if agreed:
                await self._send(kind, [(name, seen[name]) for name in agreed])

        self.push_screen(ConfirmScreen(kind, changes, effect, self._glyphs), carry_out)

    async def _acknowledge(self, keys: Sequence[str]) -> None:
        await self._send("ack", [(key, "") for key in keys])

    async def _send(self, kind: str, targets: Sequence[tuple[str, str]]) -> None:
        """Send a command for each target with the state that was seen; the first that is not accepted ends it, and is shown."""
        answer = ""
        for done, (target, expected) in enumerate(targets):
            try:
                answer = await self._link.send(kind, target, expected=expected, expires_wall_ns=self._expiry_ns())
            except TransientError as error:
                answer = f"{error.text} {self._glyphs.arrow} {error.remedy}"
            if not answer.startswith(("accepted", "verified")):
                answer += f" ({done} of {len(targets)} done)" if len(targets) > 1 else ""
                break
        else:
            answer = f"accepted: {len(targets)} x {kind}" if len(targets) > 1 else answer
        self._say(answer)
        await self.refresh_snapshot()

    def _expiry_ns(self) -> int:
        """A command that is still on its way when the operator has turned away must not act: by the gateway's own clock."""
        if self._last is None:
            return 0
        return self._last.wall_ns + round((self._silent_s + _EXPIRY_S) * NS_PER_S)


def _state(target: TargetStatus) -> str:
    """OFF, ARMED or HELD, without what stands behind it."""
    return target.state.split()[0]


def _offers(picture: Picture) -> tuple[object, ...]:
    """What the keys on offer depend on."""
    snapshot = picture.snapshot
    return (picture.live, tuple(target.state for target in snapshot.targets) if snapshot is not None else None)
