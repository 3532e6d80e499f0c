"""The unit vocabulary: one spelling per unit inside the house, aliases converted once at the edge."""

from dataclasses import dataclass
from difflib import get_close_matches

from gateway.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit, as `base = value * factor + offset` of its dimension's base unit."""

    symbol: str
    dimension: str
    factor: float = 1.0
    offset: float = 0.0


_TABLE = (
    Unit("1", "ratio"),
    Unit("%", "ratio", 0.01),
    Unit("degC", "temperature"),
    Unit("K", "temperature", 1.0, -273.15),
    Unit("degF", "temperature", 5 / 9, -32 * 5 / 9),
    Unit("bar", "pressure", 1e5),
    Unit("mbar", "pressure", 1e2),
    Unit("Pa", "pressure"),
    Unit("kPa", "pressure", 1e3),
    Unit("MPa", "pressure", 1e6),
    Unit("psi", "pressure", 6894.757293168),
    Unit("l/min", "volume flow", 1 / 60000),
    Unit("l/s", "volume flow", 1e-3),
    Unit("m3/h", "volume flow", 1 / 3600),
    Unit("m3/s", "volume flow"),
    Unit("A", "current"),
    Unit("mA", "current", 1e-3),
    Unit("V", "voltage"),
    Unit("mV", "voltage", 1e-3),
    Unit("kV", "voltage", 1e3),
    Unit("W", "power"),
    Unit("kW", "power", 1e3),
    Unit("MW", "power", 1e6),
    Unit("kvar", "reactive power"),
    Unit("Wh", "energy", 3600.0),
    Unit("kWh", "energy", 3.6e6),
    Unit("MWh", "energy", 3.6e9),
    Unit("g", "acceleration", 9.80665),
    Unit("m/s2", "acceleration"),
    Unit("mm/s", "velocity", 1e-3),
    Unit("m/s", "velocity"),
    Unit("mm", "length", 1e-3),
    Unit("m", "length"),
    Unit("um", "length", 1e-6),
    Unit("rpm", "rotation", 1 / 60),
    Unit("Hz", "rotation"),
    Unit("s", "time"),
    Unit("ms", "time", 1e-3),
    Unit("min", "time", 60.0),
    Unit("h", "time", 3600.0),
    Unit("kg", "mass"),
    Unit("t", "mass", 1e3),
    Unit("N", "force"),
    Unit("kN", "force", 1e3),
    Unit("N.m", "torque"),
    Unit("m3", "volume"),
    Unit("l", "volume", 1e-3),
    Unit("kg/h", "mass flow", 1 / 3600),
    Unit("kg/s", "mass flow"),
    Unit("ppm", "concentration"),
    Unit("pH", "acidity"),
)
UNITS = {unit.symbol: unit for unit in _TABLE}
_ALIASES = {
    "": "1",
    "-": "1",
    "°C": "degC",
    "C": "degC",
    "celsius": "degC",
    "°F": "degF",
    "F": "degF",
    "percent": "%",
    "pct": "%",
    "lpm": "l/min",
    "L/min": "l/min",
    "L/s": "l/s",
    "m³/h": "m3/h",
    "m^3/h": "m3/h",
    "m³/s": "m3/s",
    "m³": "m3",
    "m/s²": "m/s2",
    "m/s^2": "m/s2",
    "µm": "um",
    "1/min": "rpm",
    "Nm": "N.m",
    "L": "l",
    "sec": "s",
    "amp": "A",
    "volt": "V",
}


def unit(name: str) -> Unit:
    """The unit a user wrote, by symbol or alias.

    Raises:
        ConfigError: The vocabulary does not have it; the remedy names the nearest one.
    """
    symbol = _ALIASES.get(name.strip(), name.strip())
    found = UNITS.get(symbol)
    if found is None:
        near = get_close_matches(symbol, [*UNITS, *_ALIASES], n=1, cutoff=0.4)
        hint = f"did you mean '{_ALIASES.get(near[0], near[0])}'?" if near else f"use one of {', '.join(UNITS)}"
        raise ConfigError(f"unknown unit '{name}'", remedy=hint)
    return found


def conversion(source: str, target: str) -> tuple[float, float]:
    """`(factor, offset)` so that `target_value = source_value * factor + offset`.

    Raises:
        ConfigError: A unit is unknown, or the two measure different things.
    """
    a, b = unit(source), unit(target)
    if a.dimension != b.dimension:
        raise ConfigError(f"unit '{source}' is a {a.dimension}, '{target}' is a {b.dimension}", remedy=f"use a unit of {b.dimension}")
    return a.factor / b.factor, (a.offset - b.offset) / b.factor
