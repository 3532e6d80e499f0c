"""The overview says what matters at every size, without colour and without Unicode."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.condition import AlarmState
from tests.tui.snapshots import SCRIPTED, well
from tui.drawing import View, overview, scale, trend
from tui.glyphs import ASCII, COLOURS, UNICODE, Glyphs

SIZES = [(20, 5), (60, 20), (80, 24), (120, 40), (200, 50)]


def text(name: str, size: tuple[int, int] = (80, 23), *, glyphs: Glyphs = UNICODE, lost_s: float | None = None) -> str:
    return "\n".join(line.plain for line in overview(SCRIPTED[name], View(*size, glyphs, lost_s)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCRIPTED)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_picture_fits_its_terminal(name: str, size: tuple[int, int], glyphs: Glyphs) -> None:
    lines = overview(SCRIPTED[name], View(*size, glyphs))

    assert 0 < len(lines) <= size[1]
    assert all(line.cell_len <= size[0] for line in lines)


@given(st.integers(1, 220), st.integers(1, 70), st.sampled_from(sorted(SCRIPTED)), st.none() | st.floats(0, 1e5))
def test_no_size_breaks_the_drawing(width: int, height: int, name: str, lost_s: float | None) -> None:
    lines = overview(SCRIPTED[name], View(width, height, UNICODE, lost_s))

    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_plain_glyphs_are_plain(name: str) -> None:
    assert text(name, (120, 40), glyphs=ASCII).isascii()


def test_when_all_is_well_nothing_has_a_reserved_colour() -> None:
    reserved = {colour for style in COLOURS.values() for colour in style.split()} - {"bold"}
    styles = " ".join(str(span.style) for line in overview(well(), View(80, 23, UNICODE)) for span in line.spans)
    styles += " ".join(str(line.style) for line in overview(well(), View(80, 23, UNICODE)))

    assert not reserved & set(styles.split())


def test_without_colour_there_is_none() -> None:
    for line in overview(SCRIPTED["flood"], View(80, 23, UNICODE, colour=False)):
        assert {str(span.style) for span in line.spans} | {str(line.style)} <= {"", "bold", "reverse", "bold reverse"}


def test_an_alarm_has_shape_digit_state_component_and_what_to_do() -> None:
    picture = text("one alarm", (120, 40))

    assert "▲1 UNACK" in picture
    assert "plc-b" in picture
    assert "→ check power, cable and address" in picture
    assert "UNACK 1" in picture


def test_a_flood_leaves_room_for_values_and_says_how_many_are_hidden() -> None:
    picture = text("flood")

    assert "of 40 shown" in picture
    assert "pump1.bearing_temperature" in picture


def test_a_value_that_is_not_good_is_marked_with_its_reason_and_age() -> None:
    narrow, wide = text("source lost"), text("source lost", (120, 40))

    assert "?    71.40 degC" in narrow
    assert "BAD 39 s" in narrow
    assert "bad, connection lost 39 s" in wide
    assert "~    4.213" in narrow


def test_a_lost_link_is_said_at_once_and_no_value_looks_live() -> None:
    picture = text("well", lost_s=12.0)

    assert "LINK LOST 12 s" in picture
    assert picture.count("not live") >= 3


def test_the_smallest_terminal_still_says_whether_all_is_well() -> None:
    assert "all well" in text("well", (20, 5))
    assert "alarm" in text("flood", (20, 5))
    assert "NO LINK" in text("well", (20, 5), lost_s=1.0)


def test_a_simulation_says_so() -> None:
    assert "SIMULATED PLANT" in text("simulated")


def test_an_acknowledged_alarm_stays_until_it_is_gone() -> None:
    alarm = SCRIPTED["one alarm"].alarms[0]
    snapshot = replace(well(), alarms=(replace(alarm, state=AlarmState.ACKNOWLEDGED),))
    picture = "\n".join(line.plain for line in overview(snapshot, View(80, 23, UNICODE)))

    assert "ACK" in picture
    assert "plc-b" in picture


def test_scales_and_trends_keep_their_width_and_show_gaps() -> None:
    assert scale(50, 0, 100, UNICODE, good=True) == "├─────●─────┤"
    assert scale(500, 0, 100, UNICODE, good=False) == "├──────────○┤"
    assert len(scale(None, None, None, UNICODE, good=True)) == 13
    assert trend([1, None, 2, 3], None, None, UNICODE) == "▁·▅█"
    assert trend([50.0, 50.1], 0, 100, UNICODE) in ("▄▅", "▅▅", "▄▄")
