"""The alarm list: acknowledge one, or all that are shown."""

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from gateway.core.condition import Alarm
from tui.drawing import View, alarm_line
from tui.glyphs import Glyphs

if TYPE_CHECKING:
    from tui.app import LinesideApp


class AlarmScreen(Screen[None]):
    """Newest unacknowledged first, as the gateway orders them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "acknowledge", "Acknowledge", id="alarm.acknowledge"),
        Binding("K", "acknowledge_all", "Acknowledge all", id="alarm.acknowledge_all"),
        Binding("escape", "app.pop_screen", "Back", id="alarm.back"),
    ]

    def __init__(self, glyphs: Glyphs, *, colour: bool) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._colour = colour
        self._shown: tuple[Alarm, ...] | None = None

    def compose(self) -> ComposeResult:
        """Title, list, keys."""
        yield Static(" ALARMS", id="title")
        yield OptionList(id="alarms")
        yield Footer(show_command_palette=False)

    def show(self, alarms: tuple[Alarm, ...]) -> None:
        """Show the alarms as they are now; the selection stays on its alarm."""
        if alarms == self._shown or not self.is_mounted:
            return
        self._shown = alarms
        options = self.query_one("#alarms", OptionList)
        selected = options.highlighted_option.id if options.highlighted_option else None
        view = View(max(self.size.width - 6, 40), self.size.height, self._glyphs, colour=self._colour)
        options.clear_options()
        options.add_options([Option(alarm_line(alarm, view), id=alarm.condition.key) for alarm in alarms])
        keys = [alarm.condition.key for alarm in alarms]
        options.highlighted = keys.index(selected) if selected in keys else (0 if keys else None)
        title = f" ALARMS  {len(alarms)}" if alarms else " ALARMS  none"
        self.query_one("#title", Static).update(Text(title))

    async def action_acknowledge(self) -> None:
        """Acknowledge the selected alarm; an active one stays in the list."""
        option = self.query_one("#alarms", OptionList).highlighted_option
        if option is not None and option.id is not None:
            await cast("LinesideApp", self.app).send("ack", option.id)

    async def action_acknowledge_all(self) -> None:
        """Acknowledge every alarm that is shown, one by one, so that none that came meanwhile is among them."""
        for alarm in self._shown or ():
            await cast("LinesideApp", self.app).send("ack", alarm.condition.key)
