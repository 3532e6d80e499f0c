"""The summary of a run: accounts, predictions beside persistence, latency, back end, what was written where."""

from rich.console import Console
from rich.table import Table

from gateway.core.snapshot import GatewaySnapshot, ModelStatus, StageStatus

_TRACE = ("read", "window", "wait", "inference", "write", "read back", "total")
_FATES = ("received", "consumed", "rejected", "dropped", "merged", "waiting", "in_flight", "produced")


def show(snapshot: GatewaySnapshot, console: Console) -> None:
    """Print the summary of a snapshot."""
    console.print(f"\n[bold]{snapshot.gateway}[/], {snapshot.uptime_s:.0f} s, {snapshot.configuration}")
    _stages(snapshot.stages, console)
    for model in snapshot.models:
        _model(model, console)
    _written(snapshot, console)
    for alarm in snapshot.alarms:
        condition = alarm.condition
        state = "active" if condition.active else "returned"
        console.print(f"alarm {state}: {condition.component}: {condition.text} -> {condition.remedy}")


def _stages(stages: tuple[StageStatus, ...], console: Console) -> None:
    table = Table("stage", "unit", *(fate.replace("_", " ") for fate in _FATES), "balance", title="Accounts", title_justify="left")
    for column in table.columns[2:-1]:
        column.justify = "right"
    for stage in stages:
        for unit, ledger in stage.ledgers.items():
            table.add_row(stage.name, unit, *(f"{getattr(ledger, fate)}" for fate in _FATES), "balanced" if ledger.balanced else "WRONG")
    console.print(table)


def _model(model: ModelStatus, console: Console) -> None:
    console.print(f"[bold]model {model.name}[/] {model.version}, digest {model.digest[:16]}, back end {model.backend}: {model.reason}")
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(model.outcomes.items())) or "none"
    console.print(f"predictions: {outcomes}; late values {model.late_values}, epochs {model.epochs}")
    if model.scores:
        table = Table("output", "unit", "horizon s", "judged", "RMSE", "persistence", "ratio", title="Forecast error", title_justify="left")
        for score in model.scores:
            ratio = score.rmse / score.persistence_rmse if score.persistence_rmse else float("nan")
            figures = (f"{score.horizon_s:g}", f"{score.count}", f"{score.rmse:.4g}", f"{score.persistence_rmse:.4g}", f"{ratio:.2f}")
            table.add_row(score.output, score.unit, *figures)
        console.print(table)
    else:
        console.print("forecast error: nothing to judge yet, no horizon has passed")
    if model.latency_ms:
        table = Table("step", "p50 ms", "p95 ms", "p99 ms", title="Latency", title_justify="left")
        for part in sorted(model.latency_ms, key=_TRACE.index):
            table.add_row(part, *(f"{value:.2f}" for value in model.latency_ms[part]))
        console.print(table)


def _written(snapshot: GatewaySnapshot, console: Console) -> None:
    table = Table("where", "state", "done", "refused or waiting", "last", title="What was written where", title_justify="left")
    for target in snapshot.targets:
        refused = ", ".join(f"{count} {reason}" for reason, count in target.refused.items()) or "-"
        done = f"{target.written} written, {target.verified} read back equal"
        table.add_row(f"{target.kind} {target.name}", target.state, done, refused, target.last_written or "-")
    for sink in snapshot.sinks:
        waiting = f"{sink.waiting} waiting, {sink.rejected} rejected, {sink.dropped} dropped"
        table.add_row(f"{sink.kind} {sink.name} {sink.address}", sink.text, f"{sink.accepted} confirmed", waiting, "-")
    if snapshot.targets or snapshot.sinks:
        console.print(table)
