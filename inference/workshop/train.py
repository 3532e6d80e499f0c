"""From recordings to a complete bundle: scale, ridge, network, export, scores beside the baselines."""

import io
import platform
from collections.abc import Callable, Sequence
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
from inference.bundle import FORMAT, GOLDEN, MODEL, Bundle, InputStatistics, Manifest, OutputScore, Training, write_bundle
from inference.runtime import INPUT, OUTPUT
from inference.workshop.dataset import Dataset, Feed, examples
from inference.workshop.export import export
from inference.workshop.linear import Ridge, fit_ridge
from inference.workshop.network import Recipe, Trained, answers, train
from inference.workshop.plan import TrainingPlan
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


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """RMSE on the test part in engineering units, `[outputs]` each: the network, its linear path alone, the ridge, "same as now"."""

    model: npt.NDArray[np.float64]
    linear: npt.NDArray[np.float64]
    ridge: npt.NDArray[np.float64]
    persistence: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a training gave.

    Attributes:
        outputs: The outputs.
        scores: Errors on the test part.
        spread: Standard deviation of each output's input on the training part, `[outputs]`.
        gain: Relative fall of the validation error through the recurrent part.
        curve: Validation error by epoch.
        bundle: What was written.
    """

    outputs: tuple[OutputSpec, ...]
    scores: Scores
    spread: npt.NDArray[np.float64]
    gain: float
    curve: tuple[float, ...]
    bundle: Bundle

    @property
    def remark(self) -> str:
        """What must be said of the recurrent part."""
        if self.gain <= 0:
            return "the recurrent part adds nothing on the validation part: this is a linear model"
        return f"the recurrent part lowers the validation error by {self.gain:.1%}"


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
    chain = _scaled(plan.chain(), training)
    scaling = Scaling(chain.inputs, outputs)
    # A target in a hole is held like an input; it may teach, but it does not judge.
    fit = scaling.scale(training.aligned), scaling.target(training.targets, training.aligned)
    judge = _judged(scaling, validation)
    ridge = fit_ridge(*fit, judge)
    recipe = Recipe(**msgspec.structs.asdict(plan.network))
    trained = train(fit, judge, ridge, recipe, seed, progress)
    model = export(trained.network, chain.window, len(chain.inputs))
    scores = _scores(scaling, trained, ridge, test)
    features = [[i.name for i in chain.inputs].index(spec.source_input) for spec in outputs]
    spread = training.aligned[:, -1].std(axis=0)[features]
    manifest = Manifest(
        FORMAT,
        plan.name,
        plan.version,
        chain,
        outputs,
        statistics=_statistics(chain, training),
        training=Training(command, seed, _versions(), digests, _score_table(outputs, scores), trained.gain),
        licence=plan.licence,
    )
    _check_parity(model, trained, scaling.scale(test.aligned))
    files = {MODEL: model, GOLDEN: _golden(trained, scaling, test)}
    bundle = write_bundle(out, manifest, files)
    return Report(outputs, scores, spread, trained.gain, trained.curve, bundle)


def _parts(plan: TrainingPlan, outputs: Sequence[OutputSpec], split: Split) -> tuple[Dataset, Dataset, Dataset]:
    chain = plan.chain()
    whole = [examples(chain, outputs, [feed]) for feed in split.train]
    if split.validation and split.test:
        return _joined(whole), examples(chain, outputs, split.validation), examples(chain, outputs, split.test)
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
    return _joined(parts[0]), _joined(parts[1]), _joined(parts[2])


def _joined(parts: Sequence[Dataset]) -> Dataset:
    return Dataset(
        np.concatenate([part.aligned for part in parts]),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.seen for part in parts]),
        np.concatenate([part.base for part in parts]),
    )


def _scaled(chain: ChainSpec, training: Dataset) -> ChainSpec:
    """Last-value scaling by each input's spread in training."""
    spread = np.maximum(training.aligned[:, -1].std(axis=0), 1e-6)
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


def _score_table(outputs: Sequence[OutputSpec], scores: Scores) -> dict[str, OutputScore]:
    columns = (scores.model, scores.linear, scores.ridge, scores.persistence)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {spec.name: OutputScore(*row) for spec, row in zip(outputs, rows, strict=True)}


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
