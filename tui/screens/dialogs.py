"""Help, and the question before a command."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.glyphs import Glyphs, printable

_HELP = """\
Grey is well. Colour or heavy type: something is not.
  {0}1 act now    {1}2 act soon    {2}3 look at it
  reversed: not acknowledged   {3}1: gone by itself

Beside a value   ~ uncertain      ? bad or not live
Beside a stage   F failure        S out of specification
                 C function check M maintenance required
Writes           ARMED predictions go to the machine
                 HELD  the hold value does   OFF nothing

a alarms: k acknowledges one, K the page, arrows move
p pause: values stand still, alarms and clock do not
m arm  d disarm  h hold  r release  (with --operator)
q or Ctrl-C leaves; the gateway goes on   any key: back"""
_MOST_NAMED = 9


class HelpScreen(ModalScreen[None]):
    """What the signs and keys mean."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen Static { width: auto; height: auto; padding: 0 1; border: round $foreground; }
    HelpScreen.ascii Static { border: ascii $foreground; }
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(classes="ascii" if glyphs.ascii_only else None)
        self._text = _HELP.format(glyphs.priority[1], glyphs.priority[2], glyphs.priority[3], glyphs.gone[1])

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(self._text, markup=False)

    def on_key(self, event: Key) -> None:
        """Any key closes it, and does nothing else."""
        event.stop()
        self.dismiss()


class ConfirmScreen(ModalScreen[list[str]]):
    """Names each target, its change and the effect; only `y` or, of several targets, one's digit agrees.

    Args:
        kind: The command.
        changes: Target and its change (`ARMED -> HELD`), in order.
        effect: What it means for the machine.
        glyphs: Shapes.
    """

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen Vertical { width: auto; max-width: 100%; height: auto; padding: 0 1; border: heavy $foreground; }
    ConfirmScreen.ascii Vertical { border: ascii $foreground; }
    ConfirmScreen Static { width: auto; max-width: 76; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "agree", "Yes", id="confirm.yes"),
        Binding("n,escape,q,ctrl+c", "refuse", "No", priority=True, id="confirm.no"),
    ]

    def __init__(self, kind: str, changes: Sequence[tuple[str, str]], effect: str, glyphs: Glyphs) -> None:
        super().__init__(classes="ascii" if glyphs.ascii_only else None)
        self._names = [name for name, _ in changes]
        several = len(changes) > 1
        named = [f"  {f'{i}  ' if several else ''}{name}: {change}" for i, (name, change) in enumerate(changes[:_MOST_NAMED], 1)]
        more = [f"     and {len(changes) - _MOST_NAMED} more"] if len(changes) > _MOST_NAMED else []
        what = f"all {len(changes)} write targets" if several else self._names[0]
        lines = [f"{kind.upper()} {what}?", "", *named, *more, "", f"Effect: {effect}."]
        self.question = "\n".join(printable(line, glyphs) for line in lines)
        only = f"      1-{len(named)}  only that one" if several else ""
        self._keys = f"\ny  do it{only}      n  leave it as it is"

    def compose(self) -> ComposeResult:
        """Question and keys."""
        with Vertical():
            yield Static(self.question, markup=False)
            yield Static(self._keys, markup=False)

    def on_key(self, event: Key) -> None:
        """A digit agrees for one of several targets."""
        if len(self._names) > 1 and event.key.isdigit() and 1 <= int(event.key) <= min(len(self._names), _MOST_NAMED):
            event.stop()
            self.dismiss([self._names[int(event.key) - 1]])

    def action_agree(self) -> None:
        """Agree for all that are named."""
        self.dismiss(self._names)

    def action_refuse(self) -> None:
        """Leave everything as it is."""
        self.dismiss([])
