"""Alarms as lines: the list of what needs attention, the page of all of them, the detail of one."""

import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from gateway.core.clock import NS_PER_S
from gateway.core.condition import Alarm, AlarmState
from tui.glyphs import COLOURS, FOCUS
from tui.header import banners, header
from tui.view import DIM, PLAIN, VALUE, Picture, View, duration

UNACKNOWLEDGED = (AlarmState.UNACKNOWLEDGED, AlarmState.RETURNED)
_STATES = {
    AlarmState.UNACKNOWLEDGED: ("UNACK", "active, nobody has acknowledged it"),
    AlarmState.ACKNOWLEDGED: ("ACK", "active, acknowledged"),
    AlarmState.RETURNED: ("GONE", "no longer active, nobody has acknowledged it"),
    AlarmState.SHELVED: ("SHELF", "shelved"),
    AlarmState.SUPPRESSED: ("SUPPR", "suppressed by design"),
    AlarmState.OUT_OF_SERVICE: ("OFF", "out of service"),
}
_DAY_S = 24 * 3600
_FLOOD = 10
_FLOOD_S = 600
_DETAIL_LINES = 5
_PREFIX = 19  # columns before the component; what to do is set in as far


def alarm_line(alarm: Alarm, view: View, now_ns: int, *, remedy: bool = True) -> Text:
    """One alarm: shape and priority, state, time, component, what happened, what to do."""
    condition = alarm.condition
    style = COLOURS[condition.priority] if condition.active else PLAIN
    if alarm.state is AlarmState.UNACKNOWLEDGED:
        style += " reverse"
    shapes = view.glyphs.gone if alarm.state is AlarmState.RETURNED else view.glyphs.priority
    line = Text(" ")
    line.append(f"{shapes[condition.priority]}{int(condition.priority)}", style=view.style(style))
    line.append(f" {_STATES.get(alarm.state, (alarm.state.value, ''))[0]:<5} {since(alarm, now_ns):<8} ", style=view.style(PLAIN))
    line.append(f"{condition.component}  {condition.text}", style=view.style(VALUE if condition.active else DIM))
    line.append(f"  {view.glyphs.arrow} {condition.remedy}" if remedy and condition.remedy else "", style=view.style(PLAIN))
    return line


def since(alarm: Alarm, now_ns: int) -> str:
    """The time of the change; of an old one, how long ago: a time of day would be read as today's."""
    at_ns = alarm.condition.since_wall_ns
    age_s = (now_ns - at_ns) / NS_PER_S
    if age_s >= _DAY_S:
        days = int(age_s / _DAY_S)
        return f"{days} d ago" if days < 100 else f"{days} d"
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%H:%M:%S")


def attention(alarms: Sequence[Alarm], room: int, view: View, now_ns: int) -> list[Text]:
    """The list of what needs somebody, most urgent first, on at most `room` lines below its title."""
    if not alarms:
        return [view.text(" NEEDS ATTENTION  nothing", DIM)]
    shown = list(alarms[: max(room, 1)])
    spare = room - len(shown)
    lines: list[Text] = []
    for alarm in shown:
        line = alarm_line(alarm, view, now_ns)
        if line.cell_len > view.width and spare > 0 and alarm.condition.remedy:
            # What to do is the last thing to be cut off: it gets a line of its own as long as there is one.
            spare -= 1
            lines += [alarm_line(alarm, view, now_ns, remedy=False), _remedy(alarm, view)]
        else:
            lines.append(line)
    return [_title(alarms, len(shown), view, now_ns), *lines]


def _remedy(alarm: Alarm, view: View) -> Text:
    arrow = f"{view.glyphs.arrow} {alarm.condition.remedy}"
    return view.text(" " * min(_PREFIX, max(view.width - len(arrow), 4)) + arrow)


def _title(alarms: Sequence[Alarm], shown: int, view: View, now_ns: int) -> Text:
    recent = sum(a.condition.active and now_ns - a.condition.since_wall_ns < _FLOOD_S * NS_PER_S for a in alarms)
    flood = f"  FLOOD: {recent} in 10 min" if recent > _FLOOD else ""
    count = f"{shown} of {len(alarms)} shown" + (f"  {view.glyphs.arrow} a" if shown < len(alarms) else "")
    return view.text(f" NEEDS ATTENTION{flood}".ljust(max(view.width - len(count) - 1, 17)) + f" {count}", "bold" if flood else PLAIN)


def page_size(view: View, above: int) -> int:
    """Alarms on one page, below so many lines of header."""
    return max(view.height - above - 2 - _DETAIL_LINES, 1)


def alarm_page(picture: Picture, view: View, selected: str) -> tuple[list[Text], tuple[Alarm, ...]]:
    """The whole alarm screen, and the alarms that are on it.

    Args:
        picture: What is known.
        view: Where it is drawn.
        selected: Key of the selected alarm.
    """
    snapshot = picture.snapshot
    if snapshot is None:
        return [view.fit(view.text(" no link to the gateway, so no alarms"))], ()
    top = [header(picture, snapshot, view), *banners(picture, snapshot, view), view.rule]
    alarms = snapshot.alarms
    place = place_of(alarms, selected)
    size = page_size(view, len(top))
    start = place // size * size
    shown = alarms[start : start + size]
    lines = [*top, _page_title(alarms, start, len(shown), view)]
    for number, alarm in enumerate(shown, start):
        cursor = view.text(view.glyphs.cursor if number == place else " ", FOCUS)
        line = alarm_line(alarm, view, snapshot.wall_ns)
        if number == place:
            line.stylize("bold")
        lines.append(cursor + line[1:])
    if alarms:
        lines += [
            *[Text()] * max(view.height - len(lines) - 1 - _DETAIL_LINES, 0),
            view.rule,
            *_detail(alarms[place], view, snapshot.wall_ns),
        ]
    return [view.fit(line) for line in lines][: view.height], shown


def place_of(alarms: Sequence[Alarm], selected: str) -> int:
    """Place of the selected alarm; the first if it has gone."""
    return next((i for i, alarm in enumerate(alarms) if alarm.condition.key == selected), 0)


def _page_title(alarms: Sequence[Alarm], start: int, shown: int, view: View) -> Text:
    if not alarms:
        return view.text(" ALARMS  none: nothing is wrong and nothing waits to be acknowledged", DIM)
    waiting = sum(alarm.state in UNACKNOWLEDGED for alarm in alarms)
    return view.text(f" ALARMS  {start + 1}-{start + shown} of {len(alarms)}, {waiting} to acknowledge")


def _detail(alarm: Alarm, view: View, now_ns: int) -> list[Text]:
    condition = alarm.condition
    who = f" by {alarm.acknowledged_by}" if alarm.acknowledged_by else ""
    why = f" ({alarm.shelve_reason})" if alarm.shelve_reason else ""
    at = datetime.fromtimestamp(condition.since_wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    state = _STATES.get(alarm.state, ("", alarm.state.value))[1]
    age = duration((now_ns - condition.since_wall_ns) / NS_PER_S)
    return [
        *_wrap(f"{condition.component}: {condition.text}", view, VALUE),
        *_wrap(f"{view.glyphs.arrow} {condition.remedy or 'nothing to do'}", view, PLAIN),
        view.text(f" {state}{who}{why}, since {at} ({age})", DIM),
    ]


def _wrap(text: str, view: View, style: str) -> list[Text]:
    """The text on at most two lines, broken between words."""
    lines = textwrap.wrap(
        text, max(view.width, 20), initial_indent=" ", subsequent_indent="   ", max_lines=2, placeholder=f" {view.glyphs.ellipsis}"
    )
    return [view.text(line, style) for line in lines]
