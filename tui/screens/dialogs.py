"""Help, and the question before a command."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

HELP = """\
LINESIDE OVERVIEW

Grey is well. Colour means that something is not:
  red (1) act now   orange (2) act soon   yellow (3) look at it

Beside a value:  ~ uncertain   ? bad or not live
Beside a stage:  F failure  S out of specification
                 C function check  M maintenance required

a  alarms: k acknowledges one, K all that are shown
p  pause: values stand still, alarms and clock do not
d  disarm all write targets    h  hold    r  release    m  arm
   (only with --operator; each asks first, each is audited)
q  leave; the gateway goes on

Any key closes this."""


class HelpScreen(ModalScreen[None]):
    """What the signs and keys mean."""

    DEFAULT_CSS = (
        "HelpScreen { align: center middle; } HelpScreen Static { width: auto; height: auto; padding: 1 2; border: round $foreground; }"
    )

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(HELP, markup=False)

    def on_key(self) -> None:
        """Any key closes it."""
        self.dismiss()


class ConfirmScreen(ModalScreen[bool]):
    """Names the target, the change and its effect; only `y` agrees.

    Args:
        question: The whole text.
    """

    DEFAULT_CSS = (
        "ConfirmScreen { align: center middle; } "
        "ConfirmScreen Vertical { width: auto; height: auto; padding: 1 2; border: heavy $foreground; } "
        "ConfirmScreen Static { width: auto; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes"),
        Binding("n,escape,q", "answer(False)", "No", id="confirm.no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Question and keys."""
        with Vertical():
            yield Static(self._question, markup=False)
            yield Static("\ny  do it      n  leave it as it is", markup=False)

    def action_answer(self, agreed: bool) -> None:
        """Close with the answer."""
        self.dismiss(agreed)
