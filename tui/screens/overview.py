"""The overview: one look, no scrolling."""

from rich.text import Text
from textual.app import ComposeResult, RenderResult
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer

from gateway.core.snapshot import GatewaySnapshot
from tui.drawing import View, overview
from tui.glyphs import Glyphs


class Overview(Widget):
    """Draws the latest snapshot."""

    DEFAULT_CSS = "Overview { height: 1fr; }"
    snapshot: reactive[GatewaySnapshot | None] = reactive(None)
    lost_s: reactive[float | None] = reactive(None)
    paused: reactive[bool] = reactive(default=False)

    def __init__(self, glyphs: Glyphs, *, colour: bool) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._colour = colour

    def render(self) -> RenderResult:
        """All lines at once."""
        view = View(self.size.width, self.size.height, self._glyphs, self.lost_s, self.paused, self._colour)
        return Text("\n").join(overview(self.snapshot, view))


class OverviewScreen(Screen[None]):
    """The overview with the keys that work now."""

    def __init__(self, glyphs: Glyphs, *, colour: bool) -> None:
        super().__init__()
        self.overview = Overview(glyphs, colour=colour)

    def compose(self) -> ComposeResult:
        """One widget above the keys."""
        yield self.overview
        yield Footer(show_command_palette=False)
