"""Scripted snapshots: all well, one alarm, a flood, a lost source, nothing configured, hundreds of tags."""

from dataclasses import replace

from gateway.core.condition import Alarm, AlarmState, Condition, Priority
from gateway.core.quality import Code, Ne107, describe
from gateway.core.snapshot import AssetStatus, GatewaySnapshot, ModelStatus, OutputStatus, SinkStatus, SourceStatus, TagStatus, TargetStatus

WALL_NS = 1_700_000_000_000_000_000


def tag(name: str, value: float | None, quality: int = Code.GOOD, unit: str = "degC") -> TagStatus:
    trend = (40.0, 41.0, 43.0, None, 46.0, 50.0, 55.0, 60.0)
    return TagStatus(name, unit, value, quality, describe(quality), 120.0 if quality == 0 else 39_000.0, 0.0, 120.0, trend)


def model(word: Ne107 = Ne107.GOOD) -> ModelStatus:
    output = OutputStatus("bearing_temperature_5s", "degC", 5.0, 71.44, 0.0, 150.0, (60.0, 65.0, 71.4))
    asset = AssetStatus("pump1", 0, "good", "inferred", 0.98, 41, 310.0, (output,))
    latency = {"inference": (0.3, 0.5, 0.9)}
    outcomes = {"inferred": 41}
    return ModelStatus("bearing", "1", "abc", word, "cpu-float", "only rung", 0.25, 32, 5, outcomes, latency, assets=(asset,))


def well() -> GatewaySnapshot:
    source = SourceStatus("plc-a", "modbus", "10.0.0.5:502 unit 1", Ne107.GOOD, "connected", tags=10, good_tags=10, cycle_p99_ms=4.2)
    target = TargetStatus("pump1-out", "modbus", "ARMED", "arm by op", Ne107.GOOD, 41, 41)
    sink = SinkStatus("broker", "mqtt", "10.0.0.9:1883", Ne107.GOOD, "connected", 120)
    tags = (tag("pump1.bearing_temperature", 71.4), tag("pump1.vibration", 4.213, unit="mm/s"))
    return GatewaySnapshot(
        "EDGE-07", "0.1.0", "running", WALL_NS, 3600.0, 4.0, 96.0, "gateway.yaml", (), (source,), (model(),), (target,), (sink,), (), tags
    )


def alarm(component: str, text: str, priority: Priority, state: AlarmState = AlarmState.UNACKNOWLEDGED) -> Alarm:
    condition = Condition(
        component, "unreachable", True, priority, text, "check power, cable and address", Ne107.FAILURE, WALL_NS - 39 * 10**9
    )
    return Alarm(condition, state)


def source_lost() -> GatewaySnapshot:
    source = replace(well().sources[0], word=Ne107.FAILURE, text="no answer, down 39 s, try 7, next in 12 s", good_tags=0)
    tags = (tag("pump1.bearing_temperature", 71.4, Code.BAD_COMM_LOST), tag("pump1.vibration", 4.213, Code.UNCERTAIN_STALE, "mm/s"))
    return replace(well(), sources=(source,), tags=tags, alarms=(alarm("plc-a", "no answer within 500 ms", Priority.MEDIUM),))


def flood() -> GatewaySnapshot:
    alarms = tuple(alarm(f"plc-{i}", "no answer", Priority(1 + i // 14)) for i in range(40))
    return replace(source_lost(), alarms=alarms)


def standing_still() -> GatewaySnapshot:
    """Pump 1 does not run, pump 2 has just been started: nothing is wrong."""
    one = replace(model().assets[0], quality=int(Code.BAD_DISABLED), quality_text=describe(Code.BAD_DISABLED), outcome="disabled")
    two = replace(one, name="pump2", quality=int(Code.BAD_WAITING), quality_text=describe(Code.BAD_WAITING), outcome="warming up")
    return replace(well(), models=(replace(model(Ne107.OUT_OF_SPECIFICATION), assets=(one, two)),))


def held() -> GatewaySnapshot:
    first = replace(well().targets[0], state="HELD", reason="hold by op", word=Ne107.FUNCTION_CHECK)
    return replace(well(), targets=(first, replace(first, name="pump2-out", state="ARMED (dry run)", word=Ne107.GOOD)))


def hostile() -> GatewaySnapshot:
    """Names and texts from devices, with escape sequences, line breaks and letters of other alphabets."""
    name = "\x1b[2Jpümpe\n\t温度\x9b31m"
    return replace(source_lost(), gateway=name, tags=(tag(name, 1.0),), alarms=(alarm(name, name, Priority.HIGH),))


def many_tags() -> GatewaySnapshot:
    return replace(well(), tags=tuple(tag(f"line3.cell{i}.motor_temperature", float(i)) for i in range(500)))


def empty() -> GatewaySnapshot:
    return replace(well(), sources=(), models=(), targets=(), sinks=(), tags=())


SCRIPTED = {
    "well": well(),
    "one alarm": replace(well(), alarms=(alarm("plc-b", "no answer", Priority.HIGH),)),
    "source lost": source_lost(),
    "flood": flood(),
    "500 tags": many_tags(),
    "empty": empty(),
    "standing still": standing_still(),
    "held": held(),
    "hostile": hostile(),
    "simulated": replace(well(), simulated=True),
}
