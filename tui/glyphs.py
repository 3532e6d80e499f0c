"""What a terminal can show: shapes and bars, and plain substitutes for them."""

import os
import sys
import unicodedata
from dataclasses import dataclass

from gateway.core.condition import Priority

# Reserved for alarms by priority and for what is lost, refused or simulated; what is well has no colour.
# Exact, not by name: a theme may paint "yellow" orange, and then two priorities look alike.
COLOURS = {Priority.HIGH: "bold #ff5555", Priority.MEDIUM: "#ff8700", Priority.LOW: "#ffdf00", Priority.DIAGNOSTIC: "#d787ff"}
# Only for what the operator does: the selection, a pause, the answer to a command.
FOCUS = "#00d7d7"
# Consoles whose fonts lack the shapes, whatever the locale says.
_PLAIN_TERMINALS = ("linux", "vt", "dumb", "ansi", "cons")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of shapes.

    Attributes:
        priority: Shape of each alarm priority; a shape, a digit and a word stand together, so no colour is needed.
        gone: The same shapes in outline: the condition is gone, the alarm is not acknowledged.
        trend: Eight levels, lowest first.
        gap: A point of a trend without a good value.
        rule: Horizontal line.
        track: Empty part of a scale.
        ends: Ends of a scale.
        mark: The value on a scale; hollow if it is not good.
        hollow: See `mark`.
        beyond: The value lies below or above its scale.
        arrow: Before what to do.
        cursor: Before the selected row.
        ellipsis: Where a text was cut.
        units: Spellings of units that need more than ASCII.
        ascii_only: Whether every other character must be replaced.
    """

    priority: dict[int, str]
    gone: dict[int, str]
    trend: str
    gap: str
    rule: str
    track: str
    ends: tuple[str, str]
    mark: str
    hollow: str
    beyond: tuple[str, str]
    arrow: str
    cursor: str
    ellipsis: str
    units: dict[str, str]
    ascii_only: bool


UNICODE = Glyphs(
    priority={1: "▲", 2: "◆", 3: "●", 4: "■"},
    gone={1: "△", 2: "◇", 3: "○", 4: "□"},
    trend="▁▂▃▄▅▆▇█",
    gap="·",
    rule="─",
    track="─",
    ends=("├", "┤"),
    mark="●",
    hollow="○",
    beyond=("◂", "▸"),
    arrow="→",
    cursor="▸",
    ellipsis="…",
    units={"1": "", "degC": "°C", "degF": "°F", "m3/h": "m³/h", "m3/s": "m³/s", "m3": "m³", "m/s2": "m/s²", "um": "µm", "N.m": "N·m"},
    ascii_only=False,
)
ASCII = Glyphs(
    priority={1: "A", 2: "B", 3: "C", 4: "D"},
    gone={1: "a", 2: "b", 3: "c", 4: "d"},
    trend="_.-~=+*#",
    gap=" ",
    rule="-",
    track="-",
    ends=("|", "|"),
    mark="O",
    hollow="o",
    beyond=("<", ">"),
    arrow="->",
    cursor=">",
    ellipsis="..",
    units={"1": ""},
    ascii_only=True,
)


def can_print_unicode() -> bool:
    """Whether the terminal takes the shapes: its locale is UTF-8, and it is no text console."""
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or "C"
    encoding = getattr(sys.__stderr__, "encoding", None) or "ascii"
    shapes = not os.environ.get("TERM", "dumb").startswith(_PLAIN_TERMINALS)
    return shapes and "utf" in locale.lower() and "utf" in encoding.lower()


def printable(text: str, glyphs: Glyphs) -> str:
    """The text with as many characters, none of which moves the cursor or is unknown to the terminal.

    Names and messages come from devices and files: an escape sequence among them must not reach the terminal.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_one(character, glyphs) for character in text)


def _one(character: str, glyphs: Glyphs) -> str:
    if not character.isprintable():
        return " "
    if not glyphs.ascii_only or character.isascii():
        return character
    plain = unicodedata.normalize("NFKD", character)[:1]
    return plain if plain.isascii() and plain.isprintable() else "_"
