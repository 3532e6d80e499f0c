"""The plants: deterministic physics, faults that show, recordings at their own times."""

from pathlib import Path

import numpy as np
import pytest

from connectors.replay.recording import Recording
from connectors.simulator.plant import RANGES, SIGNALS, Fault, Injection, rows
from connectors.simulator.playback import OnHole, RecordingPlant
from connectors.simulator.pumps import PumpPlant
from gateway.core.clock import SystemClock
from tests.virtual_clock import VirtualClock, settle

SECOND_NS = 10**9


def run(seed: int, injections: tuple[Injection, ...] = (), count: int = 1200) -> np.ndarray:
    return np.stack([values for _, values in rows(seed, 0.25, count, injections)])


def test_the_same_seed_gives_the_same_plant_and_another_seed_another() -> None:
    assert np.array_equal(run(3, count=200), run(3, count=200))
    assert not np.array_equal(run(3, count=200), run(4, count=200))


def test_a_healthy_plant_stays_within_its_ranges_and_moves() -> None:
    values = run(5)
    for i, signal in enumerate(SIGNALS):
        low, high = RANGES[signal]
        assert (values[:, :, i] >= low - 1).all()
        assert (values[:, :, i] <= high).all()
        assert np.ptp(values[:, 0, i]) > 0.02 * (high - low)


@pytest.mark.parametrize(
    ("fault", "signal", "rises"),
    [
        (Fault.BEARING_WEAR, "bearing_temperature", True),
        (Fault.BEARING_WEAR, "vibration", True),
        (Fault.CAVITATION, "vibration", True),
        (Fault.BLOCKED_OUTLET, "flow", False),
    ],
)
def test_a_fault_shows_on_its_pump_and_not_on_the_other(fault: Fault, signal: str, *, rises: bool) -> None:
    column = SIGNALS.index(signal)
    healthy, faulty = run(5)[-200:, :, column].mean(axis=0), run(5, (Injection(0, fault, 60.0),))[-200:, :, column].mean(axis=0)

    assert (faulty[0] > healthy[0] * 1.1) if rises else (faulty[0] < healthy[0] * 0.9)
    assert faulty[1] == pytest.approx(healthy[1])


def test_a_stuck_sensor_does_not_move() -> None:
    values = run(5, (Injection(1, Fault.STUCK_SENSOR, 60.0),))[300:, 1, SIGNALS.index("bearing_temperature")]

    assert np.ptp(values) == 0


async def test_a_silent_controller_does_not_answer() -> None:
    async with PumpPlant(SystemClock(), injections=(Injection(0, Fault.COMMUNICATION_LOSS, 0.0),)) as plant:
        assert plant._server.answer(1, b"\x04\x00\x00\x00\x02") is None


def recording() -> Recording:
    seconds = np.array([100, 101, 104, 105], np.int64)
    return Recording(Path("r.csv"), ("a",), seconds * SECOND_NS, np.array([[1.0], [2.0], [3.0], [4.0]]), 0)


def ask(plant: RecordingPlant) -> tuple[int, int, float] | int:
    """Stamp, row number and value as a client reads them, or the exception code."""
    answer = plant._server.answer(1, b"\x04\x00\x00\x00\x06")
    assert answer is not None
    if answer[0] & 0x80:
        return answer[1]
    stamp, row = np.frombuffer(answer[2:10], ">u4").tolist()
    return stamp, row, float(np.frombuffer(answer[10:14], ">f4")[0])


@pytest.mark.parametrize("on_hole", list(OnHole))
async def test_rows_come_at_their_recorded_times_and_a_hole_looks_as_chosen(on_hole: OnHole) -> None:
    clock = VirtualClock()
    async with RecordingPlant([recording()], clock, speed=2.0, on_hole=on_hole) as plant:
        await settle()
        seen = []
        for _ in range(7):
            await clock.advance(0.5)
            seen.append(ask(plant))

    hole = [(101, 2, 2.0)] * 2 if on_hole is OnHole.FREEZE else [4, 4]
    assert seen == [(100, 1, 1.0), (101, 2, 2.0), *hole, (104, 3, 3.0), (105, 4, 4.0), (105, 4, 4.0)]
    assert plant.finished.is_set()


async def test_a_plant_that_waits_starts_with_the_first_request() -> None:
    clock = VirtualClock()
    async with RecordingPlant([recording()], clock, wait=True) as plant:
        await clock.advance(50)
        first = ask(plant)
        await settle()
        await clock.advance(2)
        second = ask(plant)

    assert first == (100, 1, 1.0)
    assert second == (101, 2, 2.0)


async def test_two_plants_on_one_port_choose_different_ones() -> None:
    async with PumpPlant(SystemClock()) as one, PumpPlant(SystemClock(), port=one.port) as two:
        assert one.port != two.port
