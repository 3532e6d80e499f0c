"""The model package: a folder or zip of a manifest, models, golden windows and their digests."""

import hashlib
import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from gateway.core.errors import ConfigError
from gateway.core.prediction import OutputSpec
from inference.decoding import decode
from preprocess.spec import ChainSpec

FORMAT = 1
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
GOLDEN = "golden.npz"
MODEL = "model.onnx"

_PARTS = (".json", ".onnx", ".rknn", ".npz")
_SUM_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\]+)")
_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)  # the last two: encrypted, or packed otherwise


class Tolerances(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a back end must reproduce of the golden outputs."""

    rmse_share: float = 0.002  # of the golden outputs' range, per output
    variance_low: float = 0.98
    variance_high: float = 1.02


class InputStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an input looked like in training, in its unit."""

    mean: float
    std: float
    low: float
    high: float


class OutputScore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """RMSE of one output on data the training never saw, in its unit."""

    model: float
    linear: float
    ridge: float
    persistence: float


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the model was made, so that it can be made again."""

    command: str
    seed: int
    versions: dict[str, str]
    data: dict[str, str]
    scores: dict[str, OutputScore]
    recurrent_gain: float = 0.0
    remark: str = ""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a bundle says of itself."""

    format: int
    name: str
    version: str
    chain: ChainSpec
    outputs: tuple[OutputSpec, ...]
    state_mode: Literal["window", "stateful"] = "window"
    tolerances: Tolerances = Tolerances()
    statistics: dict[str, InputStatistics] = {}
    training: Training | None = None
    licence: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Golden:
    """Recorded windows and the float model's answers.

    Attributes:
        values: Scaled windows, `[n, steps, features] float32`.
        aligned: The same in engineering units, `[n, steps, features] float64`.
        outputs: The network's answers, `[n, outputs] float32`.
    """

    values: npt.NDArray[np.float32]
    aligned: npt.NDArray[np.float64]
    outputs: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle in memory.

    Attributes:
        path: Where it came from.
        manifest: What it says of itself.
        digest: SHA-256 of its list of digests, which stands for all of it.
        files: Contents by name.
    """

    path: Path
    manifest: Manifest
    digest: str
    files: Mapping[str, bytes]

    @classmethod
    def load(cls, path: Path) -> "Bundle":
        """Read a bundle and verify every digest.

        Raises:
            ConfigError: It is not there, not whole, or not a bundle; the text names the file.
        """
        files = _read(path)
        _verify(path, files)
        manifest = decode_manifest(path, files[MANIFEST])
        return cls(path, manifest, hashlib.sha256(files[SUMS]).hexdigest(), files)

    def file(self, name: str) -> bytes:
        """Contents of a file.

        Raises:
            ConfigError: The bundle has no such file.
        """
        if name not in self.files:
            raise ConfigError(f"bundle {self.path}: {name} is missing", remedy="build the bundle anew")
        return self.files[name]

    @property
    def golden(self) -> Golden | None:
        """The golden windows, if the bundle has them.

        Raises:
            ConfigError: They do not fit the manifest.
        """
        if GOLDEN not in self.files:
            return None
        try:
            with np.load(io.BytesIO(self.files[GOLDEN]), allow_pickle=False) as arrays:
                golden = Golden(arrays["values"], arrays["aligned"].astype(np.float64), arrays["outputs"])
        except (ValueError, KeyError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise ConfigError(f"{self.path}/{GOLDEN}: {error}", remedy="build the bundle anew") from error
        chain = self.manifest.chain
        shape = (len(golden.values), chain.window, len(chain.inputs))
        if golden.values.shape != shape or golden.aligned.shape != shape or golden.outputs.shape != (shape[0], len(self.manifest.outputs)):
            raise ConfigError(f"{self.path}/{GOLDEN}: shapes do not fit the manifest", remedy="build the bundle anew")
        return golden


def decode_manifest(path: Path, data: bytes) -> Manifest:
    """A manifest, checked.

    Raises:
        ConfigError: It is damaged or of another format.
    """
    try:
        manifest = decode(data, Manifest, "json")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}/{MANIFEST}: {error}", remedy="build the bundle anew with this version of Lineside") from error
    if manifest.format != FORMAT:
        raise ConfigError(f"{path}: bundle format {manifest.format}, this version reads {FORMAT}", remedy="build the bundle anew")
    for wrong in _contradictions(manifest):
        raise ConfigError(f"{path}/{MANIFEST}: {wrong}", remedy="build the bundle anew")
    return manifest


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """What no reader of the manifest could make sense of."""
    chain, outputs = manifest.chain, manifest.outputs
    inputs = [spec.name for spec in chain.inputs]
    names = [spec.name for spec in outputs]
    if not (0 < chain.period_s < math.inf) or chain.window < 1:
        yield f"period of {chain.period_s:g} s and window of {chain.window} steps make no grid"
    if not inputs or len(set(inputs)) != len(inputs):
        yield "inputs are missing or repeated"
    if not names or len(set(names)) != len(names):
        yield "outputs are missing or repeated"
    for spec in outputs:
        if spec.source_input and spec.source_input not in inputs:
            yield f"output '{spec.name}' forecasts '{spec.source_input}', which is no input"
        if not spec.low < spec.high or spec.horizon_s < 0:
            yield f"output '{spec.name}' has limits {spec.low:g} to {spec.high:g} and horizon {spec.horizon_s:g} s"
    for feature in chain.inputs:
        if not feature.low < feature.high:
            yield f"input '{feature.name}' has range {feature.low:g} to {feature.high:g}"
        if feature.scaling.scale == 0 or not math.isfinite(feature.scaling.scale + feature.scaling.center):
            yield f"input '{feature.name}' is scaled by {feature.scaling.scale:g}"


def read_manifest(path: Path) -> Manifest:
    """The manifest alone, nothing verified: for checking a configuration.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    try:
        if path.is_file():
            with zipfile.ZipFile(path) as archive:
                return decode_manifest(path, archive.read(_members(archive)[MANIFEST]))
        return decode_manifest(path, (path / MANIFEST).read_bytes())
    except (OSError, KeyError, *_BROKEN_ZIP) as error:
        raise ConfigError(f"no bundle at {path}", remedy="give the folder or zip file that `lineside model train` wrote") from error


def write_bundle(path: Path, manifest: Manifest, files: Mapping[str, bytes]) -> Bundle:
    """Write a bundle: a folder, or a zip if the name ends so. What stood there under these names is replaced, the list of digests last.

    Raises:
        ConfigError: It cannot be written.
    """
    encoded = msgspec.json.format(msgspec.json.encode(_finite(msgspec.to_builtins(manifest))), indent=1)
    contents = {**files, MANIFEST: encoded + b"\n"}
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(contents.items()))
    try:
        if path.suffix == ".zip":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_zipped({**contents, SUMS: sums.encode("ascii")}))
            return Bundle.load(path)
        path.mkdir(parents=True, exist_ok=True)
        (path / SUMS).unlink(missing_ok=True)
        for name, data in contents.items():
            (path / name).write_bytes(data)
        (path / SUMS).write_text(sums, encoding="ascii")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy="choose another --out") from error
    return Bundle.load(path)


def _finite(value: Any) -> Any:  # noqa: ANN401 - a tree of builtins
    """The tree without infinite bounds: JSON has none, and they are what a missing bound means."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items() if not (isinstance(part, float) and math.isinf(part))}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    """A zip that is the same for the same contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _members(archive: zipfile.ZipFile) -> dict[str, str]:
    """Members by the name they have in the bundle: a zip of the folder is as good as one of its files."""
    names = [name for name in archive.namelist() if not name.endswith("/")]
    folders = {name.rpartition("/")[0] for name in names}
    return {name.rpartition("/")[2]: name for name in names} if len(folders) == 1 else {name: name for name in names if "/" not in name}


def _read(path: Path) -> dict[str, bytes]:
    try:
        if path.is_dir():
            return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.is_file()}
        with zipfile.ZipFile(path) as archive:
            return {name: _unzipped(path, archive, member) for name, member in _members(archive).items()}
    except FileNotFoundError as error:
        raise ConfigError(f"no bundle at {path}", remedy="give the folder or zip file that `lineside model train` wrote") from error
    except (OSError, *_BROKEN_ZIP) as error:
        raise ConfigError(f"bundle {path} cannot be read: {error}", remedy="copy the bundle anew") from error


def _unzipped(path: Path, archive: zipfile.ZipFile, member: str) -> bytes:
    try:
        return archive.read(member)
    except _BROKEN_ZIP as error:
        raise ConfigError(f"bundle {path}: {member} is damaged: {error}", remedy="copy the bundle anew") from error


def _verify(path: Path, files: dict[str, bytes]) -> None:
    """Compare all digests; what has none and is no part of a bundle is left out."""
    for name in (SUMS, MANIFEST):
        if name not in files:
            raise ConfigError(f"bundle {path}: {name} is missing", remedy="copy the bundle anew, whole")
    listed = _digests(path, files[SUMS])
    for name, digest in listed.items():
        if name not in files:
            raise ConfigError(f"bundle {path}: {name} is missing", remedy="copy the bundle anew, whole")
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ConfigError(f"bundle {path}: {name} is damaged or was changed", remedy="copy the bundle anew")
    for name in files.keys() - listed.keys() - {SUMS, SIGNATURE}:
        if name.endswith(_PARTS):
            raise ConfigError(f"bundle {path}: {name} has no digest in {SUMS}", remedy="copy the bundle anew, whole, or remove the file")
        del files[name]


def _digests(path: Path, sums: bytes) -> dict[str, str]:
    listed: dict[str, str] = {}
    for number, line in enumerate(sums.decode("ascii", "replace").splitlines(), start=1):
        match = _SUM_LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"bundle {path}: {SUMS} is damaged in line {number}", remedy="copy the bundle anew")
        listed[match[2]] = match[1]
    return listed


def bundle_path(name: str, base: Path) -> Path:
    """Where a bundle named in a configuration lies: `demo` is the one that comes with Lineside, other names are relative to `base`."""
    return Path(__file__).parent / "demo" / "bundle" if name == "demo" else base / name
