"""What the settings mean: the table of tags, the wiring of models to tags, guard rules."""

from collections.abc import Mapping, Sequence

from connectors.modbus.settings import ModbusGroupSettings, ModbusTagSettings, WireType
from gateway.config.schema import DerivedSettings, GuardedTargetSettings, Settings
from gateway.control.limits import Limit, TargetRules
from gateway.core.tags import DataType, Tag, TagTable
from gateway.core.units import conversion
from inference.settings import ModelSettings
from preprocess.derive import DerivedTags
from preprocess.spec import ChainSpec, DerivedSpec
from preprocess.steps import AssetBinding

_INFINITY = float("inf")
_TYPES = {
    WireType.BOOL: DataType.BOOL,
    WireType.INT16: DataType.INT16,
    WireType.UINT16: DataType.UINT16,
    WireType.INT32: DataType.INT32,
    WireType.UINT32: DataType.UINT32,
    WireType.FLOAT32: DataType.FLOAT32,
}


def tag_table(settings: Settings, table: TagTable | None = None) -> TagTable:
    """The tags and groups of a configuration, added to a table that may hold an earlier one's."""
    table = TagTable() if table is None else table  # an empty table is false
    for source in settings.sources:
        for group in source.groups:
            domain = group.clock.name if group.clock else "gateway"
            numbered = table.add_group(
                f"{source.name}/{group.name}", source.name, group.period_s, domain=domain, silence_limit_s=group.silence_limit_s
            )
            for tag in group.tags:
                table.add(_tag(tag, numbered.id))
    for derived in settings.derived:
        group_id = table[table.number(derived.sources[0])].group
        table.add(Tag(derived.name, derived.unit, DataType.FLOAT64, group_id))
    return table


def _tag(tag: ModbusTagSettings, group: int) -> Tag:
    low = -_INFINITY if tag.low is None else tag.low
    high = _INFINITY if tag.high is None else tag.high
    scaled = tag.scale != 1 or tag.offset != 0
    data_type = DataType.FLOAT64 if scaled else _TYPES[tag.type]
    return Tag(tag.name, tag.unit, data_type, group, low, high, tag.dead_band, tag.description)


def derived_spec(derived: DerivedSettings) -> DerivedSpec:
    """The specification of a derived tag."""
    return DerivedSpec(
        name=derived.name,
        kind=derived.kind,
        sources=tuple(derived.sources),
        unit=derived.unit,
        bits=derived.bits,
        first_bit=derived.first_bit,
        bit_count=derived.bit_count,
        scale=derived.scale,
    )


def derived_tags(settings: Settings, table: TagTable) -> dict[int, DerivedTags]:
    """What computes the derived tags, by group id."""
    by_group: dict[int, list[DerivedSpec]] = {}
    for derived in settings.derived:
        by_group.setdefault(table[table.number(derived.name)].group, []).append(derived_spec(derived))
    return {
        group: DerivedTags(specs, {name: table.number(name) for spec in specs for name in (spec.name, *spec.sources)})
        for group, specs in by_group.items()
    }


def bindings(model: ModelSettings, chain: ChainSpec, table: TagTable) -> list[AssetBinding]:
    """Which tag feeds which signal of each asset, with the unit conversions."""
    units = {spec.name: spec.unit for spec in chain.inputs}
    result: list[AssetBinding] = []
    for asset in model.assets:
        tags = {signal: table.number(model.tag_of(asset, signal)) for signal in chain.signals()}
        factors = {
            signal: conversion(table[tag].unit, units[signal])
            for signal, tag in tags.items()
            if table[tag].unit != units.get(signal, table[tag].unit)
        }
        result.append(AssetBinding(asset.name, tags, factors))
    return result


def rules(target: GuardedTargetSettings) -> TargetRules:
    """How a target is guarded."""
    limits: Mapping[str, Limit] = {
        name: Limit(limit.low, limit.high, limit.max_step, limit.max_rate_per_s) for name, limit in target.limits.items()
    }
    return TargetRules(
        limits,
        target.heartbeat_s,
        target.valid_for_ms,
        target.min_interval_ms,
        target.read_back,
        target.dry_run,
        None if target.hold == "last" else dict(target.hold),
    )


def groups_of(model: ModelSettings, chain: ChainSpec, settings: Settings) -> Sequence[tuple[str, ModbusGroupSettings]]:
    """Names and settings of the groups that feed a model."""
    wanted = {model.tag_of(asset, signal) for asset in model.assets for signal in chain.signals()}
    by_derived = {derived.name: derived.sources[0] for derived in settings.derived}
    wanted = {by_derived.get(name, name) for name in wanted}
    return [
        (f"{source.name}/{group.name}", group)
        for source in settings.sources
        for group in source.groups
        if wanted & {tag.name for tag in group.tags}
    ]
