"""The workshop makes the same bundle again, and calls a recurrent part that adds nothing so."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inference.bundle import Bundle, bundle_path

LINESIDE = str(Path(sys.executable).parent / "lineside")
DEMO = Path(__file__).resolve().parents[3] / "inference" / "demo"


@pytest.mark.needs("torch")
@pytest.mark.timeout(400)
def test_the_shipped_model_is_retrained_by_its_own_command_to_within_two_percent(tmp_path: Path) -> None:
    simulate = [LINESIDE, "simulate", "plant", "--csv", str(tmp_path / "plant.csv"), "--for", "1h", "--seed", "11"]
    recorded = subprocess.run(simulate, check=True, capture_output=True)
    assert b"written" in recorded.stdout
    command = [LINESIDE, "model", "train", str(DEMO / "training.yaml"), "--train", str(tmp_path / "plant.csv")]
    subprocess.run([*command, "--out", str(tmp_path / "again"), "--seed", "1"], check=True, capture_output=True)
    shipped, again = (Bundle.load(path).manifest.training for path in (bundle_path("demo", Path()), tmp_path / "again"))

    assert shipped is not None
    assert again is not None
    assert again.data == shipped.data, "the plant gives another recording than the shipped model was trained on"
    for name, score in shipped.scores.items():
        assert again.scores[name].model == pytest.approx(score.model, rel=0.02)


@pytest.mark.needs("torch")
@pytest.mark.timeout(200)
def test_a_recurrent_part_that_adds_nothing_is_called_so(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    level, lines = 0.0, ["time,x"]
    for second in range(1500):
        level = 0.9 * level + draw.standard_normal()
        lines.append(f"{1_700_000_000 + second},{level:.6f}")
    (tmp_path / "ar1.csv").write_text("\n".join(lines))
    (tmp_path / "plan.yaml").write_text(
        "{name: ar1, version: '1', period_s: 1.0, window: 8, inputs: [{name: x, unit: '1'}],"
        " outputs: [{input: x, horizons_s: [1], low: -100, high: 100}], network: {hidden: 4, epochs: 2}}"
    )
    run = subprocess.run(
        [LINESIDE, "model", "train", str(tmp_path / "plan.yaml"), "--train", str(tmp_path / "ar1.csv"), "--out", str(tmp_path / "bundle")],
        check=True,
        capture_output=True,
        text=True,
    )
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    score = manifest["training"]["scores"]["x_1s"]

    assert ("adds nothing" in run.stdout) == (manifest["training"]["recurrent_gain"] <= 0)
    # The best possible forecast of this series is 0.9 times the last value, with an error of 1.
    assert math.isclose(score["ridge"], 1.0, rel_tol=0.12)
    assert score["model"] <= 1.05 * score["ridge"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{name: a}", "missing required field"),
        ("{name: a, version: '1', period_s: 1, window: 4, inputs: [{name: x, unit: degC, hold: 3}], outputs: []}", "unknown field"),
        ("name: [", "expected"),
    ],
)
def test_a_wrong_specification_is_refused_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    from gateway.core.errors import ConfigError
    from inference.workshop.plan import load_plan

    (tmp_path / "plan.yaml").write_text(text)

    with pytest.raises(ConfigError, match=said):
        load_plan(tmp_path / "plan.yaml")
