"""The training specification: a small YAML file, decoded strictly."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from gateway.core.errors import ConfigError
from gateway.core.prediction import OutputSpec
from gateway.core.units import unit
from inference.decoding import decode
from preprocess.spec import Alignment, ChainSpec, DerivedSpec, FilterSpec, InputSpec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=0.5)]


class InputPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input and the column it is read from (its own name if left out; `{asset}` is filled in)."""

    name: str
    unit: str
    column: str = ""
    low: float = float("-inf")
    high: float = float("inf")
    align: Alignment = "last"
    hold_limit_s: float = 5.0
    source_filters: tuple[FilterSpec, ...] = ()
    step_filters: tuple[FilterSpec, ...] = ()


class OutputPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Forecasts of one input at several horizons."""

    input: str
    horizons_s: tuple[Positive, ...]
    low: float
    high: float


class NetworkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes and rates; see `inference.workshop.network.Recipe`."""

    hidden: Count = 32
    layers: Count = 1
    epochs: Annotated[int, msgspec.Meta(ge=0)] = 40
    batch: Count = 256
    rate: Positive = 2e-3
    weight_decay: float = 1e-4
    patience: Count = 6


class TrainingPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is trained on what.

    Attributes:
        name: Of the bundle.
        version: Of the bundle.
        period_s: Step of the grid.
        window: Steps in a window.
        inputs: Features, in order.
        outputs: Forecasts.
        assets: Names filled into `{asset}` of the columns; one nameless asset if empty.
        derived: Derived inputs.
        enable: See `ChainSpec`.
        enable_discard_steps: See `ChainSpec`.
        max_lateness_s: See `ChainSpec`.
        gap_reset_s: See `ChainSpec`.
        validation_share: Share of one recording used for early stopping, where no file is named for it.
        test_share: Share of one recording read once at the end, where no file is named for it.
        network: Sizes and rates.
        licence: Of the resulting bundle.
    """

    name: str
    version: str
    period_s: Positive
    window: Count
    inputs: tuple[InputPlan, ...]
    outputs: tuple[OutputPlan, ...]
    assets: tuple[str, ...] = ()
    derived: tuple[DerivedSpec, ...] = ()
    enable: str = ""
    enable_discard_steps: int = 0
    max_lateness_s: float = 2.0
    gap_reset_s: float = 30.0
    coverage_good: float = 0.9
    coverage_uncertain: float = 0.7
    validation_share: Share = 0.15
    test_share: Share = 0.15
    network: NetworkPlan = NetworkPlan()
    licence: str = ""

    def chain(self) -> ChainSpec:
        """The signal path, not yet scaled."""
        inputs = tuple(
            InputSpec(
                name=i.name,
                unit=unit(i.unit).symbol,
                low=i.low,
                high=i.high,
                align=i.align,
                hold_limit_s=i.hold_limit_s,
                source_filters=i.source_filters,
                step_filters=i.step_filters,
            )
            for i in self.inputs
        )
        return ChainSpec(
            period_s=self.period_s,
            window=self.window,
            inputs=inputs,
            derived=self.derived,
            enable=self.enable,
            enable_discard_steps=self.enable_discard_steps,
            max_lateness_s=self.max_lateness_s,
            gap_reset_s=self.gap_reset_s,
            coverage_good=self.coverage_good,
            coverage_uncertain=self.coverage_uncertain,
        )

    def output_specs(self) -> tuple[OutputSpec, ...]:
        """One output per input and horizon, named `input_5s`."""
        units = {i.name: unit(i.unit).symbol for i in self.inputs}
        return tuple(OutputSpec(f"{o.input}_{h:g}s", units[o.input], h, o.low, o.high, o.input) for o in self.outputs for h in o.horizons_s)

    def column_of(self, signal: str, asset: str) -> str:
        """Column of a signal."""
        columns = {i.name: i.column or i.name for i in self.inputs}
        return columns.get(signal, signal).format(asset=asset)


def load_plan(path: Path) -> TrainingPlan:
    """Read a specification.

    Raises:
        ConfigError: It is not there, or something in it is wrong; the text says where.
    """
    try:
        plan = decode(path.read_bytes(), TrainingPlan, "yaml")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file", remedy="check the name") from error
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", remedy="see docs/models.md for the specification") from error
    for wrong, remedy in _mistakes(plan):
        raise ConfigError(f"{path}: {wrong}", remedy=remedy)
    return plan


def _mistakes(plan: TrainingPlan) -> Iterator[tuple[str, str]]:
    """What is wrong in a specification whose form is right, and what would be right."""
    names = [i.name for i in plan.inputs]
    known = ", ".join(names)
    if not names or len(set(names)) != len(names) or not plan.outputs:
        yield "inputs or outputs are missing, or an input is repeated", "name each input once, and at least one output"
    for o in plan.outputs:
        if o.input not in names:
            yield f"output '{o.input}' is no input", f"an output forecasts one of: {known}"
        if not o.low < o.high:
            yield f"output '{o.input}' has limits {o.low:g} to {o.high:g}", "low lies below high"
        off = [h for h in o.horizons_s if abs(h / plan.period_s - round(h / plan.period_s)) > 1e-6]
        if off or not o.horizons_s:
            yield f"output '{o.input}' has horizons {list(o.horizons_s)}", f"choose multiples of period_s = {plan.period_s:g}"
    for i in plan.inputs:
        try:
            i.column.format(asset="")
        except (KeyError, IndexError, ValueError):
            yield f"input '{i.name}' has column '{i.column}'", "only {asset} is filled in"
