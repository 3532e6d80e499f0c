"""The dashboard as a program: keys, a lost link, guarded commands, and an end when its terminal is gone."""

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.errors import TransientError
from gateway.core.snapshot import GatewaySnapshot
from tests.tui.snapshots import SCRIPTED, well
from tests.virtual_clock import VirtualClock
from tui.app import LinesideApp
from tui.glyphs import UNICODE
from tui.screens.alarms import AlarmScreen
from tui.screens.dialogs import ConfirmScreen, HelpScreen


class ScriptedLink:
    """Answers with a snapshot, or not at all; remembers commands."""

    def __init__(self, snapshot: GatewaySnapshot | None) -> None:
        self.present = snapshot
        self.commands: list[tuple[str, str]] = []

    async def snapshot(self) -> GatewaySnapshot:
        if self.present is None:
            raise TransientError("no link")
        return self.present

    async def send(self, kind: str, target: str, **arguments: str) -> str:  # noqa: ARG002 - the link's signature
        self.commands.append((kind, target))
        return "accepted"


def app_of(link: ScriptedLink, *, operator: bool = False, clock: VirtualClock | None = None) -> LinesideApp:
    return LinesideApp(Path("nowhere"), clock or VirtualClock(), operator=operator, link=link, glyphs=UNICODE)


def shows(app: LinesideApp, screen: type[object]) -> bool:
    return isinstance(app.screen, screen)


def picture(app: LinesideApp) -> str:
    return "\n".join(app._overview.overview.render_line(y).text for y in range(app._overview.overview.size.height))


async def test_the_overview_is_there_at_80_by_24() -> None:
    app = app_of(ScriptedLink(SCRIPTED["source lost"]))
    async with app.run_test(size=(80, 24)) as pilot:
        await app.refresh_snapshot()
        await pilot.pause()
        assert "plc-a" in picture(app)
        assert "NEEDS ATTENTION" in picture(app)


async def test_a_lost_link_is_a_state_of_the_picture_and_ends_by_itself() -> None:
    link, clock = ScriptedLink(well()), VirtualClock()
    app = app_of(link, clock=clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.refresh_snapshot()
        link.present = None
        await app.refresh_snapshot()
        await clock.advance(30)
        await app.refresh_snapshot()
        await pilot.pause()
        assert "LINK LOST 30 s" in picture(app)
        link.present = well()
        await app.refresh_snapshot()
        await pilot.pause()
        assert "LINK LOST" not in picture(app)


async def test_a_dashboard_without_a_gateway_says_how_to_start_one() -> None:
    app = app_of(ScriptedLink(None))
    async with app.run_test(size=(80, 24)) as pilot:
        await app.refresh_snapshot()
        await pilot.pause()
        assert "lineside run" in picture(app)


async def test_an_alarm_is_acknowledged_by_its_key() -> None:
    link = ScriptedLink(SCRIPTED["source lost"])
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.refresh_snapshot()
        await pilot.press("a")
        assert isinstance(app.screen, AlarmScreen)
        await app.refresh_snapshot()
        await pilot.press("k")
        await pilot.pause()
    assert link.commands == [("ack", "plc-a/unreachable")]


@pytest.mark.parametrize(("answer", "sent"), [("y", [("hold", "")]), ("n", []), ("escape", [])])
async def test_a_guarded_command_asks_first_and_names_the_change(answer: str, sent: list[tuple[str, str]]) -> None:
    link = ScriptedLink(well())
    app = app_of(link, operator=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.refresh_snapshot()
        await pilot.press("h")
        assert isinstance(app.screen, ConfirmScreen)
        assert "pump1-out: ARMED → HELD" in app.screen._question
        await pilot.press(answer)
        await pilot.pause()
    assert link.commands == sent


async def test_who_only_looks_cannot_command() -> None:
    link = ScriptedLink(well())
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.refresh_snapshot()
        await pilot.press("m", "d", "h", "r")
        assert not isinstance(app.screen, ConfirmScreen)
    assert not link.commands


async def test_pause_holds_the_values_but_neither_clock_nor_alarms() -> None:
    link = ScriptedLink(well())
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.refresh_snapshot()
        await pilot.press("p")
        link.present = replace(SCRIPTED["one alarm"], tags=(), wall_ns=well().wall_ns + 5 * 10**9)
        await app.refresh_snapshot()
        await pilot.pause()
        assert "PAUSED" in picture(app)
        assert "pump1.vibration" in picture(app)
        assert "plc-b" in picture(app)
        assert "22:13:25Z" in picture(app)


async def test_help_explains_and_any_key_closes_it() -> None:
    app = app_of(ScriptedLink(well()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        assert shows(app, HelpScreen)
        await pilot.press("x")
        await pilot.pause()
        assert not shows(app, HelpScreen)


@pytest.mark.parametrize("name", ["well", "source lost"])
def test_the_picture_is_the_one_we_agreed_on(name: str, snap_compare: object) -> None:
    app = app_of(ScriptedLink(SCRIPTED[name]))
    app.animation_level = "none"
    assert snap_compare(app, terminal_size=(80, 24))  # type: ignore[operator]  # the plug-in has no types
