"""The alarm list: acknowledge one, or all that are on the page."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from gateway.core.condition import Alarm
from tui.alarm_list import UNACKNOWLEDGED, alarm_page, place_of
from tui.canvas import Canvas
from tui.glyphs import Glyphs
from tui.view import Picture, View


class AlarmScreen(Screen[None]):
    """Newest unacknowledged first, as the gateway orders them; the selection stays on its alarm.

    Args:
        glyphs: Shapes.
        colour: Whether colours may be used.
        acknowledge: Sends the acknowledgement of alarms by their keys.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "acknowledge", "Acknowledge", id="alarm.acknowledge"),
        Binding("K", "acknowledge_page", "Ack page", id="alarm.acknowledge_page"),
        Binding("up", "move(-1)", "Up", show=False, id="alarm.up"),
        Binding("down", "move(1)", "Down", show=False, id="alarm.down"),
        Binding("pageup", "turn(-1)", "Page up", show=False, id="alarm.page_up"),
        Binding("pagedown", "turn(1)", "Page down", show=False, id="alarm.page_down"),
        Binding("home", "move(-100000)", "First", show=False, id="alarm.first"),
        Binding("end", "move(100000)", "Last", show=False, id="alarm.last"),
        Binding("escape,a", "app.overview", "Back", key_display="esc", id="alarm.back"),
    ]

    def __init__(self, glyphs: Glyphs, *, colour: bool, acknowledge: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        super().__init__()
        self._selected = ""
        self._page: tuple[Alarm, ...] = ()
        self._acknowledge = acknowledge
        self.canvas = Canvas(self._draw, glyphs, colour=colour)

    def compose(self) -> ComposeResult:
        """One widget above the keys."""
        yield self.canvas
        yield Footer(show_command_palette=False, compact=True)

    def show(self, picture: Picture) -> None:
        """Draw what is known now."""
        self.canvas.picture = picture

    def _draw(self, picture: Picture, view: View) -> list[Text]:
        lines, self._page = alarm_page(picture, view, self._selected)
        return lines

    @property
    def _alarms(self) -> tuple[Alarm, ...]:
        snapshot = self.canvas.picture.snapshot
        return snapshot.alarms if snapshot is not None else ()

    def action_move(self, steps: int) -> None:
        """Select another alarm."""
        alarms = self._alarms
        if alarms:
            place = min(max(place_of(alarms, self._selected) + steps, 0), len(alarms) - 1)
            self._selected = alarms[place].condition.key
            self.canvas.refresh()

    def action_turn(self, pages: int) -> None:
        """Turn the page."""
        self.action_move(pages * max(len(self._page), 1))

    def action_acknowledge(self) -> None:
        """Acknowledge the selected alarm; an active one stays in the list."""
        alarms = self._alarms
        if alarms:
            self._send([alarms[place_of(alarms, self._selected)]])

    def action_acknowledge_page(self) -> None:
        """Acknowledge every alarm on the page, by its key, so that none that came meanwhile is among them."""
        self._send(self._page)

    def _send(self, alarms: Sequence[Alarm]) -> None:
        keys = [alarm.condition.key for alarm in alarms if alarm.state in UNACKNOWLEDGED]
        if keys:
            self.run_worker(self._acknowledge(keys), name="acknowledge", group="command")
