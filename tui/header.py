"""The top of every screen: who, how, when, how many alarms; and the lines that must not be missed."""

from datetime import UTC, datetime

from rich.text import Text

from gateway.core.condition import AlarmState, Priority
from gateway.core.snapshot import GatewaySnapshot
from tui.glyphs import COLOURS, FOCUS
from tui.view import DIM, PLAIN, VALUE, Picture, View, duration, shorten

# What is left out first where it is narrow: the loop's delay, the word, seconds, the clock.
_VARIANTS = (
    (True, True, "%H:%M:%SZ  "),
    (False, True, "%H:%M:%SZ  "),
    (False, False, "%H:%M:%SZ  "),
    (False, False, "%H:%MZ  "),
    (False, False, ""),
)
_SHOWN = (Priority.HIGH, Priority.MEDIUM, Priority.LOW, Priority.DIAGNOSTIC)


def header(picture: Picture, snapshot: GatewaySnapshot, view: View) -> Text:
    """Name, state, clock, loop delay and alarm counts; where it is narrow, the counts stay longest."""
    counts = _counts(snapshot, view, live=picture.live)
    line = Text()
    for loop, title, clock in _VARIANTS:
        left = _state(picture, snapshot, view, loop=loop, title=title, clock=clock)
        room = view.width - left.cell_len - counts.cell_len - 3
        line = view.text(f" {shorten(snapshot.gateway, max(room, 4), view.glyphs)}  ", VALUE) + left + counts
        if room >= min(len(snapshot.gateway), 12):
            break
    return line


def _state(picture: Picture, snapshot: GatewaySnapshot, view: View, *, loop: bool, title: bool, clock: str) -> Text:
    time = datetime.fromtimestamp(snapshot.wall_ns / 1e9, UTC).strftime(clock)
    if not picture.live:
        return Text() + view.text("NO LINK", COLOURS[Priority.HIGH]) + view.text(f"  last {time}" if time else "  ", DIM)
    # Starting, reloading and stopping are no alarms: heavy, but without their colours.
    line = view.text(f"{snapshot.state.upper()}  ", PLAIN if snapshot.state == "running" else "bold")
    line.append(time, style=view.style(PLAIN))
    line.append(f"loop {snapshot.loop_delay_ms:.0f} ms  " if loop else "", style=view.style(PLAIN))
    line.append("ALARMS " if title else "", style=view.style(PLAIN))
    return line


def _counts(snapshot: GatewaySnapshot, view: View, *, live: bool) -> Text:
    line = Text()
    for priority in _SHOWN:
        count = sum(a.needs_attention and a.condition.priority is priority for a in snapshot.alarms)
        if priority is Priority.DIAGNOSTIC and not count:
            continue
        style = COLOURS[priority] if count and live else DIM
        line.append(f"{view.glyphs.priority[priority]}{int(priority)} {count}  ", style=view.style(style))
    waiting = sum(alarm.state in (AlarmState.UNACKNOWLEDGED, AlarmState.RETURNED) for alarm in snapshot.alarms)
    line.append(f"UNACK {waiting}", style=view.style("bold" if waiting and live else DIM))
    return line


def banners(picture: Picture, snapshot: GatewaySnapshot, view: View) -> list[Text]:
    """What changes the meaning of all the rest."""
    lines: list[Text] = []
    arrow = view.glyphs.arrow
    if picture.lost_s is not None:
        shape = f"{view.glyphs.priority[Priority.HIGH]}{int(Priority.HIGH)}"
        lost = f" {shape} LINK LOST {duration(picture.lost_s)}: nothing below is live  {arrow} {picture.remedy}"
        lines.append(view.text(lost, COLOURS[Priority.HIGH]))
    if picture.paused:
        lines.append(view.text(f" PAUSED: values stand still, alarms and clock do not  {arrow} p goes on", FOCUS))
    if snapshot.simulated:
        lines.append(view.text(" SIMULATED PLANT: no machine is connected", COLOURS[Priority.DIAGNOSTIC]))
    if picture.message:
        lines.append(view.text(f" {picture.message}", f"bold {FOCUS}"))
    return lines
