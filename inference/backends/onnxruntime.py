"""ONNX Runtime on the CPU: one worker thread, explicit thread counts, no spinning."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnxruntime

from gateway.core.clock import NS_PER_S, Clock
from gateway.core.errors import ConfigError, PermanentError, TransientError
from gateway.core.protocols import Arrays, Inference


class OnnxBackend:
    """Satisfies `Backend`.

    Args:
        model: An ONNX file's bytes.
        name: Rung, as shown.
        clock: For deadlines.
        reason: Why it serves.

    Attributes:
        inputs: Shape of each input, once entered; a free axis is no number.
        outputs: The same of each output.
    """

    def __init__(self, model: bytes, name: str, clock: Clock, reason: str = "") -> None:
        self.name = name
        self.reason = reason
        self._model = model
        self._clock = clock
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"onnx {name}")
        self._session: Any = None
        self.inputs: dict[str, list[int | str | None]] = {}
        self.outputs: dict[str, list[int | str | None]] = {}

    async def __aenter__(self) -> Self:
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._open)
        except BaseException:
            self._worker.shutdown(wait=False, cancel_futures=True)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._session = None
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = onnxruntime.InferenceSession(self._model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ConfigError(f"ONNX Runtime cannot load the model: {_first_line(error)}", remedy="build the bundle anew") from error
        self._session = session
        self.outputs = {entry.name: list(entry.shape) for entry in session.get_outputs()}
        self.inputs = {entry.name: list(entry.shape) for entry in session.get_inputs()}

    async def infer(self, arrays: Arrays, deadline_mono_ns: int) -> Inference:
        """One call on a batch; a row with an input or output that is not finite is that row's error.

        Raises:
            TransientError: No answer by the deadline; the call is left to end by itself.
            PermanentError: The session failed.
        """
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._worker, self._run, arrays)
        try:
            async with asyncio.timeout(max(deadline_mono_ns - self._clock.mono_ns(), 0) / NS_PER_S):
                return await future
        except TimeoutError as error:
            raise TransientError(f"{self.name}: no answer by the deadline", remedy="raise deadline_ms or use a smaller model") from error

    def _run(self, arrays: Arrays) -> Inference:
        started_ns = self._clock.mono_ns()
        names = list(self.outputs)
        # A byte-swapped or strided array is accepted by the runtime, and a byte-swapped one misread.
        fed = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        try:
            results = self._session.run(names, fed)
        except Exception as error:
            raise PermanentError(f"{self.name}: {_first_line(error)}", remedy="look at the model with `lineside model inspect`") from error
        outputs: dict[str, npt.NDArray[np.float32]] = dict(zip(names, results, strict=True))
        errors: dict[int, str] = {}
        for words, group in (("input", fed), ("output", outputs)):
            for name, array in group.items():
                finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
                errors.update({int(row): f"{words} '{name}' is not finite" for row in np.flatnonzero(~finite)})
        return Inference(outputs, errors, started_ns, self._clock.mono_ns())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
