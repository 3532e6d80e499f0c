"""Two centrifugal pumps: demand, flow, pressure, motor current, bearing temperature and vibration. Pure and seeded."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float64]

PUMPS = ("pump1", "pump2")
SIGNALS = ("flow", "pressure", "current", "bearing_temperature", "vibration")
UNITS = {"flow": "l/min", "pressure": "bar", "current": "A", "bearing_temperature": "degC", "vibration": "mm/s"}
RANGES = {"flow": (0, 80), "pressure": (0, 8), "current": (0, 12), "bearing_temperature": (0, 130), "vibration": (0, 20)}

_NOISE = np.array([0.25, 0.02, 0.03, 0.05, 0.04])
_AMBIENT_DEG_C = 22.0


class Fault(StrEnum):
    """What can be made to go wrong with a pump."""

    BEARING_WEAR = "bearing-wear"
    CAVITATION = "cavitation"
    BLOCKED_OUTLET = "blocked-outlet"
    STUCK_SENSOR = "stuck-sensor"
    NOISY_SENSOR = "noisy-sensor"
    COMMUNICATION_LOSS = "communication-loss"


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault of one pump, from a time of the plant on, for a while."""

    pump: int
    fault: Fault
    start_s: float
    duration_s: float = float("inf")

    def active(self, time_s: float) -> bool:
        """Whether it acts at that time."""
        return self.start_s <= time_s < self.start_s + self.duration_s


class PumpPhysics:
    """Steps two pumps through time.

    The operators' demand moves in ramps between levels, held for 10 to 25 s. Flow follows the valve within a second, pressure follows the
    pump curve, current the hydraulic power; the bearing has two thermal masses (4 s and 25 s), and vibration follows flow squared with a
    resonance that decays within 3 s after a change.

    Args:
        seed: Of demand and noise.
        injections: Faults to come.
    """

    def __init__(self, seed: int = 7, injections: tuple[Injection, ...] = ()) -> None:
        self._random = np.random.default_rng(seed)
        self._injections = list(injections)
        pumps = len(PUMPS)
        self.time_s = 0.0
        self._target = np.full(pumps, 0.6)
        self._demand = np.full(pumps, 0.6)
        self._next_change_s = self._random.uniform(3, 10, pumps)
        self._flow = 80 * self._demand * 0.7
        self._winding = np.full(pumps, 24.0)
        self._bearing = np.full(pumps, 46.0)
        self._swing = np.zeros(pumps)
        self._last = np.zeros((pumps, len(SIGNALS)))

    def inject(self, injection: Injection) -> None:
        """Add a fault."""
        self._injections.append(injection)

    def silent(self, pump: int) -> bool:
        """Whether the pump's controller does not answer now."""
        return bool(self._severity(Fault.COMMUNICATION_LOSS)[pump] > 0)

    def _severity(self, fault: Fault) -> Row:
        """How far a fault has developed on each pump, 0 to 1; wear grows over a minute."""
        level = np.zeros(len(PUMPS))
        for injection in self._injections:
            if injection.fault is fault and injection.active(self.time_s):
                age_s = self.time_s - injection.start_s
                level[injection.pump] = min(age_s / 60.0, 1.0) if fault is Fault.BEARING_WEAR else 1.0
        return level

    def step(self, dt_s: float) -> Row:
        """Advance and measure.

        Returns:
            `[pumps, signals]` in the units of `UNITS`, sensor noise included.
        """
        self.time_s += dt_s
        self._move_demand(dt_s)
        blocked, cavitation = self._severity(Fault.BLOCKED_OUTLET), self._severity(Fault.CAVITATION)
        wear = self._severity(Fault.BEARING_WEAR)
        wanted = 78 * self._demand * (1 - 0.85 * blocked) * (1 - 0.3 * cavitation)
        before = self._flow
        self._flow = self._flow + (wanted - self._flow) * (1 - np.exp(-dt_s / 0.8))
        pressure = 6.2 - 0.00042 * self._flow**2 + 1.2 * blocked - 0.8 * cavitation
        current = 2.1 + 0.062 * self._flow * np.maximum(pressure, 0.5) / 3.0 + 1.4 * blocked + 0.8 * wear
        heat = 3.4 * current + 26 * wear
        self._winding = self._winding + (heat - self._winding) * (1 - np.exp(-dt_s / 4.0))
        settled = _AMBIENT_DEG_C + self._winding * 1.05 - 0.08 * self._flow
        self._bearing = self._bearing + (settled - self._bearing) * (1 - np.exp(-dt_s / 25.0))
        self._swing = self._swing * np.exp(-dt_s / 3.0) + np.abs(self._flow - before) * 0.25
        vibration = 0.8 + 0.00055 * self._flow**2 + self._swing + 4.5 * wear + 3.0 * cavitation + 0.01 * (self._bearing - 40)
        clean = np.stack([self._flow, pressure, current, self._bearing, vibration], axis=1)
        return self._measured(clean)

    def _move_demand(self, dt_s: float) -> None:
        due = self.time_s >= self._next_change_s
        if due.any():
            self._target = np.where(due, self._random.uniform(0.25, 0.95, len(due)), self._target)
            self._next_change_s = np.where(due, self.time_s + self._random.uniform(10, 25, len(due)), self._next_change_s)
        self._demand = self._demand + np.clip(self._target - self._demand, -0.08 * dt_s, 0.08 * dt_s)

    def _measured(self, clean: Row) -> Row:
        noise = self._random.standard_normal(clean.shape) * _NOISE
        noisy = self._severity(Fault.NOISY_SENSOR)[:, None]
        values: Row = clean + noise * (1 + 14 * noisy)
        stuck = self._severity(Fault.STUCK_SENSOR) > 0
        temperature = SIGNALS.index("bearing_temperature")
        values[stuck, temperature] = self._last[stuck, temperature]
        self._last = values.copy()
        return values


def rows(seed: int, period_s: float, count: int, injections: tuple[Injection, ...] = ()) -> Iterator[tuple[float, Row]]:
    """Time in seconds and `[pumps, signals]` of `count` samples, `period_s` apart."""
    physics = PumpPhysics(seed, injections)
    for _ in range(count):
        values = physics.step(period_s)
        yield physics.time_s, values


def columns() -> list[str]:
    """Names of all signals, `pump1.flow` and so on, in the order of a flattened row."""
    return [f"{pump}.{signal}" for pump in PUMPS for signal in SIGNALS]
