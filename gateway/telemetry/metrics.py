"""The snapshot in Prometheus' text format."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gateway.core.snapshot import GatewaySnapshot


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: Callable[[], GatewaySnapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        up = GaugeMetricFamily("lineside_up", "1 while the gateway runs", labels=["gateway", "version"])
        up.add_metric([snapshot.gateway, snapshot.version], 1)
        yield up
        yield GaugeMetricFamily("lineside_loop_delay_ms", "Event-loop delay", value=snapshot.loop_delay_ms)
        yield GaugeMetricFamily("lineside_rss_mb", "Resident memory", value=snapshot.rss_mb)
        yield from _stages(snapshot)
        yield from _sources(snapshot)
        yield from _models(snapshot)
        yield from _outlets(snapshot)
        alarms = GaugeMetricFamily("lineside_alarms", "Alarms that are not normal", labels=["priority", "state"])
        counts: dict[tuple[str, str], int] = {}
        for alarm in snapshot.alarms:
            key = (str(int(alarm.condition.priority)), alarm.state.value)
            counts[key] = counts.get(key, 0) + 1
        for (priority, state), count in counts.items():
            alarms.add_metric([priority, state], count)
        yield alarms


def _stages(snapshot: GatewaySnapshot) -> Iterator[Metric]:
    totals = CounterMetricFamily("lineside_stage_items", "Items of a stage by fate", labels=["stage", "unit", "fate"])
    waiting = GaugeMetricFamily("lineside_stage_waiting", "Items that wait", labels=["stage", "unit"])
    for stage in snapshot.stages:
        for unit, ledger in stage.ledgers.items():
            for fate in ("received", "consumed", "rejected", "dropped", "merged", "produced"):
                totals.add_metric([stage.name, unit, fate], getattr(ledger, fate))
            waiting.add_metric([stage.name, unit], ledger.waiting + ledger.in_flight)
    yield totals
    yield waiting


def _sources(snapshot: GatewaySnapshot) -> Iterator[Metric]:
    for field, text in (
        ("cycles", "Poll cycles"),
        ("missed", "Missed cycles"),
        ("errors", "Failed requests"),
        ("reconnects", "Reconnects"),
    ):
        family = CounterMetricFamily(f"lineside_source_{field}", text, labels=["source"])
        for source in snapshot.sources:
            family.add_metric([source.name], getattr(source, field))
        yield family
    age = GaugeMetricFamily("lineside_source_last_good_age_ms", "Age of the newest good value, -1 before the first", labels=["source"])
    good = GaugeMetricFamily("lineside_source_good_tags", "Tags that are not bad", labels=["source"])
    for source in snapshot.sources:
        age.add_metric([source.name], source.last_good_age_ms)
        good.add_metric([source.name], source.good_tags)
    yield age
    yield good


def _models(snapshot: GatewaySnapshot) -> Iterator[Metric]:
    outcomes = CounterMetricFamily("lineside_predictions", "Predictions by outcome", labels=["model", "outcome"])
    latency = GaugeMetricFamily("lineside_latency_ms", "Parts of the way of a prediction", labels=["model", "part", "quantile"])
    value = GaugeMetricFamily("lineside_prediction", "Latest prediction", labels=["model", "asset", "output"])
    quality = GaugeMetricFamily("lineside_prediction_quality", "Quality word of the latest prediction", labels=["model", "asset"])
    for model in snapshot.models:
        for outcome, count in model.outcomes.items():
            outcomes.add_metric([model.name, outcome], count)
        for part, (p50, p95, p99) in model.latency_ms.items():
            for quantile, number in (("0.5", p50), ("0.95", p95), ("0.99", p99)):
                latency.add_metric([model.name, part, quantile], number)
        for asset in model.assets:
            quality.add_metric([model.name, asset.name], asset.quality)
            for output in asset.outputs:
                if output.value is not None:
                    value.add_metric([model.name, asset.name, output.name], output.value)
    yield from (outcomes, latency, value, quality)


def _outlets(snapshot: GatewaySnapshot) -> Iterator[Metric]:
    writes = CounterMetricFamily("lineside_writes", "Guarded writes by fate", labels=["target", "fate"])
    armed = GaugeMetricFamily("lineside_target_armed", "1 while the target is armed", labels=["target"])
    for target in snapshot.targets:
        writes.add_metric([target.name, "written"], target.written)
        writes.add_metric([target.name, "verified"], target.verified)
        for reason, count in target.refused.items():
            writes.add_metric([target.name, f"refused: {reason}"], count)
        armed.add_metric([target.name], float(target.state.startswith("ARMED")))
    messages = CounterMetricFamily("lineside_messages", "Messages by fate", labels=["sink", "fate"])
    waiting = GaugeMetricFamily("lineside_outbox_waiting", "Messages that wait", labels=["sink"])
    for sink in snapshot.sinks:
        for fate in ("accepted", "rejected", "dropped"):
            messages.add_metric([sink.name, fate], getattr(sink, fate))
        waiting.add_metric([sink.name], sink.waiting)
    yield from (writes, armed, messages, waiting)


class Metrics:
    """Renders metrics.

    Args:
        snapshot: Gives the present state.
    """

    def __init__(self, snapshot: Callable[[], GatewaySnapshot]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_SnapshotCollector(snapshot))

    def render(self) -> bytes:
        """Text of all metrics now."""
        return generate_latest(self._registry)
