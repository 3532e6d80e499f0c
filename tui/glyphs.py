"""What a terminal can show: shapes, bars and colours, with plain substitutes."""

import locale
import os
import sys
from dataclasses import dataclass

from gateway.core.condition import Priority


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of shapes.

    Attributes:
        priority: Shape of each alarm priority; a shape, a digit and a word stand together, so no colour is needed.
        trend: Eight levels, lowest first.
        gap: A point of a trend without a good value.
        rule: Horizontal line.
        track: Empty part of a scale.
        ends: Ends of a scale.
        mark: The value on a scale; hollow if it is not good.
        hollow: See `mark`.
        arrow: Before what to do.
    """

    priority: dict[int, str]
    trend: str
    gap: str
    rule: str
    track: str
    ends: tuple[str, str]
    mark: str
    hollow: str
    arrow: str


UNICODE = Glyphs({1: "▲", 2: "◆", 3: "●", 4: "■"}, "▁▂▃▄▅▆▇█", "·", "─", "─", ("├", "┤"), "●", "○", "→")
ASCII = Glyphs({1: "A", 2: "B", 3: "C", 4: "D"}, "_.-~=+*#", " ", "-", "-", ("|", "|"), "O", "o", "->")

# Reserved for what is abnormal; nothing else has a colour.
COLOURS = {Priority.HIGH: "bold red", Priority.MEDIUM: "dark_orange", Priority.LOW: "yellow", Priority.DIAGNOSTIC: "magenta"}


def can_print_unicode() -> bool:
    """Whether standard output takes the shapes; a serial console or LC_ALL=C does not."""
    encoding = (getattr(sys.stdout, "encoding", "") or locale.getpreferredencoding(do_setlocale=False)).lower()
    plain = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    return "utf" in encoding and plain not in ("C", "POSIX")
