"""The overview: one look, no scrolling."""

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from tui.canvas import Canvas
from tui.drawing import overview
from tui.glyphs import Glyphs
from tui.view import Picture


class OverviewScreen(Screen[None]):
    """The overview with the keys that work now."""

    def __init__(self, glyphs: Glyphs, *, colour: bool) -> None:
        super().__init__()
        self.canvas = Canvas(overview, glyphs, colour=colour)

    def compose(self) -> ComposeResult:
        """One widget above the keys."""
        yield self.canvas
        yield Footer(show_command_palette=False, compact=True)

    def show(self, picture: Picture) -> None:
        """Draw what is known now."""
        self.canvas.picture = picture
