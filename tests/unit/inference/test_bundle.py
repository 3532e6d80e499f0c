"""A bundle is whole, or it is refused with the name of the file."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gateway.core.clock import NS_PER_S, SystemClock
from gateway.core.errors import ConfigError, TransientError
from gateway.core.quality import Code, Flag
from gateway.core.window import Window
from inference.bundle import GOLDEN, MANIFEST, MODEL, SUMS, Bundle, bundle_path, read_manifest, write_bundle
from inference.runtime import Runtime


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A copy of the bundle that comes with Lineside."""
    return Path(shutil.copytree(bundle_path("demo", Path()), tmp_path / "bundle"))


def window(bundle: Bundle, row: int = 0) -> Window:
    golden = bundle.golden
    assert golden is not None
    aligned = golden.aligned[row]
    return Window("pump1", 0, golden.values[row], aligned, np.ones(aligned.shape, np.bool_), 1.0, 0, 1, 2, 0, 2)


def far() -> int:
    return SystemClock().mono_ns() + 10 * NS_PER_S


def test_the_shipped_bundle_is_small_complete_and_says_how_it_was_made(demo: Path) -> None:
    bundle = Bundle.load(demo)
    size = sum(len(data) for name, data in bundle.files.items() if name != GOLDEN)
    training = bundle.manifest.training

    assert size < 300_000
    assert training is not None
    assert training.command.startswith("lineside model train")
    assert {"torch", "numpy", "onnxruntime"} <= set(training.versions)
    assert bundle.golden is not None
    assert len(bundle.golden.outputs) >= 200
    assert all(score.model < score.persistence for score in training.scores.values())


@pytest.mark.parametrize("name", [MODEL, MANIFEST, GOLDEN])
def test_a_changed_file_is_named(demo: Path, name: str) -> None:
    data = bytearray((demo / name).read_bytes())
    data[len(data) // 2] ^= 1
    (demo / name).write_bytes(bytes(data))

    with pytest.raises(ConfigError, match=f"{name} is damaged"):
        Bundle.load(demo)


@pytest.mark.parametrize("name", [MODEL, MANIFEST, SUMS])
def test_a_missing_file_is_named(demo: Path, name: str) -> None:
    (demo / name).unlink()

    with pytest.raises(ConfigError, match=f"{name} is missing"):
        Bundle.load(demo)


def test_a_zip_is_as_good_as_a_folder_and_a_truncated_one_is_refused(demo: Path, tmp_path: Path) -> None:
    packed = tmp_path / "bundle.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in demo.iterdir():
            archive.write(file, file.name)

    assert Bundle.load(packed).digest == Bundle.load(demo).digest
    assert read_manifest(packed) == Bundle.load(demo).manifest
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(ConfigError, match=r"bundle\.zip"):
        Bundle.load(packed)


def test_an_unknown_field_in_a_manifest_is_an_error(demo: Path) -> None:
    bundle = Bundle.load(demo)
    manifest = json.loads(bundle.files[MANIFEST]) | {"windoww": 3}
    (demo / MANIFEST).write_text(json.dumps(manifest))

    with pytest.raises(ConfigError, match="windoww"):
        read_manifest(demo)


def test_what_is_written_is_read_again(demo: Path, tmp_path: Path) -> None:
    bundle = Bundle.load(demo)
    files = {name: data for name, data in bundle.files.items() if name not in (MANIFEST, SUMS)}

    assert write_bundle(tmp_path / "copy", bundle.manifest, files).manifest == bundle.manifest


async def test_the_runtime_reproduces_the_golden_windows_in_engineering_units(demo: Path) -> None:
    bundle = Bundle.load(demo)
    async with Runtime(bundle, SystemClock()) as runtime:
        answer = await runtime.infer([window(bundle, 3), window(bundle, 7)], far())

    assert "golden windows reproduced" in runtime.reason
    assert answer.backend == "cpu-float"
    assert answer.outputs.shape == (2, 4)
    assert np.abs(answer.outputs[0, 0] - window(bundle, 3).aligned[-1, 3]) < 5
    assert not answer.row_errors


async def test_a_window_that_is_not_finite_is_that_row_s_error_alone(demo: Path) -> None:
    bundle = Bundle.load(demo)
    broken = window(bundle, 1)
    values = broken.values.copy()
    values[0, 0] = np.nan
    bad = Window("pump2", 0, values, broken.aligned, broken.observed, 1.0, 0, 1, 2, 0, 2)
    async with Runtime(bundle, SystemClock()) as runtime:
        answer = await runtime.infer([window(bundle), bad], far())

    assert set(answer.row_errors) == {1}
    assert "not finite" in answer.row_errors[1]


async def test_an_output_outside_the_limits_is_set_to_the_limit_and_says_so(demo: Path) -> None:
    bundle = Bundle.load(demo)
    hot = window(bundle)
    aligned = hot.aligned.copy()
    aligned[:, 3] += 1000
    async with Runtime(bundle, SystemClock()) as runtime:
        answer = await runtime.infer([Window("p", 0, hot.values, aligned, hot.observed, 1.0, 0, 1, 2, 0, 2)], far())

    assert answer.outputs[0, 0] == 150
    assert answer.quality[0] == Code.UNCERTAIN_OUT_OF_RANGE | Flag.LIMITED_HIGH


async def test_a_model_of_other_weights_than_its_golden_windows_is_refused(demo: Path, tmp_path: Path) -> None:
    bundle = Bundle.load(demo)
    golden = bundle.golden
    assert golden is not None
    with (tmp_path / GOLDEN).open("wb") as file:
        np.savez_compressed(file, values=golden.values, aligned=golden.aligned, outputs=golden.outputs + 0.5)
    files = {MODEL: bundle.files[MODEL], GOLDEN: (tmp_path / GOLDEN).read_bytes()}
    other = write_bundle(tmp_path / "other", bundle.manifest, files)

    with pytest.raises(ConfigError, match="off by"):
        async with Runtime(other, SystemClock()):
            pass


async def test_a_deadline_in_the_past_is_no_answer_and_the_next_call_works(demo: Path) -> None:
    bundle = Bundle.load(demo)
    async with Runtime(bundle, SystemClock()) as runtime:
        with pytest.raises(TransientError, match="deadline"):
            await runtime.infer([window(bundle)], SystemClock().mono_ns() - 1)
        assert len((await runtime.infer([window(bundle)], far())).outputs) == 1
