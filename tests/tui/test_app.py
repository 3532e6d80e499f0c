"""The dashboard as a program: keys, a lost link, guarded commands, and the pictures we agreed on."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gateway.core.condition import AlarmState
from gateway.core.snapshot import GatewaySnapshot
from tests.tui.scripted import ScriptedLink
from tests.tui.snapshots import SCRIPTED, well
from tests.virtual_clock import VirtualClock
from tui.app import LinesideApp
from tui.canvas import Canvas
from tui.glyphs import ASCII, UNICODE, Glyphs
from tui.screens.alarms import AlarmScreen
from tui.screens.dialogs import ConfirmScreen, HelpScreen


def app_of(link: ScriptedLink, *, operator: bool = False, clock: VirtualClock | None = None, glyphs: Glyphs = UNICODE) -> LinesideApp:
    return LinesideApp(Path("nowhere"), clock or VirtualClock(), operator=operator, link=link, glyphs=glyphs)


async def settled(app: LinesideApp, pilot: Pilot[None]) -> None:
    await pilot.pause()
    await app.refresh_snapshot()
    await pilot.pause()


def picture(app: LinesideApp) -> str:
    canvas = app.screen.query_one(Canvas)
    return "\n".join(canvas.render_line(y).text for y in range(canvas.size.height))


def shows(app: LinesideApp, screen: type[object]) -> bool:
    return isinstance(app.screen, screen)


def keys(app: LinesideApp) -> set[str]:
    return {active.binding.description for active in app.screen.active_bindings.values() if active.binding.show and active.enabled}


async def test_the_overview_is_there_at_80_by_24() -> None:
    app = app_of(ScriptedLink(SCRIPTED["source lost"]))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        assert "plc-a" in picture(app)
        assert "NEEDS ATTENTION" in picture(app)


async def test_it_asks_again_by_itself() -> None:
    link, clock = ScriptedLink(well()), VirtualClock()
    app = app_of(link, clock=clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        link.present = SCRIPTED["one alarm"]
        await clock.advance(0.5)
        await pilot.pause()
        assert "plc-b" in picture(app)


async def test_a_lost_link_is_a_state_of_the_picture_and_ends_by_itself() -> None:
    link, clock = ScriptedLink(well()), VirtualClock()
    app = app_of(link, clock=clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        link.present = None
        await clock.advance(30)
        await pilot.pause()
        assert "LINK LOST 30 s" in picture(app)
        link.present = well()
        await clock.advance(0.5)
        await pilot.pause()
        assert "LINK LOST" not in picture(app)


async def test_a_gateway_that_only_keeps_silent_is_not_taken_for_live() -> None:
    link, clock = ScriptedLink(well()), VirtualClock()
    app = app_of(link, clock=clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        link.silent = asyncio.Event()
        await clock.advance(5)
        app._age()
        await pilot.pause()
        assert "LINK LOST 5 s" in picture(app)
        link.silent.set()
        link.silent = None
        await settled(app, pilot)
        assert "LINK LOST" not in picture(app)


async def test_a_slow_gateway_is_asked_again_only_once_it_has_answered() -> None:
    link, clock = ScriptedLink(SCRIPTED["one alarm"], silent=asyncio.Event()), VirtualClock()
    app = app_of(link, clock=clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await clock.advance(2)
        assert link.silent is not None
        link.silent.set()
        await pilot.pause()
        await pilot.pause()
        assert "plc-b" in picture(app)


async def test_a_dashboard_without_a_gateway_says_what_to_do() -> None:
    app = app_of(ScriptedLink(None))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        assert "is the gateway running?" in picture(app)


async def test_an_alarm_is_acknowledged_by_its_key_and_the_answer_is_shown() -> None:
    link = ScriptedLink(SCRIPTED["source lost"])
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("a")
        assert isinstance(app.screen, AlarmScreen)
        await pilot.press("k")
        await settled(app, pilot)
        assert link.commands == [("ack", "plc-a/unreachable", "")]
        assert "accepted: done" in picture(app)


async def test_the_alarms_open_as_often_as_they_are_asked_for_and_are_there_at_once() -> None:
    app = app_of(ScriptedLink(SCRIPTED["flood"]))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        for back in ("escape", "a", "escape"):
            await pilot.press("a")
            await pilot.pause()
            assert "plc-0" in picture(app)
            await pilot.press(back)
            await pilot.pause()
            assert "SOURCES" in picture(app)


async def test_the_selection_stays_on_its_alarm_when_others_come_and_go() -> None:
    link = ScriptedLink(SCRIPTED["flood"])
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("a", "down", "down", "down")
        link.present = replace(SCRIPTED["flood"], alarms=SCRIPTED["flood"].alarms[2:])
        await settled(app, pilot)
        await pilot.press("k")
        await pilot.pause()
        await pilot.press("end", "k")
        await pilot.pause()
        await pilot.press("home", "pagedown", "pageup", "up", "k")
        await pilot.pause()

    assert [target for _, target, _ in link.commands] == ["plc-3/unreachable", "plc-39/unreachable", "plc-2/unreachable"]


async def test_a_page_is_acknowledged_by_what_is_on_it_and_only_what_waits_for_it() -> None:
    alarms = SCRIPTED["flood"].alarms
    link = ScriptedLink(replace(SCRIPTED["flood"], alarms=(replace(alarms[0], state=AlarmState.ACKNOWLEDGED), *alarms[1:])))
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("a")
        await pilot.pause()
        shown = picture(app).count("UNACK 22:")
        await pilot.press("K")
        await settled(app, pilot)
        assert f"accepted: {shown} x ack" in picture(app)

    assert len(link.commands) == shown < 40
    assert ("ack", "plc-0/unreachable", "") not in link.commands


async def test_acknowledging_nothing_sends_nothing() -> None:
    link = ScriptedLink(well())
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("a", "k", "K", "down", "pagedown")
        await pilot.pause()
        assert "nothing is wrong" in picture(app)

    assert not link.commands


@pytest.mark.parametrize(
    ("answer", "sent"), [("y", [("hold", "pump1-out", "ARMED")]), ("n", []), ("escape", []), ("q", []), ("enter", []), ("1", [])]
)
async def test_a_guarded_command_asks_first_and_names_the_change(answer: str, sent: list[tuple[str, str, str]]) -> None:
    link = ScriptedLink(well())
    app = app_of(link, operator=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("h")
        assert isinstance(app.screen, ConfirmScreen)
        assert "HOLD pump1-out?" in app.screen.question
        assert "pump1-out: ARMED → HELD" in app.screen.question
        assert "Effect: the hold value is written" in app.screen.question
        await pilot.press(answer)
        await pilot.pause()
        assert app.is_running

    assert link.commands == sent


@pytest.mark.parametrize(("key", "sent"), [("y", ["pump1-out", "pump2-out"]), ("2", ["pump2-out"]), ("3", [])])
async def test_of_several_targets_all_or_one_is_chosen(key: str, sent: list[str]) -> None:
    link = ScriptedLink(SCRIPTED["held"])
    app = app_of(link, operator=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("d", key)
        await pilot.pause()

    assert [target for _, target, _ in link.commands] == sent
    assert {expected for _, _, expected in link.commands} <= {"HELD", "ARMED"}


async def test_a_command_carries_the_state_that_was_seen_and_an_end_by_the_gateways_clock() -> None:
    link, clock = ScriptedLink(well()), VirtualClock(wall_ns=5)
    app = app_of(link, operator=True, clock=clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("d", "y")
        await pilot.pause()

    assert link.commands == [("disarm", "pump1-out", "ARMED")]
    assert link.expiries == [well().wall_ns + 5 * 10**9]


@pytest.mark.parametrize(
    ("answer", "says"),
    [("refused: is HELD, not ARMED", "refused: is HELD, not ARMED (0 of 2 done)"), ("lost", "it may or may not have acted")],
)
async def test_a_command_that_did_not_succeed_is_never_called_done(answer: str, says: str) -> None:
    link = ScriptedLink(SCRIPTED["held"], answer=answer)
    app = app_of(link, operator=True)
    async with app.run_test(size=(100, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("d", "y")
        await pilot.pause()
        assert says in picture(app)

    assert len(link.commands) == 1


async def test_the_answer_goes_away_again() -> None:
    link, clock = ScriptedLink(well()), VirtualClock()
    app = app_of(link, operator=True, clock=clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("h", "y")
        await pilot.pause()
        assert "accepted: done" in picture(app)
        await clock.advance(11)
        app._age()
        await pilot.pause()
        assert "accepted: done" not in picture(app)


@pytest.mark.parametrize(("name", "offered"), [("well", {"Disarm", "Hold"}), ("held", {"Disarm", "Hold", "Release"}), ("empty", set())])
async def test_only_commands_that_change_something_are_offered(name: str, offered: set[str]) -> None:
    app = app_of(ScriptedLink(SCRIPTED[name]), operator=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        assert keys(app) == {"Alarms", "Pause", "Help", "Quit"} | offered


async def test_over_a_lost_link_no_command_is_offered() -> None:
    link = ScriptedLink(well())
    app = app_of(link, operator=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        link.present = None
        await settled(app, pilot)
        await pilot.press("h")
        assert not shows(app, ConfirmScreen)
        assert "Hold" not in keys(app)


async def test_who_only_looks_cannot_command() -> None:
    link = ScriptedLink(SCRIPTED["held"])
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("m", "d", "h", "r", "y")
        assert not shows(app, ConfirmScreen)

    assert not link.commands


async def test_pause_holds_the_values_but_neither_clock_nor_alarms_nor_write_states() -> None:
    link = ScriptedLink(well())
    app = app_of(link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("p")
        held = SCRIPTED["held"].targets[:1]
        link.present = replace(SCRIPTED["one alarm"], tags=(), targets=held, wall_ns=well().wall_ns + 5 * 10**9)
        await settled(app, pilot)
        assert "PAUSED" in picture(app)
        assert "pump1.vibration" in picture(app)
        assert "plc-b" in picture(app)
        assert "HELD" in picture(app)
        assert "22:13:25Z" in picture(app)
        await pilot.press("p")
        await pilot.pause()
        assert "PAUSED" not in picture(app)
        assert "pump1.vibration  " not in picture(app)


async def test_help_explains_and_any_key_only_closes_it() -> None:
    app = app_of(ScriptedLink(well()))
    async with app.run_test(size=(60, 20)) as pilot:
        await settled(app, pilot)
        await pilot.press("question_mark")
        assert shows(app, HelpScreen)
        box = app.screen.query_one("Static").region
        assert box.width <= 60
        assert box.height <= 20
        await pilot.press("q")
        await pilot.pause()
        assert not shows(app, HelpScreen)
        assert app.is_running


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_it_is_left_by_the_keys_people_try(key: str) -> None:
    app = app_of(ScriptedLink(well()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running


Snapshot = Callable[..., bool]
PICTURES: list[tuple[str, tuple[int, int], Glyphs]] = [
    *((name, (80, 24), UNICODE) for name in ("well", "source lost", "flood", "500 tags", "empty", "simulated", "held", "standing still")),
    ("source lost", (60, 20), UNICODE),
    ("source lost", (120, 40), UNICODE),
    ("source lost", (20, 5), UNICODE),
    ("source lost", (80, 24), ASCII),
]


def answered(app: LinesideApp, *pressed: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    async def run(pilot: Pilot[None]) -> None:
        await settled(app, pilot)
        await pilot.press(*pressed)
        await pilot.pause()

    return run


def quiet(snapshot: GatewaySnapshot | None, glyphs: Glyphs = UNICODE, *, operator: bool = False) -> tuple[LinesideApp, ScriptedLink]:
    link = ScriptedLink(snapshot)
    app = app_of(link, glyphs=glyphs, operator=operator)
    app.animation_level = "none"
    return app, link


@pytest.mark.parametrize(
    ("name", "size", "glyphs"),
    PICTURES,
    ids=[f"{name} {size[0]}x{size[1]}{' ascii' * glyphs.ascii_only}" for name, size, glyphs in PICTURES],
)
def test_the_picture_is_the_one_we_agreed_on(name: str, size: tuple[int, int], glyphs: Glyphs, snap_compare: Snapshot) -> None:
    app, _ = quiet(SCRIPTED[name], glyphs)
    assert snap_compare(app, terminal_size=size, run_before=answered(app))


@pytest.mark.parametrize(("name", "pressed"), [("flood", "a"), ("well", "question_mark"), ("held", "d")])
def test_the_other_screens_are_the_ones_we_agreed_on(name: str, pressed: str, snap_compare: Snapshot) -> None:
    app, _ = quiet(SCRIPTED[name], operator=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=answered(app, pressed))


def test_a_lost_link_looks_as_we_agreed_on(snap_compare: Snapshot) -> None:
    app, link = quiet(well())

    async def lose(pilot: Pilot[None]) -> None:
        await answered(app)(pilot)
        link.present = None
        await settled(app, pilot)

    assert snap_compare(app, terminal_size=(80, 24), run_before=lose)


def test_without_colour_the_picture_has_none(monkeypatch: pytest.MonkeyPatch, snap_compare: Snapshot) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, _ = quiet(SCRIPTED["source lost"])
    assert snap_compare(app, terminal_size=(80, 24), run_before=answered(app))
