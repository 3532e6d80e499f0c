"""The overview as lines of text: pure functions of a snapshot and a size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.text import Text

from gateway.core.condition import Alarm, AlarmState, Priority
from gateway.core.quality import Level, Ne107, code, level
from gateway.core.snapshot import GatewaySnapshot
from tui.glyphs import COLOURS, Glyphs

DIM = "grey58"
PLAIN = "grey74"
VALUE = "grey93"
_LETTERS = {Ne107.GOOD: "", Ne107.MAINTENANCE_REQUIRED: "M", Ne107.OUT_OF_SPECIFICATION: "S", Ne107.FUNCTION_CHECK: "C", Ne107.FAILURE: "F"}
_WORD_COLOURS = {Ne107.FAILURE: "bold red", Ne107.OUT_OF_SPECIFICATION: "yellow", Ne107.MAINTENANCE_REQUIRED: "yellow"}
_SCALE_FROM = 70  # narrower terminals leave the scale out, and below 50 the trend as well
_TREND_FROM = 50


@dataclass(frozen=True, slots=True)
class View:
    """How it is to be drawn.

    Attributes:
        width: Columns.
        height: Lines.
        glyphs: Shapes.
        lost_s: Seconds since the link to the gateway was lost; None if it is there.
        paused: Whether the picture stands still.
        colour: Whether colours may be used.
    """

    width: int
    height: int
    glyphs: Glyphs
    lost_s: float | None = None
    paused: bool = False
    colour: bool = True

    def style(self, style: str) -> str:
        """A style, or none where colours are off; bold stays."""
        return style if self.colour else ("bold" if "bold" in style else "")


def overview(snapshot: GatewaySnapshot | None, view: View) -> list[Text]:
    """The whole screen, at most `view.height` lines of at most `view.width` columns."""
    if view.width < 40 or view.height < 8:
        return [_cut(line, view) for line in _tiny(snapshot, view)][: view.height]
    if snapshot is None:
        return [_cut(Text(text, style=view.style(PLAIN)), view) for text in _waiting(view)]
    rule = Text(view.glyphs.rule * view.width, style=view.style(DIM))
    lines = [header(snapshot, view), *_banners(snapshot, view), rule, *stage_strip(snapshot, view), rule]
    alarms = [alarm for alarm in snapshot.alarms if alarm.needs_attention]
    rows = value_rows(snapshot, view)
    room = view.height - len(lines) - 2
    # Alarms before trends: at least one alarm line, and all of them if that leaves four values.
    for_alarms = max(min(len(alarms), room - min(len(rows), 5)), 1)
    lines += attention(alarms, for_alarms, view)
    lines.append(rule)
    lines += rows[: max(view.height - len(lines), 0)]
    return [_cut(line, view) for line in lines][: view.height]


def _cut(line: Text, view: View) -> Text:
    line.truncate(view.width, overflow="ellipsis" if view.width > 10 else "crop")
    return line


def _waiting(view: View) -> list[str]:
    lost = "" if view.lost_s is None else f" for {view.lost_s:.0f} s"
    return [f"no link to the gateway{lost}", "is it running? start it with: lineside run FILE", "q leaves"]


def _tiny(snapshot: GatewaySnapshot | None, view: View) -> list[Text]:
    if snapshot is None or view.lost_s is not None:
        return [Text("NO LINK", style=view.style("bold red"))]
    worst = min((alarm.condition.priority for alarm in snapshot.alarms if alarm.needs_attention), default=None)
    count = sum(alarm.needs_attention for alarm in snapshot.alarms)
    state = Text(snapshot.state.upper(), style=view.style(PLAIN))
    if worst is None:
        return [state, Text("all well", style=view.style(PLAIN)), Text("enlarge for more", style=view.style(DIM))]
    return [state, Text(f"{view.glyphs.priority[worst]}{int(worst)} {count} alarm(s)", style=view.style(COLOURS[worst]))]


def header(snapshot: GatewaySnapshot, view: View) -> Text:
    """Name, state, clock, loop delay and alarm counts."""
    clock = datetime.fromtimestamp(snapshot.wall_ns / 1e9, UTC).strftime("%H:%M:%SZ")
    line = Text(f" {snapshot.gateway}  ", style=view.style(VALUE))
    line.append(f"{snapshot.state.upper()}  ", style=view.style(PLAIN if snapshot.state == "running" else "bold yellow"))
    line.append(f"{clock}  loop {snapshot.loop_delay_ms:.0f} ms  ", style=view.style(PLAIN))
    line.append("ALARMS ", style=view.style(PLAIN))
    for priority in (Priority.HIGH, Priority.MEDIUM, Priority.LOW):
        count = sum(a.needs_attention and a.condition.priority is priority for a in snapshot.alarms)
        line.append(f"{view.glyphs.priority[priority]}{int(priority)} {count} ", style=view.style(COLOURS[priority] if count else DIM))
    waiting = sum(alarm.state in (AlarmState.UNACKNOWLEDGED, AlarmState.RETURNED) for alarm in snapshot.alarms)
    line.append(f" UNACK {waiting}", style=view.style("bold" if waiting else DIM))
    return line


def _banners(snapshot: GatewaySnapshot, view: View) -> list[Text]:
    banners: list[Text] = []
    if view.lost_s is not None:
        text = f" LINK LOST {view.lost_s:.0f} s: nothing below is live {view.glyphs.arrow} check the gateway: lineside status FILE"
        banners.append(Text(text, style=view.style("bold red")))
    if view.paused:
        banners.append(Text(" PAUSED: values stand still, alarms and clock do not. p goes on", style=view.style("bold yellow")))
    if snapshot.simulated:
        banners.append(Text(" SIMULATED PLANT: no machine is connected", style=view.style("magenta")))
    return banners


def stage_strip(snapshot: GatewaySnapshot, view: View) -> list[Text]:
    """Sources, windows, inference and sinks: two lines, each a quarter of the width."""
    cells = [_sources(snapshot), _windows(snapshot), _inference(snapshot), _sinks(snapshot)]
    width = view.width // 4
    heads, details = Text(), Text()
    for name, word, summary, detail in cells:
        head = f" {name} {summary}"
        letter = _LETTERS[word]
        heads.append(head[: width - 3], style=view.style(PLAIN))
        heads.append(f" {letter}" if letter else "", style=view.style(_WORD_COLOURS.get(word, "bold")))
        heads.pad_right(max(width * (cells.index((name, word, summary, detail)) + 1) - heads.cell_len, 0))
        details.append(f" {detail}"[: width - 1].ljust(width), style=view.style(DIM))
    return [heads, details]


def _sources(snapshot: GatewaySnapshot) -> tuple[str, Ne107, str, str]:
    good = sum(source.word < Ne107.OUT_OF_SPECIFICATION for source in snapshot.sources)
    word = max((source.word for source in snapshot.sources), default=Ne107.GOOD)
    slowest = max((source.cycle_p99_ms for source in snapshot.sources), default=0.0)
    tags, good_tags = sum(s.tags for s in snapshot.sources), sum(s.good_tags for s in snapshot.sources)
    return "SOURCES", word, f"{good}/{len(snapshot.sources)}", f"{good_tags}/{tags} p99 {slowest:.0f} ms"


def _windows(snapshot: GatewaySnapshot) -> tuple[str, Ne107, str, str]:
    assets = [asset for model in snapshot.models for asset in model.assets]
    well = sum(level(asset.quality) is Level.GOOD for asset in assets)
    total = max(len(assets), sum(1 for _ in snapshot.models))
    coverage = min((asset.coverage for asset in assets), default=0.0)
    word = Ne107.GOOD if well == len(assets) else Ne107.OUT_OF_SPECIFICATION
    filling = any(asset.outcome == "warming up" for asset in assets)
    detail = "filling" if filling else f"coverage {coverage:.0%}" if assets else "none yet"
    return "WINDOWS", Ne107.GOOD if filling else word, f"{well}/{total}", detail


def _inference(snapshot: GatewaySnapshot) -> tuple[str, Ne107, str, str]:
    if not snapshot.models:
        return "INFERENCE", Ne107.GOOD, "off", "no model configured"
    word = max(model.word for model in snapshot.models)
    model = max(snapshot.models, key=lambda m: m.word)
    p99 = model.latency_ms.get("inference", (0.0, 0.0, 0.0))[2]
    failing = any(m.word is Ne107.FAILURE for m in snapshot.models)
    return "INFERENCE", Ne107.FAILURE if failing else Ne107.GOOD if word < Ne107.FAILURE else word, "", f"{model.backend} {p99:.1f} ms"


def _sinks(snapshot: GatewaySnapshot) -> tuple[str, Ne107, str, str]:
    states = sorted({target.state.split()[0] for target in snapshot.targets})
    writes = "/".join(states) if states else "no writes"
    words = [*(sink.word for sink in snapshot.sinks), *(target.word for target in snapshot.targets)]
    word = max(words, default=Ne107.GOOD)
    up = sum(sink.word < Ne107.OUT_OF_SPECIFICATION for sink in snapshot.sinks)
    lost = sum(sink.dropped + sink.rejected for sink in snapshot.sinks)
    waiting = sum(sink.waiting for sink in snapshot.sinks)
    return "SINKS", word, f"{up}/{len(snapshot.sinks)} {writes}", f"wait {waiting} lost {lost}"


def attention(alarms: Sequence[Alarm], room: int, view: View) -> list[Text]:
    """The list of what needs somebody, most urgent first."""
    if not alarms:
        return [Text(" NEEDS ATTENTION  nothing", style=view.style(DIM))]
    shown = list(alarms[:room])
    count = f"{len(shown)} of {len(alarms)} shown"
    head = " NEEDS ATTENTION".ljust(max(view.width - len(count) - 1, 18)) + count
    return [Text(head, style=view.style(PLAIN)), *(alarm_line(alarm, view) for alarm in shown)]


def alarm_line(alarm: Alarm, view: View) -> Text:
    """One alarm: shape and priority, state, time, component, what happened, what to do."""
    condition = alarm.condition
    since = datetime.fromtimestamp(condition.since_wall_ns / 1e9, UTC).strftime("%H:%M:%S")
    states = {
        AlarmState.UNACKNOWLEDGED: "UNACK",
        AlarmState.ACKNOWLEDGED: "ACK",
        AlarmState.RETURNED: "RTN",
        AlarmState.SHELVED: "SHELF",
    }
    style = view.style(COLOURS[condition.priority])
    line = Text(" ")
    inverse = alarm.state is AlarmState.UNACKNOWLEDGED
    line.append(
        f"{view.glyphs.priority[condition.priority]}{int(condition.priority)}", style=f"{style} reverse".strip() if inverse else style
    )
    line.append(f" {states.get(alarm.state, alarm.state.value):<5} {since} ", style=view.style(PLAIN))
    line.append(f"{condition.component}  {condition.text}", style=view.style(VALUE if condition.active else DIM))
    line.append(f"  {view.glyphs.arrow} {condition.remedy}" if condition.remedy else "", style=view.style(PLAIN))
    return line


@dataclass(frozen=True, slots=True)
class _Row:
    """One value on its scale."""

    name: str
    unit: str
    value: float | None
    quality: int
    words: str
    low: float | None
    high: float | None
    trend: tuple[float | None, ...]
    age_ms: float


def value_rows(snapshot: GatewaySnapshot, view: View) -> list[Text]:
    """Headline tags, then the predictions with the longest horizon of each asset and input."""
    rows = [_Row(t.name, t.unit, t.value, t.quality, t.quality_text, t.low, t.high, t.trend, t.age_ms) for t in snapshot.tags]
    scales = {tag.name: (tag.low, tag.high) for tag in snapshot.tags}
    for model in snapshot.models:
        for asset in model.assets:
            longest = {output.name.rsplit("_", 1)[0]: output for output in sorted(asset.outputs, key=lambda o: o.horizon_s)}
            for stem, output in longest.items():
                low, high = scales.get(f"{asset.name}.{stem}", (output.low, output.high))
                name = f"{asset.name}.{stem} +{output.horizon_s:g} s"
                words = asset.quality_text if asset.outcome == "inferred" else f"{asset.outcome}"
                rows.append(_Row(name, output.unit, output.value, asset.quality, words, low, high, output.trend, asset.age_ms))
    if not rows:
        return [Text(" no headline tags: name some in gateway.headline", style=view.style(DIM))]
    name_width = min(max(len(row.name) for row in rows) + 1, max(view.width // 3, 16))
    return [_value_head(view, name_width), *(_value_line(row, view, name_width) for row in rows)]


def _value_head(view: View, name_width: int) -> Text:
    head = f" {'TAG':<{name_width}}{'VALUE':>16} "
    if view.width >= _SCALE_FROM:
        head += " LOW" + " " * 8 + "HIGH "
    if view.width >= _TREND_FROM:
        head += "TREND".ljust(11)
    return Text(head + "QUALITY", style=view.style(DIM))


def _value_line(row: _Row, view: View, name_width: int) -> Text:
    trust = level(row.quality)
    live = view.lost_s is None
    mark = {Level.GOOD: " ", Level.UNCERTAIN: "~", Level.BAD: "?"}[trust] if live else "?"
    style = view.style(VALUE if trust is Level.GOOD and live else DIM)
    shown = "-" if row.value is None else _number(row.value)
    line = Text(f" {_short(row.name, name_width - 1):<{name_width}}", style=view.style(PLAIN))
    line.append(f"{mark}{shown:>9} {row.unit:<6}", style=style)
    if view.width >= _SCALE_FROM:
        line.append(f" {scale(row.value, row.low, row.high, view.glyphs, good=trust is Level.GOOD and live)} ", style=view.style(PLAIN))
    if view.width >= _TREND_FROM:
        line.append(trend(row.trend[-10:], row.low, row.high, view.glyphs).ljust(11), style=view.style(PLAIN))
    if not live:
        line.append("not live", style=view.style("bold red"))
    elif trust is not Level.GOOD:
        age = f" {row.age_ms / 1000:.0f} s" if row.age_ms > 2000 else ""
        words = f"{row.words.split(' (')[0]}{age}"
        if len(words) > view.width - line.cell_len:
            words = f"{'BAD' if trust is Level.BAD else 'UNCERT'}{age}"
        line.append(words, style=view.style("yellow" if trust is Level.UNCERTAIN else "dark_orange"))
    elif code(row.quality):
        line.append(row.words, style=view.style(PLAIN))
    return line


def _short(name: str, width: int) -> str:
    """A name that fits; the horizon of a forecast is never what is cut off."""
    if len(name) <= width:
        return name
    stem, plus, horizon = name.partition(" +")
    return f"{stem[: max(width - len(plus + horizon) - 2, 1)]}..{plus}{horizon}"[:width]


def _number(value: float) -> str:
    """Four significant digits, never in exponents an operator must decode."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    if abs(value) >= 1e6 or abs(value) < 1e-4:
        return f"{value:.3g}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def scale(value: float | None, low: float | None, high: float | None, glyphs: Glyphs, *, good: bool) -> str:
    """Where a value lies between its limits, on eleven places."""
    track = [glyphs.track] * 11
    bounded = low is not None and high is not None and math.isfinite(low) and math.isfinite(high) and high > low
    if value is not None and bounded and low is not None and high is not None and math.isfinite(value):
        place = round((min(max(value, low), high) - low) / (high - low) * 10)
        track[place] = glyphs.mark if good else glyphs.hollow
    if not bounded:
        return " " * 13
    return glyphs.ends[0] + "".join(track) + glyphs.ends[1]


def trend(points: Sequence[float | None], low: float | None, high: float | None, glyphs: Glyphs) -> str:
    """Levels of a short series; on its own span where the engineering range would flatten it."""
    known = [p for p in points if p is not None and math.isfinite(p)]
    if not known:
        return glyphs.gap * len(points)
    bottom, top = min(known), max(known)
    if low is not None and high is not None and math.isfinite(high - low) and high > low:
        # A twentieth of the range is the finest movement worth drawing.
        middle, least = (bottom + top) / 2, (high - low) / 20
        bottom, top = min(bottom, middle - least), max(top, middle + least)
    span = (top - bottom) or 1.0
    levels = len(glyphs.trend) - 1
    return "".join(glyphs.gap if p is None or not math.isfinite(p) else glyphs.trend[round((p - bottom) / span * levels)] for p in points)
