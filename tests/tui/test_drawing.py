"""The overview says what matters at every size, without colour and without Unicode."""

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color, ColorType
from rich.text import Text

from gateway.core.condition import AlarmState, Priority
from gateway.core.quality import Ne107
from gateway.core.snapshot import GatewaySnapshot
from tests.tui.snapshots import SCRIPTED, WALL_NS, alarm, model, tag, well
from tui.alarm_list import alarm_page
from tui.drawing import overview
from tui.glyphs import ASCII, COLOURS, FOCUS, UNICODE, Glyphs, can_print_unicode, printable
from tui.values import binned, number, scale, trend
from tui.view import Picture, View, duration, shorten

SIZES = [(20, 5), (60, 19), (80, 23), (120, 39), (200, 49)]


def lost(snapshot: GatewaySnapshot | None, seconds: float) -> Picture:
    return Picture(snapshot, seconds, "nobody serves state/lineside.sock", "is the gateway running?")


def drawn(picture: Picture, size: tuple[int, int] = (80, 23), glyphs: Glyphs = UNICODE) -> str:
    return "\n".join(line.plain for line in overview(picture, View(*size, glyphs)))


def text(name: str, size: tuple[int, int] = (80, 23), glyphs: Glyphs = UNICODE) -> str:
    return drawn(Picture(SCRIPTED[name]), size, glyphs)


def pages(name: str, view: View) -> list[list[Text]]:
    picture = Picture(SCRIPTED[name], message="accepted: hold by op", paused=True)
    return [overview(picture, view), overview(lost(SCRIPTED[name], 1e5), view), alarm_page(picture, view, "plc-3/unreachable")[0]]


def styles(lines: list[Text]) -> set[str]:
    found = " ".join(str(span.style) for line in lines for span in line.spans) + " " + " ".join(str(line.style) for line in lines)
    return set(found.split())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCRIPTED)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_picture_fits_its_terminal(name: str, size: tuple[int, int], glyphs: Glyphs) -> None:
    for lines in pages(name, View(*size, glyphs)):
        assert 0 < len(lines) <= size[1]
        assert all(line.cell_len <= size[0] for line in lines)


@given(st.integers(1, 220), st.integers(1, 70), st.sampled_from(sorted(SCRIPTED)), st.sampled_from([UNICODE, ASCII]))
def test_no_size_breaks_the_drawing(width: int, height: int, name: str, glyphs: Glyphs) -> None:
    for lines in pages(name, View(width, height, glyphs)):
        assert len(lines) <= height
        assert all(line.cell_len <= width for line in lines)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCRIPTED)
def test_the_plain_glyphs_are_plain_whatever_a_device_sends(name: str, size: tuple[int, int]) -> None:
    for lines in pages(name, View(*size, ASCII)):
        assert all(line.plain.isascii() and line.plain.isprintable() for line in lines)


@pytest.mark.parametrize("size", SIZES)
def test_no_escape_sequence_from_a_device_reaches_the_terminal(size: tuple[int, int]) -> None:
    for lines in pages("hostile", View(*size, UNICODE)):
        assert all(line.plain.isprintable() for line in lines)


def test_replacing_characters_keeps_their_number_and_what_can_be_read() -> None:
    assert printable("pümpe 3 °C\n温", ASCII) == "pumpe 3 _C _"
    assert printable("pümpe\x1b[2J", UNICODE) == "pümpe [2J"


@pytest.mark.parametrize("name", ["well", "500 tags", "empty", "standing still"])
def test_when_all_is_well_nothing_has_a_reserved_colour_and_nothing_is_heavy(name: str) -> None:
    reserved = {colour for style in COLOURS.values() for colour in style.split()}

    assert not reserved & styles(overview(Picture(SCRIPTED[name]), View(80, 23, UNICODE)))


def test_a_bad_value_borrows_no_colour_from_the_alarm_priorities() -> None:
    snapshot = replace(SCRIPTED["source lost"], alarms=())
    reserved = {style.removeprefix("bold ") for style in COLOURS.values()}

    assert not reserved & styles(overview(Picture(snapshot), View(80, 23, UNICODE)))


def test_no_two_reserved_colours_look_alike_whatever_the_theme() -> None:
    colours = [Color.parse(style.removeprefix("bold ")) for style in (*COLOURS.values(), FOCUS)]

    # A colour by name is the theme's to choose, and one theme's yellow is nearly its orange.
    assert all(colour.type is ColorType.TRUECOLOR for colour in colours)
    for one, other in itertools.combinations(colours, 2):
        assert sum(abs(a - b) for a, b in zip(one.get_truecolor(), other.get_truecolor(), strict=True)) > 80


@pytest.mark.parametrize("name", SCRIPTED)
def test_without_colour_there_is_none(name: str) -> None:
    for lines in pages(name, View(80, 23, UNICODE, colour=False)):
        assert styles(lines) <= {"bold", "reverse"}


def test_an_alarm_has_shape_digit_state_component_and_what_to_do() -> None:
    picture = text("one alarm", (120, 40))

    assert "▲1 UNACK" in picture
    assert "plc-b" in picture
    assert "→ check power, cable and address" in picture
    assert "UNACK 1" in picture


@pytest.mark.parametrize("size", [(60, 19), (80, 23)])
def test_what_to_do_is_never_cut_off_while_there_is_room(size: tuple[int, int]) -> None:
    assert "→ check power, cable and address\n" in text("source lost", size)


def test_a_flood_is_called_one_leaves_room_for_values_and_says_how_many_are_hidden() -> None:
    picture = text("flood")

    assert "FLOOD: 40 in 10 min" in picture
    assert re.search(r"\d+ of 40 shown  → a", picture)
    assert "pump1.bearin…temperature" in picture


def test_the_alarm_counts_are_what_a_narrow_header_keeps() -> None:
    for width in (45, 60, 80):
        head = text("flood", (width, 19)).splitlines()[0]
        assert "▲1 14  ◆2 14  ●3 12  UNACK 40" in head
        assert head.startswith(" ED")


def test_a_stage_has_the_colour_of_its_worst_alarm_and_a_letter_or_word() -> None:
    def letter(width: int) -> tuple[str, str]:
        strip = overview(Picture(SCRIPTED["source lost"]), View(width, 23, UNICODE))[2]
        return strip.plain, " ".join(str(span.style) for span in strip.spans)

    assert "SOURCES 0/1 F " in letter(80)[0]
    assert "SOURCES 0/1 F Failure" in letter(120)[0]
    assert COLOURS[Priority.MEDIUM] in letter(80)[1]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", SCRIPTED)
def test_no_figure_of_the_stage_strip_is_cut_in_two(name: str, width: int) -> None:
    details = text(name, (width, 23)).split("\n")[3 + ("SIMULATED" in text(name, (width, 23)))]

    assert not re.search(r"\d+ m(?!s)|\(|,\s*$|waitin\b", details)


@pytest.mark.parametrize("word", [Ne107.OUT_OF_SPECIFICATION, Ne107.MAINTENANCE_REQUIRED, Ne107.FAILURE])
def test_a_back_end_that_is_not_well_shows_at_inference(word: Ne107) -> None:
    letter = {Ne107.OUT_OF_SPECIFICATION: "S", Ne107.MAINTENANCE_REQUIRED: "M", Ne107.FAILURE: "F"}[word]

    assert f"INFERENCE {letter}" in drawn(Picture(replace(well(), models=(model(word),))))


def test_a_machine_that_stands_still_is_no_fault_and_is_called_by_its_name() -> None:
    picture = text("standing still", (120, 39))

    assert "1 filling, 1 stopped" in picture
    assert "machine not running" in picture
    assert "window is filling" in picture
    assert not re.search(r"INFERENCE [SF]|WINDOWS \S+ [SF]", picture)


def test_a_held_last_value_says_so() -> None:
    asset = replace(model().assets[0], quality=139, quality_text="bad, no inference back end", outcome="no back end")
    picture = drawn(Picture(replace(well(), models=(replace(model(Ne107.FAILURE), assets=(asset,)),))), (120, 39))

    assert "no back end, last value held" in picture
    assert "?    71.44" in picture


def test_the_write_state_is_always_a_word() -> None:
    assert "SINKS 1/1 ARMED/HELD C" in text("held", (120, 39))
    assert "MIXED C" in text("held", (80, 23))
    assert "ARMED" in text("well", (60, 19))


def test_a_value_that_is_not_good_is_marked_with_its_reason_and_age() -> None:
    narrow, wide = text("source lost"), text("source lost", (120, 40))

    assert "?    71.40 °C" in narrow
    assert "BAD 39 s" in narrow
    assert "bad, connection lost 39 s" in wide
    assert "~    4.213" in narrow


def test_a_tag_of_text_shows_its_text() -> None:
    worded = replace(tag("cell1.program", None, unit="1"), text="O1234 (ROUGHING)")

    assert "O123…ING)" in drawn(Picture(replace(well(), tags=(worded,))))


def test_predictions_keep_their_place_beside_hundreds_of_tags() -> None:
    picture = text("500 tags")

    assert "+5 s" in picture
    assert re.search(r"\d+ more not shown", picture)


def test_what_is_hidden_but_bad_is_counted() -> None:
    tags = tuple(tag(f"t{i}", 1.0, 140 if i > 490 else 0) for i in range(500))

    assert "9 of them bad" in drawn(Picture(replace(well(), tags=tags)))


def test_an_empty_configuration_says_what_to_do() -> None:
    picture = text("empty")

    assert "nothing is configured" in picture
    assert "→ add a source to gateway.yaml" in picture
    assert "gateway.headline" in drawn(Picture(replace(well(), tags=(), models=())))


def test_a_lost_link_is_said_at_once_and_no_value_looks_live() -> None:
    picture = drawn(lost(well(), 12.0))

    assert "NO LINK" in picture
    assert "RUNNING" not in picture
    assert "LINK LOST 12 s: nothing below is live  → is the gateway running?" in picture
    assert picture.count("not live") == 3
    assert "●─" not in picture


def test_without_any_answer_it_says_why_and_what_to_do() -> None:
    assert "asking the gateway" in drawn(Picture())
    picture = drawn(lost(None, 90))
    assert "NO LINK to the gateway for 90 s" in picture
    assert "nobody serves state/lineside.sock" in picture
    assert "→ is the gateway running?" in picture


def test_the_smallest_terminal_still_says_in_one_line_whether_all_is_well() -> None:
    size = (20, 4)

    assert text("well", size).splitlines()[0] == "all well"
    assert text("flood", size).splitlines()[0] == "▲1 40 alarms"
    assert drawn(lost(well(), 1.0), size).splitlines()[0] == "NO LINK 1 s"
    assert drawn(Picture(replace(well(), state="reloading")), size).splitlines()[0] == "RELOADING"


def test_a_simulation_says_so() -> None:
    assert "SIMULATED PLANT" in text("simulated")


@pytest.mark.parametrize(
    ("state", "active", "glyph"),
    [(AlarmState.ACKNOWLEDGED, True, "▲1 ACK"), (AlarmState.RETURNED, False, "△1 GONE"), (AlarmState.UNACKNOWLEDGED, True, "▲1 UNACK")],
)
def test_the_states_of_an_alarm_differ_in_shape_and_word(state: AlarmState, active: bool, glyph: str) -> None:
    one = SCRIPTED["one alarm"].alarms[0]
    one = replace(one, state=state, condition=replace(one.condition, active=active))
    picture = drawn(Picture(replace(well(), alarms=(one,))))

    assert glyph in picture
    assert "plc-b" in picture


def test_an_alarm_of_another_day_shows_no_time_of_day() -> None:
    old = alarm("plc-b", "no answer", Priority.HIGH)
    old = replace(old, condition=replace(old.condition, since_wall_ns=WALL_NS - 50 * 3600 * 10**9))

    assert "UNACK 2 d ago" in drawn(Picture(replace(well(), alarms=(old,))))


def test_the_alarm_page_shows_the_selected_one_with_all_its_words() -> None:
    lines, shown = alarm_page(Picture(SCRIPTED["flood"]), View(80, 23, UNICODE), "plc-20/unreachable")
    page = "\n".join(line.plain for line in lines)

    assert any(one.condition.key == "plc-20/unreachable" for one in shown)
    assert re.search(r"▸◆2 UNACK \S+ plc-20 ", page)
    assert "plc-20: no answer" in page
    assert "nobody has acknowledged it, since 2023-11-14 22:12:41Z (39 s)" in page
    assert "40 to acknowledge" in page


def test_an_empty_alarm_page_says_that_nothing_is_wrong() -> None:
    lines, shown = alarm_page(Picture(well()), View(80, 23, UNICODE), "")

    assert not shown
    assert "nothing is wrong" in "\n".join(line.plain for line in lines)


def test_scales_keep_their_width_and_point_to_what_lies_beyond_them() -> None:
    assert scale(50, 0, 100, UNICODE, good=True) == "├─────●─────┤"
    assert scale(0, 0, 100, UNICODE, good=False) == "├○──────────┤"
    assert scale(500, 0, 100, UNICODE, good=False) == "├───────────▸"
    assert scale(-5, 0, 100, ASCII, good=True) == "<-----------|"
    assert scale(None, None, None, UNICODE, good=True) == " " * 13
    assert scale(5, 5, 5, UNICODE, good=True) == " " * 13


def test_trends_show_gaps_and_no_movement_that_is_noise() -> None:
    assert trend([1, None, 2, 3], None, None, UNICODE) == "▁·▅█"
    assert set(trend([50.0, 50.1, 49.9], 0, 100, UNICODE)) <= {"▄", "▅"}
    assert trend([0.0, 100.0], 0, 100, UNICODE) == "▁█"
    assert trend([7.0, 7.0], None, None, UNICODE) == "▄▄"
    assert trend([None, None], 0, 1, UNICODE) == "··"


@given(st.lists(st.none() | st.floats(-1e3, 1e3), max_size=80), st.integers(1, 40))
def test_columns_of_a_trend_never_exceed_the_points_nor_the_room(points: list[float | None], width: int) -> None:
    columns = binned(points, width)
    known = [point for point in points if point is not None]

    assert len(columns) <= width
    for column in columns:
        assert column is None or min(known) - 1e-6 <= column <= max(known) + 1e-6


@given(st.floats())
def test_a_number_takes_at_most_nine_places_and_has_no_exponent_where_machines_are(value: float) -> None:
    shown = number(value)

    assert len(shown) <= 9
    if abs(value) < 1e15:
        assert "e" not in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (71.4, "71.40"), (-4.2134, "-4.213"), (1234.5, "1234"), (99999999.0, "99999999"), (1.5e9, "1.5 G"), (0.00005, "0.000050")],
)
def test_numbers_have_four_significant_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0 s"), (39.9, "39 s"), (600, "10 min"), (18600, "5 h 10 min"), (7200, "2 h"), (273600, "3 d 4 h"), (1e7, "115 d")],
)
def test_a_length_of_time_is_said_as_people_say_it(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_long_name_keeps_both_ends() -> None:
    assert shorten("line3.cell10.motor_temperature", 20, UNICODE) == "line3.cell…mperature"
    assert len(shorten("line3.cell10.motor_temperature", 20, ASCII)) == 20
    assert shorten("short", 20, ASCII) == "short"


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({"LANG": "de_DE.UTF-8", "TERM": "xterm-256color"}, True),
        ({"LANG": "C.utf8", "TERM": "screen"}, True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C", "TERM": "xterm"}, False),
        ({"LANG": "de_DE.ISO-8859-1", "TERM": "xterm"}, False),
        ({"TERM": "xterm"}, False),
        ({"LANG": "C.UTF-8", "TERM": "linux"}, False),
        ({"LANG": "C.UTF-8", "TERM": "vt220"}, False),
    ],
)
def test_shapes_are_used_only_where_they_can_be_printed(environment: dict[str, str], answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        encoding = "utf-8"

    for name in ("LC_ALL", "LC_CTYPE", "LANG", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.__stderr__", Terminal())

    assert can_print_unicode() is answer
