"""The declared signal path: what the bundle's manifest holds, and training and serving share."""

from dataclasses import dataclass
from typing import Literal

FilterKind = Literal["moving_mean", "weighted_mean", "ewma", "median", "hampel", "rate_clip"]
Alignment = Literal["last", "mean", "interpolate"]
ScalingKind = Literal["none", "standard", "min_max", "last_value"]
DerivedKind = Literal["difference", "rate", "counter", "bit_field", "ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSpec:
    """One filter of one input.

    Attributes:
        kind: Which filter.
        window: Samples it looks at, the newest included (`moving_mean`, `median`, `hampel`).
        weights: Of the samples, oldest first (`weighted_mean`); they need not sum to 1.
        alpha: Weight of the newest sample, in (0, 1] (`ewma`).
        n_sigmas: Robust standard deviations beyond which a sample is replaced by the median (`hampel`).
        max_rate_per_s: Largest change per second that passes (`rate_clip`), in the input's unit.
    """

    kind: FilterKind
    window: int = 1
    weights: tuple[float, ...] = ()
    alpha: float = 1.0
    n_sigmas: float = 3.0
    max_rate_per_s: float = 0.0


def _memory(spec: FilterSpec) -> int:
    """Samples after which a filter has forgotten its start (an EWMA to under one percent)."""
    return round(5 / spec.alpha) if spec.kind == "ewma" else max(spec.window, len(spec.weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSpec:
    """How an input is scaled: `(x - center) / scale`; for `last_value`, center is the window's newest value of that input."""

    kind: ScalingKind = "none"
    center: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One feature of a model.

    Attributes:
        name: Unique among inputs and derived inputs.
        unit: Unit the model was trained in; the configuration's tag is converted to it.
        low: Lower end of the credible range, in `unit`; a sample below is bad.
        high: Upper end of the credible range.
        align: How samples become one value per step.
        hold_limit_s: How long the last good value may stand in for a missing one.
        source_filters: Applied to samples as they come, in order.
        step_filters: Applied once per step after alignment, in order.
        scaling: Applied last.
    """

    name: str
    unit: str
    low: float = float("-inf")
    high: float = float("inf")
    align: Alignment = "last"
    hold_limit_s: float = 5.0
    source_filters: tuple[FilterSpec, ...] = ()
    step_filters: tuple[FilterSpec, ...] = ()
    scaling: ScalingSpec = ScalingSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedSpec:
    """A signal computed from others of one group.

    Attributes:
        name: Of the new signal.
        kind: How it is computed.
        sources: `difference` and `ratio`: two; the others: one.
        unit: Unit of the result.
        bits: Counter width (16, 32 or 64) for `counter`.
        first_bit: Lowest bit of a `bit_field`.
        bit_count: Width of a `bit_field`.
        scale: Factor on the result (`counter`: engineering units per count).
    """

    name: str
    kind: DerivedKind
    sources: tuple[str, ...]
    unit: str = "1"
    bits: int = 32
    first_bit: int = 0
    bit_count: int = 1
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSpec:
    """The whole path from samples to scaled windows.

    Attributes:
        period_s: Step of the model's grid.
        window: Steps in a window.
        inputs: Features, in the model's order. An input may name a derived signal.
        derived: Signals computed first; their sources name signals mapped like inputs.
        enable: Expression over inputs and derived signals (`current > 0.5 and flow > 1`); empty: always.
        enable_discard_steps: Steps left out after it turns true.
        coverage_good: Share of cells observed or held for a GOOD window (c1).
        coverage_uncertain: The same for an UNCERTAIN one (c2); below it nothing is inferred.
        newest_observed: Newest steps that must be observed for GOOD (k), inputs of slower groups excepted.
        max_lateness_s: How far the furthest group may be ahead before a step closes without the others.
        gap_reset_s: Jump of event time that starts a new epoch.
    """

    period_s: float
    window: int
    inputs: tuple[InputSpec, ...]
    derived: tuple[DerivedSpec, ...] = ()
    enable: str = ""
    enable_discard_steps: int = 0
    coverage_good: float = 0.9
    coverage_uncertain: float = 0.7
    newest_observed: int = 1
    max_lateness_s: float = 2.0
    gap_reset_s: float = 30.0

    @property
    def warm_up_s(self) -> float:
        """Length of history that fills the window, the filters and the enable discard."""
        deepest = max((sum(map(_memory, (*i.source_filters, *i.step_filters))) for i in self.inputs), default=0)
        return (self.window + self.enable_discard_steps + deepest + 1) * self.period_s

    def signals(self) -> tuple[str, ...]:
        """Names the configuration maps to tags: inputs and sources of derived signals, derived ones left out."""
        derived = {spec.name for spec in self.derived}
        names = dict.fromkeys(i.name for i in self.inputs if i.name not in derived)
        names.update(dict.fromkeys(s for spec in self.derived for s in spec.sources if s not in derived))
        return tuple(names)
