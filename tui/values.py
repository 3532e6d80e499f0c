"""Values as lines: name, value, place on a fixed scale, trend, quality. Tags first, then what the models say of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from gateway.core.prediction import Outcome
from gateway.core.quality import Level, code, level
from gateway.core.snapshot import GatewaySnapshot, ModelStatus, TagStatus
from tui.glyphs import Glyphs
from tui.view import DIM, PLAIN, VALUE, Picture, View, duration, first_fitting, shorten

_SCALE_FROM = 70  # narrower terminals leave the scale out, and below 50 the trend as well
_TREND_FROM = 50
_SCALE = 11
_FINEST = 5  # a trend spans at least a fifth of the range: noise below it is no news
_OLD_MS = 2000.0
_CALM = {
    Outcome.DISABLED.value: ("machine not running", "stopped"),
    Outcome.WARMING_UP.value: ("window is filling", "filling"),
}
_WRONG = {
    Outcome.COVERAGE.value: ("too few samples", "gaps"),
    Outcome.NO_BACKEND.value: ("no back end, last value held", "held"),
}


@dataclass(frozen=True, slots=True)
class _Row:
    """One value on its scale; `words` are variants of its quality, the longest first."""

    name: str
    unit: str
    value: float | None
    quality: int
    words: tuple[str, ...]
    low: float | None
    high: float | None
    trend: tuple[float | None, ...]
    age_ms: float
    horizon: str = ""
    text: str = ""
    calm: bool = False


def value_rows(picture: Picture, snapshot: GatewaySnapshot, view: View, room: int) -> list[Text]:
    """As many values as there is room for; predictions keep half of it, and what is left out is counted."""
    tags = [_tag_row(tag) for tag in snapshot.tags]
    scales = {tag.name: (tag.low, tag.high) for tag in snapshot.tags}
    predictions = [row for model in snapshot.models for row in _prediction_rows(model, scales)]
    if not tags and not predictions:
        return _nothing(snapshot, view)
    free = max(room - 1, 1)
    hidden: list[_Row] = []
    if len(tags) + len(predictions) > free:
        free = max(free - 1, 1)
        for_tags = min(len(tags), max(free // 2, free - len(predictions)))
        for_predictions = min(len(predictions), max(free - for_tags, 0))
        hidden = [*tags[for_tags:], *predictions[for_predictions:]]
        tags, predictions = tags[:for_tags], predictions[:for_predictions]
    rows = [*tags, *predictions]
    columns = _Columns.of(rows, view)
    lines = [columns.head(view), *(_line(row, view, columns, live=picture.live) for row in rows)]
    if hidden:
        bad = sum(level(row.quality) is Level.BAD for row in hidden)
        lines.append(view.text(f" {len(hidden)} more not shown" + (f", {bad} of them bad" if bad else ""), DIM))
    return lines


def _nothing(snapshot: GatewaySnapshot, view: View) -> list[Text]:
    arrow, file = view.glyphs.arrow, snapshot.configuration or "the configuration"
    if not snapshot.sources:
        return [
            view.text(" nothing is configured: no source, so no values"),
            view.text(f" {arrow} add a source to {file}, then: lineside reload FILE"),
        ]
    return [view.text(" no values chosen for this screen"), view.text(f" {arrow} name 4 to 8 tags in gateway.headline of {file}")]


def _tag_row(tag: TagStatus) -> _Row:
    words = (tag.quality_text, *_short_words(tag.quality))
    return _Row(tag.name, tag.unit, tag.value, tag.quality, words, tag.low, tag.high, tag.trend, tag.age_ms, text=tag.text)


def _prediction_rows(model: ModelStatus, scales: dict[str, tuple[float | None, float | None]]) -> list[_Row]:
    """Of each asset and quantity the prediction with the longest horizon, on the scale of its tag."""
    rows: list[_Row] = []
    for asset in model.assets:
        calm = asset.outcome in _CALM
        words = {**_CALM, **_WRONG}.get(asset.outcome, (asset.quality_text, *_short_words(asset.quality)))
        longest = {_quantity(output.name): output for output in sorted(asset.outputs, key=lambda o: o.horizon_s)}
        for quantity, output in longest.items():
            name = f"{asset.name}.{quantity}"
            low, high = scales.get(name, (output.low, output.high))
            horizon = f" +{output.horizon_s:g} s" if output.horizon_s else ""
            row = _Row(name, output.unit, output.value, asset.quality, words, low, high, output.trend, asset.age_ms, horizon, calm=calm)
            rows.append(row)
    return rows


def _short_words(quality: int) -> tuple[str, ...]:
    return ("BAD",) if level(quality) is Level.BAD else ("UNCERTAIN", "UNCERT")


def _quantity(name: str) -> str:
    """An output's name without a horizon at its end (`temperature_5s`)."""
    stem, _, end = name.rpartition("_")
    return stem if stem and end[:-1].isdigit() and end[-1] in "smh" else name


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths; 0 is a column that is left out."""

    name: int
    unit: int
    scale: int
    trend: int

    @staticmethod
    def of(rows: Sequence[_Row], view: View) -> "_Columns":
        """As wide as the rows need, names as long as the rest allows."""
        scale = _SCALE + 4 if view.width >= _SCALE_FROM else 0
        trend = 0 if view.width < _TREND_FROM else 10 if view.width < 100 else 20 if view.width < 140 else 30
        unit = min(max(len(view.glyphs.units.get(row.unit, row.unit)) for row in rows), 6) + 1
        # Twelve columns stay for the quality, thirteen take mark, value and the spaces around them.
        room = view.width - 13 - unit - scale - (trend + 1 if trend else 0) - 12
        return _Columns(max(min(max(len(row.name) + len(row.horizon) for row in rows), room), 8), unit, scale, trend)

    def head(self, view: View) -> Text:
        """The titles."""
        text = f" {'TAG':<{self.name}} {'VALUE':>10} {'':<{self.unit}}"
        text += f"{'LO':<{_SCALE}}HI  " if self.scale else ""
        text += f"{'TREND':<{self.trend}} " if self.trend else ""
        return view.text(f"{text}QUALITY", DIM)


def _line(row: _Row, view: View, columns: _Columns, *, live: bool) -> Text:
    trust = level(row.quality)
    good = trust is Level.GOOD and live
    mark = ({Level.GOOD: " ", Level.UNCERTAIN: "~", Level.BAD: "?"}[trust]) if live else "?"
    name = shorten(row.name, columns.name - len(row.horizon), view.glyphs) + row.horizon
    unit = view.glyphs.units.get(row.unit, row.unit)
    line = view.text(f" {name:<{columns.name}} ")
    line.append(f"{mark}{_shown(row, view.glyphs):>9} {unit:<{columns.unit}}", style=view.style(VALUE if good else DIM))
    if columns.scale:
        line.append(f"{scale(row.value, row.low, row.high, view.glyphs, good=good)}  ", style=view.style(PLAIN if good else DIM))
    if columns.trend:
        drawn = trend(binned(row.trend, columns.trend), row.low, row.high, view.glyphs)
        line.append(f"{drawn:<{columns.trend}} ", style=view.style(PLAIN if live else DIM))
    words, style = _quality(row, view.width - line.cell_len, live=live)
    return line + view.text(words, style)


def _shown(row: _Row, glyphs: Glyphs) -> str:
    if row.text:
        return shorten(row.text, 9, glyphs)
    return "-" if row.value is None else number(row.value, whole=row.unit == "1")


def _quality(row: _Row, room: int, *, live: bool) -> tuple[str, str]:
    """Words beside a value: none if it is good, heavy if it is not; colours stay with the alarms."""
    if not live:
        return "not live", "bold"
    if level(row.quality) is Level.GOOD:
        return (first_fitting(row.words, room), DIM) if code(row.quality) else ("", DIM)
    if row.calm:
        return first_fitting(row.words, room), PLAIN
    age = f" {duration(row.age_ms / 1000)}" if row.age_ms > _OLD_MS else ""
    return first_fitting([*(f"{words}{age}" for words in row.words), row.words[-1]], room), "bold"


def number(value: float, *, whole: bool = False) -> str:
    """At most nine characters, four significant digits, and no exponent an operator must decode."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if value == 0 or (whole and size < 1e8 and value == round(value)):
        return f"{value:.0f}" if value else "0"
    if size >= 1e8:
        factor, letter = next((factor, letter) for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if size >= factor)
        return f"{value / factor:.4g} {letter}"[:9]
    if size < 1e-4:
        return f"{value:.6f}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(size)))}f}"[:9]


def scale(value: float | None, low: float | None, high: float | None, glyphs: Glyphs, *, good: bool) -> str:
    """Where a value lies between its limits, on eleven places; a value beyond them points outwards."""
    if low is None or high is None or not math.isfinite(high - low) or high <= low:
        return " " * (_SCALE + 2)
    track, ends = [glyphs.track] * _SCALE, list(glyphs.ends)
    if value is not None and math.isfinite(value):
        if value < low:
            ends[0] = glyphs.beyond[0]
        elif value > high:
            ends[1] = glyphs.beyond[1]
        else:
            track[round((value - low) / (high - low) * (_SCALE - 1))] = glyphs.mark if good else glyphs.hollow
    return ends[0] + "".join(track) + ends[1]


def binned(points: Sequence[float | None], width: int) -> list[float | None]:
    """The points since the first known one, in at most so many columns; a column that is mostly gap is a gap."""
    first = next((i for i, point in enumerate(points) if _known(point)), len(points))
    known = list(points[first:])
    each = max(math.ceil(len(known) / width), 1)
    columns: list[float | None] = []
    for end in range(len(known), 0, -each):
        part = known[max(end - each, 0) : end]
        good = [point for point in part if point is not None and math.isfinite(point)]
        columns.append(sum(good) / len(good) if good and 2 * len(good) >= len(part) else None)
    return columns[::-1]


def _known(point: float | None) -> bool:
    return point is not None and math.isfinite(point)


def trend(points: Sequence[float | None], low: float | None, high: float | None, glyphs: Glyphs) -> str:
    """Levels of a short series, spread over at least a fifth of the engineering range."""
    known = [p for p in points if p is not None and math.isfinite(p)]
    if not known:
        return glyphs.gap * len(points)
    bottom, top = min(known), max(known)
    if low is not None and high is not None and math.isfinite(high - low) and high > low:
        middle, least = (bottom + top) / 2, (high - low) / _FINEST / 2
        bottom, top = min(bottom, middle - least), max(top, middle + least)
    levels = len(glyphs.trend) - 1
    span = top - bottom
    if span <= 0 or not math.isfinite(span):
        return "".join(glyphs.trend[levels // 2] if _known(p) else glyphs.gap for p in points)
    return "".join(glyphs.gap if p is None or not math.isfinite(p) else glyphs.trend[round((p - bottom) / span * levels)] for p in points)
