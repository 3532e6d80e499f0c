"""The overview as lines of text: a pure function of what is known and of a size."""

from rich.text import Text

from gateway.core.condition import Priority
from gateway.core.snapshot import GatewaySnapshot
from tui.alarm_list import attention
from tui.glyphs import COLOURS
from tui.header import banners, header
from tui.strip import stage_strip
from tui.values import value_rows
from tui.view import DIM, Picture, View, duration

_LEAST_WIDTH, _LEAST_HEIGHT = 40, 9
_VALUES_KEPT = 4  # values an alarm flood may not push off the screen


def overview(picture: Picture, view: View) -> list[Text]:
    """The whole screen, at most `view.height` lines of at most `view.width` columns."""
    if view.width < _LEAST_WIDTH or view.height < _LEAST_HEIGHT:
        lines = _tiny(picture, view)
    elif picture.snapshot is None:
        lines = _waiting(picture, view)
    else:
        lines = _full(picture, picture.snapshot, view)
    return [view.fit(line) for line in lines][: view.height]


def _full(picture: Picture, snapshot: GatewaySnapshot, view: View) -> list[Text]:
    lines = [header(picture, snapshot, view), *banners(picture, snapshot, view), view.rule, *stage_strip(snapshot, view), view.rule]
    alarms = [alarm for alarm in snapshot.alarms if alarm.needs_attention]
    wanted = len(value_rows(picture, snapshot, view, view.height))
    # Below the strip: the alarms' title, alarms, a rule, values. Alarms come before trends, a few values before the last alarm.
    room = view.height - len(lines) - 2
    for_alarms = max(room - min(wanted, _VALUES_KEPT + 1), 1)
    lines += [*attention(alarms, for_alarms, view, snapshot.wall_ns), view.rule]
    return lines + value_rows(picture, snapshot, view, view.height - len(lines))


def _waiting(picture: Picture, view: View) -> list[Text]:
    if picture.lost_s is None:
        return [view.text(" asking the gateway...")]
    shape = f"{view.glyphs.priority[Priority.HIGH]}{int(Priority.HIGH)}"
    return [
        view.text(f" {shape} NO LINK to the gateway for {duration(picture.lost_s)}", COLOURS[Priority.HIGH]),
        view.text(f" {picture.fault}"),
        view.text(f" {view.glyphs.arrow} {picture.remedy}"),
        view.text(" This screen comes alive by itself once the gateway answers. q leaves.", DIM),
    ]


def _tiny(picture: Picture, view: View) -> list[Text]:
    """One line that says whether all is well; the second how to see more."""
    snapshot, enlarge = picture.snapshot, view.text("enlarge to 60x20", DIM)
    if not picture.live:
        return [view.text(f"NO LINK {duration(picture.lost_s or 0.0)}", COLOURS[Priority.HIGH]), enlarge]
    if snapshot is None:
        return [view.text("asking...")]
    alarms = [alarm for alarm in snapshot.alarms if alarm.needs_attention]
    if alarms:
        worst = min(alarm.condition.priority for alarm in alarms)
        count = f"{len(alarms)} alarm{'s' if len(alarms) > 1 else ''}"
        return [view.text(f"{view.glyphs.priority[worst]}{int(worst)} {count}", COLOURS[worst]), enlarge]
    if snapshot.state != "running":
        return [view.text(snapshot.state.upper(), "bold"), enlarge]
    return [view.text("all well"), enlarge]
