"""Messages."""

import json
import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from connectors.mqtt.encoding import Encoder, stamp
from connectors.mqtt.settings import TopicSettings
from gateway.core.batch import Batch
from gateway.core.clock import NS_PER_MS, NS_PER_S
from gateway.core.prediction import Outcome, OutputSpec, Prediction, Trace
from gateway.core.quality import Code
from gateway.core.tags import DataType, Tag, TagTable

_WALL_NS = 1_700_000_000 * NS_PER_S + 123 * NS_PER_MS
_OUTPUTS = (OutputSpec("temperature", "degC", 5.0), OutputSpec("vibration", "mm/s", 5.0))


def _table() -> TagTable:
    table = TagTable()
    group = table.add_group("plc/fast", "plc", 0.5)
    for name, kind in (("flow", DataType.FLOAT32), ("count", DataType.UINT64), ("offset", DataType.INT64), ("text", DataType.TEXT)):
        table.add(Tag(name, "l/min" if name == "flow" else "1", kind, group.id))
    return table


def _encoder(table: TagTable) -> Encoder:
    return Encoder("EDGE-07", TopicSettings(), table, {"bearing": _OUTPUTS})


def _batch(tags: list[int], values: list[float], **columns: Any) -> Batch:  # noqa: ANN401 - whatever columns a Batch has
    n = len(tags)
    quality = np.where(np.isfinite(values), Code.GOOD, Code.BAD_NOT_A_NUMBER).astype(np.uint16)
    times = np.full(n, _WALL_NS, np.int64)
    return Batch(0, 3, 1, 2, _WALL_NS, np.array(tags, np.int32), np.array(values, np.float64), quality, times, **columns)


def _prediction(sequence: int, outputs: list[float], **changes: Any) -> Prediction:  # noqa: ANN401 - whatever fields a Prediction has
    trace = Trace(NS_PER_S, 1_002 * NS_PER_MS, 1_003 * NS_PER_MS, 1_004 * NS_PER_MS, 1_009 * NS_PER_MS)
    fields: dict[str, Any] = {"oldest_lag_ns": 0, "oldest_received_mono_ns": NS_PER_S, "quality": Code.GOOD} | changes
    quality = fields.pop("quality")
    return Prediction(
        "bearing",
        "pump1",
        sequence,
        _WALL_NS,
        "plant",
        np.array(outputs),
        quality,
        Outcome.INFERRED,
        "abc",
        "cpu-float",
        trace,
        _WALL_NS,
        **fields,
    )


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=50))
def test_every_finite_value_survives_exactly_and_everything_else_is_null(values: list[float]) -> None:
    message = _encoder(_table()).batch(_batch([0] * len(values), values))
    decoded = json.loads(message.payload)["values"]
    assert decoded == [value if math.isfinite(value) else None for value in values]


def test_a_batch_is_one_message_in_columns() -> None:
    message = _encoder(_table()).batch(_batch([0, 0], [1.5, math.nan]))
    assert message.topic == "lineside/EDGE-07/plc/fast"
    assert not message.retain
    assert json.loads(message.payload) == {
        "time": "2023-11-14T22:13:20.123Z",
        "domain": "gateway",
        "cycle": 3,
        "tags": ["flow", "flow"],
        "units": ["l/min", "l/min"],
        "values": [1.5, None],
        "quality": [0, Code.BAD_NOT_A_NUMBER],
        "time_ms": [_WALL_NS // NS_PER_MS] * 2,
    }


def test_wide_integers_and_texts_take_the_place_of_the_number_that_cannot_hold_them() -> None:
    wide = np.array([2**64 - 1, 2**64 - 1], np.uint64)
    columns = {"wide_pos": np.array([0, 1], np.int32), "wide": wide, "text_pos": np.array([2], np.int32), "text": ("ready",)}
    message = _encoder(_table()).batch(_batch([1, 2, 3], [0.0, 0.0, math.nan], **columns))
    assert json.loads(message.payload)["values"] == [2**64 - 1, -1, "ready"]


def test_names_follow_the_tags_of_each_batch() -> None:
    encoder = _encoder(_table())
    for _ in range(600):
        assert json.loads(encoder.batch(_batch([1, 0], [1.0, 2.0])).payload)["tags"] == ["count", "flow"]


def test_wildcards_in_a_name_do_not_reach_the_topic() -> None:
    table = TagTable()
    group = table.add_group("plc+/a#", "plc+", 0.5)
    table.add(Tag("flow", "l/min", DataType.FLOAT32, group.id))
    assert _encoder(table).batch(_batch([0], [1.0])).topic == "lineside/EDGE-07/plc_/a_"


def test_a_prediction_says_value_unit_quality_time_horizon_model_back_end_and_trace() -> None:
    message = _encoder(_table()).prediction(_prediction(7, [61.25, math.nan]), NS_PER_S + 20 * NS_PER_MS)
    assert message.topic == "lineside/EDGE-07/prediction/bearing/pump1"
    body = json.loads(message.payload)
    assert body["outputs"] == [
        {"name": "temperature", "value": 61.25, "unit": "degC", "horizon_s": 5.0},
        {"name": "vibration", "value": None, "unit": "mm/s", "horizon_s": 5.0},
    ]
    assert (body["model"], body["digest"], body["backend"], body["outcome"]) == ("bearing", "abc", "cpu-float", "inferred")
    assert (body["quality"], body["quality_text"], body["sequence"], body["age_ms"]) == (0, "good", 7, 20.0)
    assert (body["source_time"], body["source_time_ns"], body["domain"]) == ("2023-11-14T22:13:20.123Z", _WALL_NS, "plant")
    assert body["trace_ms"] == {"read": 2.0, "window": 1.0, "wait": 1.0, "inference": 5.0, "total": 9.0}
    assert body["previous"] is None


def test_the_closed_trace_of_a_result_goes_out_with_the_next_one_of_its_asset() -> None:
    encoder = _encoder(_table())
    first = _prediction(7, [1.0, 2.0])
    encoder.closed(
        first, Trace(NS_PER_S, 1_002 * NS_PER_MS, written_ns=1_012 * NS_PER_MS, read_back_ns=1_015 * NS_PER_MS, written_sequence=41)
    )
    body = json.loads(encoder.prediction(_prediction(8, [1.0, 2.0]), NS_PER_S).payload)
    whole_way = {"read": 2.0, "read back": 3.0, "total": 15.0}
    assert body["previous"] == {"sequence": 7, "written_sequence": 41, "trace_ms": whole_way}


@given(st.integers(0, 4_000_000_000 * NS_PER_S))
def test_stamps_are_utc_with_milliseconds_cut_off(time_ns: int) -> None:
    text = stamp(time_ns)
    whole = np.datetime64(time_ns // NS_PER_MS, "ms")
    assert text == f"{whole}Z"


def test_a_stamp_beyond_all_calendars_stays_a_number() -> None:
    assert stamp(2**62 * 100) == str(2**62 * 100)
