"""From recordings to a complete bundle: scale, ridge, network, export, scores beside the baselines."""

import io
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch

from gateway.core.errors import ConfigError
from gateway.core.prediction import OutputSpec
from inference.bundle import FORMAT, GOLDEN, MODEL, InputStatistics, Manifest, Training, write_bundle
from inference.runtime import INPUT, OUTPUT
from inference.workshop.dataset import Dataset, Feed, examples, joined
from inference.workshop.export import export
from inference.workshop.linear import Ridge, fit_ridge
from inference.workshop.network import Recipe, Trained, answers, train
from inference.workshop.plan import TrainingPlan
from inference.workshop.report import Report, Scores, remark
from inference.workshop.score import rmse
from preprocess.scaling import Scaling
from preprocess.spec import ChainSpec, ScalingSpec

GOLDEN_WINDOWS = 200
_PARITY = 1e-4


@dataclass(frozen=True, slots=True)
class Split:
    """Recordings by what they are for. With empty `validation` and `test`, shares of each training recording are used, by time."""

    train: Sequence[Feed]
    validation: Sequence[Feed] = ()
    test: Sequence[Feed] = ()


def build(
    plan: TrainingPlan,
    split: Split,
    out: Path,
    *,
    seed: int,
    command: str,
    digests: dict[str, str],
    progress: Callable[[int, float], None] = lambda _epoch, _error: None,
) -> Report:
    """Train and write a bundle.

    Args:
        plan: What to train.
        split: The recordings.
        out: Folder of the bundle.
        seed: Of everything random.
        command: Command line, for the manifest.
        digests: SHA-256 of each recording, for the manifest.
        progress: Told each epoch and its validation error.

    Raises:
        ConfigError: The recordings do not suffice, or the exported model does not answer as the trained one.
    """
    outputs = plan.output_specs()
    training, validation, test = _parts(plan, outputs, split)
    _require_targets(outputs, {"training": training, "validation": validation, "test": test})
    chain = _scaled(plan.chain(), training)
    scaling = Scaling(chain.inputs, outputs)
    # A target in a hole is held like an input; it may teach, but it does not judge.
    fit = scaling.scale(training.aligned), scaling.target(training.targets, training.aligned)
    judge = _judged(scaling, validation)
    ridge = fit_ridge(*fit, judge)
    trained = train(fit, judge, ridge, Recipe(**msgspec.structs.asdict(plan.network)), seed, progress)
    model = export(trained.network, chain.window, len(chain.inputs))
    _check_parity(model, trained, scaling.scale(test.aligned))
    scores = _scores(scaling, trained, ridge, test)
    made = Training(command, seed, _versions(), digests, scores.by_output(outputs), trained.gain, remark(trained.gain))
    statistics = _statistics(chain, training)
    manifest = Manifest(FORMAT, plan.name, plan.version, chain, outputs, statistics=statistics, training=made, licence=plan.licence)
    bundle = write_bundle(out, manifest, {MODEL: model, GOLDEN: _golden(trained, scaling, test)})
    spread = np.array([statistics[spec.source_input].std for spec in outputs])
    return Report(outputs, scores, spread, trained.gain, trained.curve, bundle)


def _require_targets(outputs: Sequence[OutputSpec], parts: Mapping[str, Dataset]) -> None:
    """Every output must have been observed in every part, or it can neither be taught nor judged.

    Raises:
        ConfigError: One was not.
    """
    for part, dataset in parts.items():
        for spec, seen in zip(outputs, np.any(dataset.seen, axis=0).tolist(), strict=True):
            if not seen:
                raise ConfigError(
                    f"'{spec.name}' is never observed in the {part} part",
                    remedy="check the column and the input's low and high, or give a longer recording",
                )


def _parts(plan: TrainingPlan, outputs: Sequence[OutputSpec], split: Split) -> tuple[Dataset, Dataset, Dataset]:
    chain = plan.chain()
    whole = [examples(chain, outputs, [feed]) for feed in split.train]
    if split.validation and split.test:
        return joined(whole), examples(chain, outputs, split.validation), examples(chain, outputs, split.test)
    parts: list[list[Dataset]] = [[], [], []]
    # A window and its targets must not lie on both sides of a cut.
    reach = plan.window + round(max(spec.horizon_s for spec in outputs) / plan.period_s)
    gap = reach * max(len(plan.assets), 1)
    for dataset in whole:
        first = round(len(dataset) * (1 - plan.validation_share - plan.test_share))
        second = round(len(dataset) * (1 - plan.test_share))
        if first - gap < 1 or second - gap <= first or len(dataset) - second < 1:
            raise ConfigError("the recording is too short to be split", remedy="record longer, or name --validation and --test files")
        for kept, (start, stop) in zip(parts, ((0, first - gap), (first, second - gap), (second, len(dataset))), strict=True):
            kept.append(dataset.part(start, stop))
    return joined(parts[0]), joined(parts[1]), joined(parts[2])


def _scaled(chain: ChainSpec, training: Dataset) -> ChainSpec:
    """Last-value scaling by each input's spread in training."""
    newest = training.aligned[:, -1]
    spread = newest.std(axis=0)
    # What never moved in training must not be blown up when it moves later.
    spread = np.where(spread > 1e-9 * np.maximum(np.abs(newest).max(axis=0), 1e-6), spread, 1.0)
    inputs = tuple(
        replace(spec, scaling=ScalingSpec(kind="last_value", scale=float(scale))) for spec, scale in zip(chain.inputs, spread, strict=True)
    )
    return replace(chain, inputs=inputs)


def _judged(scaling: Scaling, dataset: Dataset) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    targets = np.where(dataset.seen, dataset.targets, np.nan)
    return scaling.scale(dataset.aligned), scaling.target(targets, dataset.aligned)


def _scores(scaling: Scaling, trained: Trained, ridge: Ridge, test: Dataset) -> Scores:
    values = scaling.scale(test.aligned)
    whole, straight = answers(trained.network, values)
    forecasts = [
        scaling.unscale(whole, test.aligned),
        scaling.unscale(straight, test.aligned),
        scaling.unscale(ridge(values).astype(np.float32), test.aligned),
        test.base,
    ]
    model, linear, straight_ridge, persistence = (rmse(forecast, test.targets, test.seen) for forecast in forecasts)
    return Scores(model, linear, straight_ridge, persistence)


def _statistics(chain: ChainSpec, training: Dataset) -> dict[str, InputStatistics]:
    rows = training.aligned[:, -1]
    low, high = np.quantile(rows, (0.001, 0.999), axis=0)
    return {
        spec.name: InputStatistics(float(rows[:, i].mean()), float(rows[:, i].std()), float(low[i]), float(high[i]))
        for i, spec in enumerate(chain.inputs)
    }


def _golden(trained: Trained, scaling: Scaling, test: Dataset) -> bytes:
    """Recorded windows spread over the test part, the ones with the largest movement (the long tail) among them."""
    values = scaling.scale(test.aligned)
    count = min(GOLDEN_WINDOWS, len(values))
    movement = np.abs(values).max(axis=(1, 2))
    tail = np.argsort(movement)[-max(count // 10, 1) :]
    spread = np.linspace(0, len(values) - 1, count).round().astype(np.intp)
    chosen = np.unique(np.concatenate([tail, spread]))
    outputs, _ = answers(trained.network, values[chosen])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, values=values[chosen], aligned=test.aligned[chosen].astype(np.float32), outputs=outputs)
    return buffer.getvalue()


def _check_parity(model: bytes, trained: Trained, values: npt.NDArray[np.float32]) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sample = values[:256]
    exported = session.run([OUTPUT], {INPUT: sample})[0]
    expected, _ = answers(trained.network, sample)
    worst = float(np.abs(exported - expected).max())
    if not worst <= _PARITY * max(float(np.abs(expected).max()), 1.0):
        raise ConfigError(f"the exported model differs from the trained one by {worst:g}", remedy="report this fault")


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": str(torch.__version__),
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
