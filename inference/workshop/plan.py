"""The training specification: a small YAML file, decoded strictly."""

from pathlib import Path

import msgspec

from gateway.core.errors import ConfigError
from gateway.core.prediction import OutputSpec
from gateway.core.units import unit
from preprocess.spec import ChainSpec, DerivedSpec, FilterSpec, InputSpec


class InputPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input and the column it is read from (its own name if left out; `{asset}` is filled in)."""

    name: str
    unit: str
    column: str = ""
    low: float = float("-inf")
    high: float = float("inf")
    align: str = "last"
    hold_limit_s: float = 5.0
    source_filters: tuple[FilterSpec, ...] = ()
    step_filters: tuple[FilterSpec, ...] = ()


class OutputPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Forecasts of one input at several horizons."""

    input: str
    horizons_s: tuple[float, ...]
    low: float
    high: float


class NetworkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes and rates; see `inference.workshop.network.Recipe`."""

    hidden: int = 32
    layers: int = 1
    epochs: int = 40
    batch: int = 256
    rate: float = 2e-3
    weight_decay: float = 1e-4
    patience: int = 6


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
    period_s: float
    window: int
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
    validation_share: float = 0.15
    test_share: float = 0.15
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
                align=i.align,  # type: ignore[arg-type]  # checked by `load_plan`
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
        plan = msgspec.yaml.decode(path.read_bytes(), type=TrainingPlan)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file", remedy="check the name") from error
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", remedy="see docs/models.md for the specification") from error
    names = [i.name for i in plan.inputs]
    known = {*names, *(d.name for d in plan.derived)}
    wrong = [o.input for o in plan.outputs if o.input not in names]
    wrong += [i.align for i in plan.inputs if i.align not in ("last", "mean", "interpolate")]
    if wrong or len(set(names)) != len(names) or not plan.outputs or not known:
        raise ConfigError(f"{path}: {', '.join(wrong) or 'inputs or outputs'} is wrong", remedy="outputs name inputs; names are unique")
    if any(abs(h / plan.period_s - round(h / plan.period_s)) > 1e-6 for o in plan.outputs for h in o.horizons_s):
        raise ConfigError(f"{path}: a horizon is no multiple of period_s", remedy="choose horizons on the grid")
    return plan
