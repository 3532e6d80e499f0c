"""Root of the configuration."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from connectors.registry import SinkSettings, SourceSettings, TargetSettings
from inference.settings import ModelSettings


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MetricsSettings(_Settings):
    """Prometheus endpoint."""

    host: str = Field("127.0.0.1", description="Address it listens on.")
    port: int = Field(9108, ge=0, le=65535, description="TCP port; 0 turns it off.")


class LogSettings(_Settings):
    """Logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severity that is logged.")
    format: Literal["text", "json"] = Field("text", description="`text` for people, `json` for collectors.")


class GatewaySettings(_Settings):
    """The process."""

    name: str = Field(min_length=1, max_length=32, pattern=r"^[A-Za-z0-9_.-]+$", description="Name of this gateway, used in topics.")
    state_dir: str = Field("state", description="Folder for history, outbox, audit and socket.")
    socket: str | None = Field(None, description="Unix socket of the API; `lineside.sock` in the state folder if left out.")
    metrics: MetricsSettings = Field(MetricsSettings(), description="Prometheus endpoint.")
    headline: list[str] = Field(default_factory=list, max_length=8, description="Tags on the dashboard's overview.")
    simulated: bool = Field(False, description="Whether the plant is a simulation; the dashboard says so.")
    log: LogSettings = Field(LogSettings(), description="Logs.")


class DerivedSettings(_Settings):
    """A tag computed from others of one group."""

    name: str = Field(min_length=1, description="Name of the new tag.")
    kind: Literal["difference", "rate", "counter", "bit_field", "ratio"] = Field(description="How it is computed.")
    sources: list[str] = Field(min_length=1, max_length=2, description="Tags it is computed from: two for difference and ratio, else one.")
    unit: str = Field("1", description="Unit of the result.")
    bits: Literal[16, 32, 64] = Field(32, description="Width of a counter.")
    first_bit: int = Field(0, ge=0, le=63, description="Lowest bit of a bit field.")
    bit_count: int = Field(1, ge=1, le=53, description="Width of a bit field.")
    scale: float = Field(1.0, description="Factor on the result.")


class LimitSettings(_Settings):
    """Bounds of one output that is written."""

    low: float = Field(description="Smallest value that may be written.")
    high: float = Field(description="Largest value that may be written.")
    max_step: float | None = Field(None, gt=0, description="Largest change from one write to the next.")
    max_rate_per_s: float | None = Field(None, gt=0, description="Largest change per second.")


class GuardedTargetSettings(TargetSettings):
    """A place on a machine that predictions are written to, and how that is guarded."""

    name: str = Field(min_length=1, description="Unique name of the target.")
    model: str = Field(description="Model whose predictions it takes.")
    asset: str = Field(description="Asset whose predictions it takes.")
    limits: dict[str, LimitSettings] = Field(description="Bounds of every output of the model, by output name.")
    heartbeat_s: float = Field(1.0, ge=0.1, le=60, description="Period of the heartbeat while armed or held.")
    valid_for_ms: float = Field(1000, ge=1, le=60000, description="Age beyond which a prediction is not written any more.")
    min_interval_ms: float = Field(0, ge=0, le=60000, description="Shortest time between two writes.")
    read_back: bool = Field(True, description="Whether every write is read back and compared.")
    dry_run: bool = Field(False, description="Whether everything happens but the write.")
    hold: Literal["last"] | dict[str, float] = Field("last", description="What is written while held: the last values, or these by output.")


class ControlSettings(_Settings):
    """Writes to machines."""

    arm_at_start: bool = Field(False, description="Whether targets are armed at start; the audit records it.")
    targets: list[GuardedTargetSettings] = Field(default_factory=list, description="Where predictions are written to.")


class HistorySettings(_Settings):
    """What is kept on disk."""

    block_s: float = Field(10, ge=1, le=300, description="Seconds per block; what a crash can lose.")
    retention_h: float = Field(168, gt=0, description="Age beyond which history goes.")
    max_mb: float = Field(512, ge=1, description="Size beyond which the oldest history goes.")


class Settings(_Settings):
    """The whole configuration."""

    gateway: GatewaySettings = Field(description="The process.")
    sources: list[SourceSettings] = Field(default_factory=list, description="What is read.")
    derived: list[DerivedSettings] = Field(default_factory=list, description="Tags computed from others.")
    models: list[ModelSettings] = Field(default_factory=list, description="What predicts.")
    publish: list[SinkSettings] = Field(default_factory=list, description="Who is told.")
    control: ControlSettings = Field(ControlSettings(), description="What is written.")
    history: HistorySettings = Field(HistorySettings(), description="What is kept.")
