"""The protocol on the pump testbed: files, specification, configuration, and the score computed from the CSV."""

import csv
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.processes import LINESIDE
from tests.recordings import RECORDINGS

VALVE = RECORDINGS / "skab" / "valve1"
SPECIFICATION = Path(__file__).parent / "skab.yaml"
TRAIN, VALIDATION, TEST = range(11), (11, 12), (13, 14, 15)
COLUMNS = {
    "vibration1": ("Accelerometer1RMS", "g"),
    "vibration2": ("Accelerometer2RMS", "g"),
    "current": ("Current", "A"),
    "pressure": ("Pressure", "bar"),
    "temperature": ("Temperature", "degC"),
    "thermocouple": ("Thermocouple", "degC"),
    "voltage": ("Voltage", "V"),
    "flow": ("Volume Flow RateRMS", "l/min"),
}
TARGETS = ("temperature", "flow", "vibration1")
HORIZONS = range(1, 11)


def files(numbers: range | tuple[int, ...]) -> list[Path]:
    return [VALVE / f"{number}.csv" for number in numbers]


def train(out: Path, seed: int) -> str:
    """Train with the command a user would type; what it printed."""
    command = [LINESIDE, "model", "train", str(SPECIFICATION), "--out", str(out), "--seed", str(seed)]
    for option, numbers in (("--train", TRAIN), ("--validation", VALIDATION), ("--test", TEST)):
        for path in files(numbers):
            command += [option, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def measured(path: Path) -> dict[int, dict[str, float]]:
    """Seconds of a file and what was measured then; read without any of our code."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    times = [int(datetime.fromisoformat(row["datetime"]).replace(tzinfo=UTC).timestamp()) for row in rows]
    return {second: {name: float(row[column]) for name, (column, _) in COLUMNS.items()} for second, row in zip(times, rows, strict=True)}


def configuration(bundle: Path, plant_port: int, broker_port: int) -> str:
    tags = "\n".join(
        f"          - {{name: pump.{name}, address: input {4 + 2 * i}, type: float32, unit: {unit}}}"
        for i, (name, (_, unit)) in enumerate(COLUMNS.items())
    )
    limits = "\n".join(f"        {target}_{h}s: {{low: -100, high: 400}}" for target in TARGETS for h in HORIZONS)
    return f"""\
gateway: {{name: SKAB, state_dir: state, metrics: {{port: 0}}, headline: [pump.temperature]}}
sources:
  - name: testbed
    type: modbus
    host: 127.0.0.1
    port: {plant_port}
    groups:
      - name: rows
        period_s: 0.012
        silence_limit_s: 10
        clock: {{name: testbed-clock, address: input 0}}
        tags:
          - {{name: pump.row, address: input 2, type: uint32}}
{tags}
models:
  - {{name: pump, bundle: {bundle}, deadline_ms: 500, assets: [{{name: pump}}]}}
publish:
  - {{name: broker, type: mqtt, host: 127.0.0.1, port: {broker_port}, values: false}}
control:
  arm_at_start: true
  targets:
    - name: out
      type: modbus
      source: testbed
      model: pump
      asset: pump
      address: holding 1000
      min_interval_ms: 15
      limits:
{limits}
"""


def joined(out: Path) -> Path:
    """The test files as the one recording they are: each begins a second after the one before."""
    parts = [path.read_text(encoding="utf-8").splitlines() for path in files(TEST)]
    out.write_text("\n".join([parts[0][0], *(row for part in parts for row in part[1:])]) + "\n", encoding="utf-8")
    return out
