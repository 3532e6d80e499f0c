"""A bundle in service: golden check at load, one call for all due windows, outputs in engineering units within their limits."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from gateway.core.clock import NS_PER_S, Clock
from gateway.core.errors import ConfigError
from gateway.core.prediction import OutputSpec
from gateway.core.protocols import Answer, Backend
from gateway.core.quality import Code, Flag
from gateway.core.window import Window
from inference.backends.onnxruntime import OnnxBackend
from inference.bundle import MODEL, Bundle, Golden
from preprocess.scaling import Scaling
from preprocess.spec import ChainSpec

INPUT = "window"
OUTPUT = "prediction"
_GOLDEN_TIMEOUT_S = 30.0


class Runtime:
    """Answers windows with a bundle's model.

    Args:
        bundle: Verified.
        clock: For deadlines.
    """

    def __init__(self, bundle: Bundle, clock: Clock) -> None:
        self._bundle = bundle
        self._clock = clock
        self._stack = AsyncExitStack()
        self._backend: Backend | None = None
        self._reason = "not loaded"
        self._scaling = Scaling(bundle.manifest.chain.inputs, bundle.manifest.outputs)
        self._low = np.array([spec.low for spec in bundle.manifest.outputs])
        self._high = np.array([spec.high for spec in bundle.manifest.outputs])

    @property
    def name(self) -> str:
        """Name of the bundle."""
        return self._bundle.manifest.name

    @property
    def version(self) -> str:
        """Version of the bundle."""
        return self._bundle.manifest.version

    @property
    def digest(self) -> str:
        """Digest of the bundle."""
        return self._bundle.digest

    @property
    def chain(self) -> ChainSpec:
        """The signal path the model was trained on."""
        return self._bundle.manifest.chain

    @property
    def outputs(self) -> Sequence[OutputSpec]:
        """What it predicts."""
        return self._bundle.manifest.outputs

    @property
    def backend_name(self) -> str:
        """Rung in service, empty before the load."""
        return self._backend.name if self._backend else ""

    @property
    def reason(self) -> str:
        """Why that rung serves."""
        return self._reason

    async def __aenter__(self) -> Self:
        if self._bundle.manifest.state_mode != "window":
            raise ConfigError(f"bundle {self._bundle.path}: stateful models cannot be run yet", remedy="export the model on whole windows")
        model = self._bundle.file(MODEL)
        backend = await self._stack.enter_async_context(OnnxBackend(model, "cpu-float", self._clock))
        try:
            self._check_shape(backend)
            golden = await asyncio.to_thread(lambda: self._bundle.golden)
            self._reason = await self._golden_check(backend, golden)
        except BaseException:
            await self._stack.aclose()
            raise
        self._backend = backend
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._backend = None
        await self._stack.aclose()

    def _check_shape(self, backend: OnnxBackend) -> None:
        chain = self.chain
        wanted = (
            ("input", INPUT, backend.inputs, [chain.window, len(chain.inputs)]),
            ("output", OUTPUT, backend.outputs, [len(self.outputs)]),
        )
        for words, name, there, rest in wanted:
            shape = there.get(name, [])
            if len(there) != 1 or not shape or isinstance(shape[0], int) or shape[1:] != rest:
                raise ConfigError(
                    f"bundle {self._bundle.path}: the model's {words} is {there}, the manifest says '{name}' [any, "
                    f"{', '.join(map(str, rest))}]",
                    remedy="build the bundle anew; the batch axis must be free",
                )

    async def _golden_check(self, backend: OnnxBackend, golden: Golden | None) -> str:
        if golden is None:
            return "only rung; no golden windows in the bundle, nothing was compared"
        deadline_ns = self._clock.mono_ns() + round(_GOLDEN_TIMEOUT_S * NS_PER_S)
        answers = [(await backend.infer({INPUT: golden.values}, deadline_ns)).outputs[OUTPUT] for _ in range(2)]
        if not np.array_equal(answers[0], answers[1]):
            raise ConfigError(f"bundle {self._bundle.path}: two equal calls gave different answers", remedy="do not use this model")
        share = golden_error(answers[0], golden.outputs, self._bundle)
        return f"only rung; golden windows reproduced, worst error {share:.4%} of range over {len(golden.outputs)} windows"

    async def infer(self, windows: Sequence[Window], deadline_mono_ns: int) -> Answer:
        """Answer all windows in one call.

        Raises:
            TransientError: No answer by the deadline.
            PermanentError: No back end is left.
        """
        backend = self._backend
        if backend is None:
            raise ConfigError("the model is not loaded", remedy="report this fault")
        values = np.stack([window.values for window in windows])
        inference = await backend.infer({INPUT: values}, deadline_mono_ns)
        raw = inference.outputs[OUTPUT]
        outputs = self._scaling.unscale(raw, np.stack([window.aligned for window in windows]))
        low, high = outputs < self._low, outputs > self._high
        quality = tuple(_limit_quality(bool(low[i].any()), bool(high[i].any())) for i in range(len(windows)))
        clipped = np.clip(outputs, self._low, self._high)
        return Answer(clipped, quality, dict(inference.row_errors), backend.name, inference.started_mono_ns, inference.ended_mono_ns)


def _limit_quality(low: bool, high: bool) -> int:
    """An output outside the manifest's limits is set to the limit, and says so."""
    if not low and not high:
        return Code.GOOD
    flags = (Flag.LIMITED_LOW if low else 0) | (Flag.LIMITED_HIGH if high else 0)
    return int(Code.UNCERTAIN_OUT_OF_RANGE | flags)


def golden_error(answers: npt.NDArray[np.float32], golden: npt.NDArray[np.float32], bundle: Bundle) -> float:
    """Worst RMSE as a share of the golden outputs' range, over the outputs.

    Raises:
        ConfigError: Answers that are not finite, a constant output, or an error beyond the manifest's tolerances.
    """
    where, tolerances = bundle.path, bundle.manifest.tolerances
    if answers.shape != golden.shape or not np.isfinite(answers).all():
        raise ConfigError(f"bundle {where}: the golden windows give answers that are not finite", remedy="do not use this model")
    span = np.maximum(np.ptp(golden.astype(np.float64), axis=0), 1e-12)
    share = np.sqrt(np.mean((answers.astype(np.float64) - golden) ** 2, axis=0)) / span
    variance = np.var(answers.astype(np.float64), axis=0) / np.maximum(np.var(golden.astype(np.float64), axis=0), 1e-24)
    names = [spec.name for spec in bundle.manifest.outputs]
    worst = int(share.argmax())
    if share[worst] > tolerances.rmse_share:
        raise ConfigError(
            f"bundle {where}: '{names[worst]}' is off by {share[worst]:.2%} of its range on the golden windows",
            remedy="model and golden windows do not belong together; build the bundle anew",
        )
    bad = np.flatnonzero((variance < tolerances.variance_low) | (variance > tolerances.variance_high))
    if len(bad):
        raise ConfigError(f"bundle {where}: '{names[int(bad[0])]}' does not vary as its golden outputs do", remedy="do not use this model")
    return float(share[worst])
