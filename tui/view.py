"""What there is to draw, on how much room, and the few moves every part of the drawing needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from gateway.core.snapshot import GatewaySnapshot
from tui.glyphs import Glyphs, printable

DIM = "grey58"
PLAIN = "grey74"
VALUE = "grey93"


@dataclass(frozen=True, slots=True)
class Picture:
    """What the dashboard knows.

    Attributes:
        snapshot: The last answer; None before the first.
        lost_s: Time since that answer if the link is lost, else None.
        fault: Why the link is lost.
        remedy: What to do about it.
        paused: Whether the values stand still.
        message: Answer to the last command, for some seconds.
    """

    snapshot: GatewaySnapshot | None = None
    lost_s: float | None = None
    fault: str = ""
    remedy: str = ""
    paused: bool = False
    message: str = ""

    @property
    def live(self) -> bool:
        """Whether the values may be taken for what is so now."""
        return self.lost_s is None


@dataclass(frozen=True, slots=True)
class View:
    """Where it is drawn.

    Attributes:
        width: Columns.
        height: Lines.
        glyphs: Shapes.
        colour: Whether colours may be used.
    """

    width: int
    height: int
    glyphs: Glyphs
    colour: bool = True

    def style(self, style: str) -> str:
        """A style; without colours only its weight stays."""
        return style if self.colour else " ".join(word for word in style.split() if word in ("bold", "reverse"))

    def text(self, text: str, style: str = PLAIN) -> Text:
        """A line of one style."""
        return Text(text, style=self.style(style))

    @property
    def rule(self) -> Text:
        """A line across."""
        return self.text(self.glyphs.rule * self.width, DIM)

    def fit(self, line: Text) -> Text:
        """The line, printable and no longer than the screen is wide."""
        line.plain = printable(line.plain, self.glyphs)
        if line.cell_len > self.width:
            cut = self.glyphs.ellipsis[: self.width]
            line.truncate(self.width - len(cut), overflow="crop")
            line.append(cut)
        return line


def first_fitting(variants: Sequence[str], width: int) -> str:
    """The first, most telling text that fits; the last one cut if none does."""
    return next((text for text in variants if len(text) <= width), variants[-1][: max(width, 0)])


def shorten(name: str, width: int, glyphs: Glyphs) -> str:
    """A name that fits; its beginning and its end, which tell it from its neighbours, both stay."""
    if len(name) <= width:
        return name
    kept = width - len(glyphs.ellipsis)
    if kept < 2:
        return name[: max(width, 0)]
    return f"{name[: kept - kept // 2]}{glyphs.ellipsis}{name[-(kept // 2) :]}"


def duration(seconds: float) -> str:
    """A length of time as people say it: 39 s, 12 min, 5 h 10 min, 3 d 4 h."""
    whole = int(max(seconds, 0.0))
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours and days < 10 else f"{days} d"
