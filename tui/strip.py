"""The stage strip: sources, windows, inference and sinks on two lines."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text

from gateway.core.prediction import Outcome
from gateway.core.quality import Level, Ne107, level
from gateway.core.snapshot import GatewaySnapshot, ModelStatus
from tui.glyphs import COLOURS
from tui.view import DIM, PLAIN, View, first_fitting

_LETTERS = {Ne107.GOOD: "", Ne107.MAINTENANCE_REQUIRED: "M", Ne107.OUT_OF_SPECIFICATION: "S", Ne107.FUNCTION_CHECK: "C", Ne107.FAILURE: "F"}
_WORDS = {
    Ne107.GOOD: "",
    Ne107.MAINTENANCE_REQUIRED: "Maintenance",
    Ne107.OUT_OF_SPECIFICATION: "Out of spec",
    Ne107.FUNCTION_CHECK: "Function check",
    Ne107.FAILURE: "Failure",
}
_NOT_RUNNING = (Outcome.DISABLED.value, Outcome.WARMING_UP.value)


@dataclass(frozen=True, slots=True)
class Stage:
    """One cell: variants of its texts, the longest first, and whose alarms colour it."""

    heads: tuple[str, ...]
    word: Ne107
    details: tuple[str, ...]
    components: tuple[str, ...] = ()


def stage_strip(snapshot: GatewaySnapshot, view: View) -> list[Text]:
    """Two lines, each stage a quarter of the width."""
    heads, details = Text(), Text()
    stages = (_sources(snapshot), _windows(snapshot), _inference(snapshot), _sinks(snapshot))
    width = view.width // 4
    for place, stage in enumerate(stages, 1):
        letter = _LETTERS[stage.word]
        head = first_fitting(stage.heads, width - 2 - (len(letter) + 1 if letter else 0))
        word = first_fitting([f"{letter} {_WORDS[stage.word]}", letter], width - 3 - len(head)) if letter else ""
        heads.append(f" {head}", style=view.style(PLAIN))
        heads.append(f" {word}" if word else "", style=view.style(_colour(snapshot, stage)))
        heads.pad_right(width * place - heads.cell_len)
        details.append(f" {first_fitting(stage.details, width - 2)}", style=view.style(DIM))
        details.pad_right(width * place - details.cell_len)
    return [heads, details]


def _colour(snapshot: GatewaySnapshot, stage: Stage) -> str:
    """Colour means priority: the stage has that of its most urgent alarm, and none without one."""
    priorities = [a.condition.priority for a in snapshot.alarms if a.condition.component in stage.components and a.needs_attention]
    return COLOURS[min(priorities)] if priorities else "bold"


def _worst(words: Iterable[Ne107]) -> Ne107:
    return max(words, default=Ne107.GOOD)


def _sources(snapshot: GatewaySnapshot) -> Stage:
    sources = snapshot.sources
    well = sum(source.word < Ne107.OUT_OF_SPECIFICATION for source in sources)
    tags, good = sum(s.tags for s in sources), sum(s.good_tags for s in sources)
    p99 = f"{max((s.cycle_p99_ms for s in sources), default=0.0):.0f} ms"
    details = (f"{good}/{tags} tags good, p99 {p99}", f"{good}/{tags} tags, {p99}", f"{good}/{tags} tags", f"{good}/{tags}")
    names = tuple(source.name for source in sources)
    return Stage((f"SOURCES {well}/{len(sources)}", "SOURCES"), _worst(s.word for s in sources), details if sources else ("none",), names)


def _windows(snapshot: GatewaySnapshot) -> Stage:
    assets = [asset for model in snapshot.models for asset in model.assets]
    # A machine that stands still, or whose window is filling after a start, is no fault of the window.
    running = [asset for asset in assets if asset.outcome not in _NOT_RUNNING]
    well = sum(level(asset.quality) is Level.GOOD for asset in running)
    filling = sum(asset.outcome == Outcome.WARMING_UP for asset in assets)
    standing = sum(asset.outcome == Outcome.DISABLED for asset in assets)
    parts = [f"{min(asset.coverage for asset in running):.0%} valid"] if running else []
    parts += [f"{filling} filling"] if filling else []
    parts += [f"{standing} stopped"] if standing else []
    word = Ne107.GOOD if well == len(running) else Ne107.OUT_OF_SPECIFICATION
    names = tuple(model.name for model in snapshot.models)
    details = (", ".join(parts), " ".join(parts), parts[-1]) if parts else ("none",)
    return Stage((f"WINDOWS {well}/{len(running)}", "WINDOWS"), word, details, names)


def _inference(snapshot: GatewaySnapshot) -> Stage:
    if not snapshot.models:
        return Stage(("INFERENCE off", "INFERENCE"), Ne107.GOOD, ("no model configured", "no model", "none"))
    model = max(snapshot.models, key=_own_word)
    p99 = f"{model.latency_ms.get('inference', (0.0, 0.0, 0.0))[2]:.1f} ms"
    details = (f"{model.backend} p99 {p99}", f"{model.backend} {p99}", model.backend)
    return Stage(("INFERENCE",), _own_word(model), details, tuple(m.name for m in snapshot.models))


def _own_word(model: ModelStatus) -> Ne107:
    """The model's word, unless it only repeats what its windows say already."""
    if model.word is Ne107.OUT_OF_SPECIFICATION and any(level(asset.quality) is not Level.GOOD for asset in model.assets):
        return Ne107.GOOD
    return model.word


def _sinks(snapshot: GatewaySnapshot) -> Stage:
    sinks, targets = snapshot.sinks, snapshot.targets
    states = sorted({target.state.split()[0] for target in targets})
    up = f"{sum(sink.word < Ne107.OUT_OF_SPECIFICATION for sink in sinks)}/{len(sinks)}"
    long, short = "/".join(states) or "no writes", (states[0] if len(states) == 1 else "MIXED") if states else ""
    heads = (f"SINKS {up} {long}", f"SINKS {up} {short}".rstrip(), f"SINKS {short}".rstrip(), short or "SINKS")
    waiting, lost = sum(sink.waiting for sink in sinks), sum(sink.dropped + sink.rejected for sink in sinks)
    fill = max((sink.fill for sink in sinks), default=0.0)
    details = (f"spool {fill:.0%}, {waiting} waiting, {lost} lost", f"spool {fill:.0%} lost {lost}", f"lost {lost}")
    words = [*(sink.word for sink in sinks), *(target.word for target in targets)]
    names = (*(sink.name for sink in sinks), *(target.name for target in targets))
    return Stage(heads, _worst(words), details if sinks else ("no subscribers", "none"), names)
