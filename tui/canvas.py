"""The one widget of the dashboard: draws lines that a pure function makes."""

from collections.abc import Callable

from rich.text import Text
from textual.app import RenderResult
from textual.reactive import reactive
from textual.widget import Widget

from tui.glyphs import Glyphs
from tui.view import Picture, View


class Canvas(Widget):
    """Draws the picture whenever it or the size has changed.

    Args:
        draw: Makes the lines.
        glyphs: Shapes.
        colour: Whether colours may be used.
    """

    DEFAULT_CSS = "Canvas { height: 1fr; }"
    picture: reactive[Picture] = reactive(Picture)

    def __init__(self, draw: Callable[[Picture, View], list[Text]], glyphs: Glyphs, *, colour: bool) -> None:
        super().__init__()
        self._draw = draw
        self._glyphs = glyphs
        self._colour = colour

    def render(self) -> RenderResult:
        """All lines at once."""
        view = View(self.size.width, self.size.height, self._glyphs, self._colour)
        return Text("\n", no_wrap=True).join(self._draw(self.picture, view))
