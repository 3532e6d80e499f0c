"""Wire types of the summary that dashboards, health checks and Prometheus live on."""

from dataclasses import dataclass, field

from gateway.core.condition import Alarm
from gateway.core.quality import Ne107


@dataclass(frozen=True, slots=True)
class Ledger:
    """Account of one unit of one stage.

    `received = consumed + rejected + dropped + merged + waiting + in_flight`, always. `merged` counts watermarks that a newer adjacent one
    replaced. What a stage puts out is counted on its own, in `produced`.
    """

    received: int = 0
    consumed: int = 0
    rejected: int = 0
    dropped: int = 0
    merged: int = 0
    waiting: int = 0
    in_flight: int = 0
    produced: int = 0

    @property
    def balanced(self) -> bool:
        """Whether nothing has gone missing."""
        parts = self.consumed + self.rejected + self.dropped + self.merged + self.waiting + self.in_flight
        return self.received == parts


@dataclass(frozen=True, slots=True)
class StageStatus:
    """State of one stage: its ledgers by unit (`values`, `watermarks`, `predictions`, `messages`)."""

    name: str
    word: Ne107
    text: str = ""
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """State of one source.

    Attributes:
        name: As configured.
        kind: Connector type.
        address: Where it reads from, without secrets.
        word: NE 107 word.
        text: State in the operator's words ("connected", "no answer 39 s, try 7, next in 12 s").
        remedy: What to check, empty if nothing.
        period_s: Shortest configured period of its groups.
        cycles: Poll cycles run.
        missed: Cycles that were skipped because the one before was still running.
        errors: Requests that failed.
        reconnects: Connections made after the first.
        good_tags: Tags whose latest value is not bad.
        tags: Tags in all.
        last_good_age_ms: Age of the newest good value, -1 before the first.
        cycle_p50_ms: Median time from request to complete response.
        cycle_p99_ms: The same, 99th percentile.
    """

    name: str
    kind: str
    address: str
    word: Ne107
    text: str
    remedy: str = ""
    period_s: float = 0.0
    cycles: int = 0
    missed: int = 0
    errors: int = 0
    reconnects: int = 0
    good_tags: int = 0
    tags: int = 0
    last_good_age_ms: float = -1.0
    cycle_p50_ms: float = 0.0
    cycle_p99_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """Latest prediction of one output of one asset, with the scale it is drawn on."""

    name: str
    unit: str
    horizon_s: float
    value: float | None
    low: float
    high: float
    trend: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class AssetStatus:
    """Latest state of one asset of one model."""

    name: str
    quality: int
    quality_text: str
    outcome: str
    coverage: float
    sequence: int
    age_ms: float
    outputs: tuple[OutputStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreStatus:
    """Error of one output against what was measured later, beside persistence ("same as now") on the same steps."""

    output: str
    unit: str
    horizon_s: float
    count: int
    rmse: float
    persistence_rmse: float


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """State of one model: which back end serves and why, what became of its steps, latency by part of the Trace.

    `latency_ms` maps a part to `(p50, p95, p99)`; `outcomes` counts predictions by outcome.
    """

    name: str
    version: str
    digest: str
    word: Ne107
    backend: str
    reason: str
    period_s: float
    window: int
    features: int
    outcomes: dict[str, int] = field(default_factory=dict)
    latency_ms: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    late_values: int = 0
    epochs: int = 0
    assets: tuple[AssetStatus, ...] = ()
    scores: tuple[ScoreStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """State of one write target behind the guard.

    `refused` counts by reason. `last_written` is the operator's line of the last write and its read-back.
    """

    name: str
    kind: str
    state: str
    reason: str
    word: Ne107
    written: int = 0
    verified: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    last_written: str = ""
    last_refusal: str = ""


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """State of one subscriber connection and of the outbox before it."""

    name: str
    kind: str
    address: str
    word: Ne107
    text: str
    accepted: int = 0
    rejected: int = 0
    dropped: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    fill: float = 0.0
    oldest_age_s: float = 0.0
    reconnects: int = 0


@dataclass(frozen=True, slots=True)
class TagStatus:
    """Latest value of one tag with its scale and a short trend (None where it was bad)."""

    name: str
    unit: str
    value: float | None
    quality: int
    quality_text: str
    age_ms: float
    low: float | None
    high: float | None
    trend: tuple[float | None, ...] = ()
    description: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class GatewaySnapshot:
    """Everything the overview shows, at one instant."""

    gateway: str
    version: str
    state: str
    wall_ns: int
    uptime_s: float
    loop_delay_ms: float
    rss_mb: float
    configuration: str
    stages: tuple[StageStatus, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    models: tuple[ModelStatus, ...] = ()
    targets: tuple[TargetStatus, ...] = ()
    sinks: tuple[SinkStatus, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    tags: tuple[TagStatus, ...] = ()
    simulated: bool = False
