"""Batches and predictions as JSON messages."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson

from connectors.mqtt.settings import TopicSettings
from gateway.core.batch import Batch
from gateway.core.clock import NS_PER_MS, NS_PER_S
from gateway.core.prediction import OutputSpec, Prediction, Trace
from gateway.core.protocols import Message
from gateway.core.quality import describe
from gateway.core.tags import TagTable

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_NO_WILDCARDS = {ord("+"): "_", ord("#"): "_", 0: "_"}
# A source that sends the same tags again and again has their names and units encoded once.
_KNOWN_LIMIT = 256


def stamp(time_ns: int) -> str:
    """ISO 8601 in UTC with milliseconds."""
    whole, rest_ns = divmod(time_ns, NS_PER_S)
    try:
        moment = datetime.fromtimestamp(whole, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ns)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns // NS_PER_MS:03d}Z"


def _topic(template: str, **names: str) -> str:
    """A filled template; a name must not bring in wildcards."""
    return template.format(**names).translate(_NO_WILDCARDS)


class Encoder:
    """Makes messages.

    Args:
        gateway: Its name.
        topics: Templates.
        table: Names and units of the tags.
        outputs: Output specs of each model by name.
    """

    def __init__(self, gateway: str, topics: TopicSettings, table: TagTable, outputs: Mapping[str, Sequence[OutputSpec]]) -> None:
        self._gateway = gateway
        self._topics = topics
        self._table = table
        self._outputs = outputs
        self._known: dict[int, tuple[Any, list[str], list[str]]] = {}
        self._closed: dict[tuple[str, str], tuple[int, Trace]] = {}

    def batch(self, batch: Batch) -> Message:
        """One message for a batch, in columns: `tags`, `units`, `values` (null where bad), `quality`, `time` per tag in ms since 1970."""
        group = self._table.group(batch.group)
        names, units = self._names(batch)
        values: list[Any] = np.where(np.isfinite(batch.value), batch.value, np.nan).tolist()
        for pos, word in zip(batch.wide_pos.tolist(), batch.wide.tolist(), strict=True):
            signed = self._table[int(batch.tag[pos])].data_type == "int64"
            values[pos] = word - 2**64 if signed and word >= 2**63 else word
        for pos, text in zip(batch.text_pos.tolist(), batch.text, strict=True):
            values[pos] = text
        body = {
            "time": stamp(batch.received_wall_ns),
            "domain": group.domain,
            "cycle": batch.cycle,
            "tags": names,
            "units": units,
            "values": values,
            "quality": batch.quality,
            "time_ms": batch.source_time_ns // NS_PER_MS,
        }
        topic = _topic(self._topics.values, gateway=self._gateway, source=group.source, group=group.name.rsplit("/", 1)[-1])
        return Message(topic, orjson.dumps(body, option=_OPTIONS))

    def _names(self, batch: Batch) -> tuple[list[str], list[str]]:
        known = self._known.get(id(batch.tag))
        if known is not None and known[0] is batch.tag:
            return known[1], known[2]
        tags = [self._table[int(number)] for number in batch.tag]
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        entry = (batch.tag, [tag.name for tag in tags], [tag.unit for tag in tags])
        self._known[id(batch.tag)] = entry
        return entry[1], entry[2]

    def closed(self, prediction: Prediction, trace: Trace) -> None:
        """Remember the closed trace of a prediction; it goes out with the next one."""
        self._closed[prediction.model, prediction.asset] = (prediction.sequence, trace)

    def prediction(self, prediction: Prediction, now_mono_ns: int) -> Message:
        """One message for a prediction.

        Args:
            prediction: What to say.
            now_mono_ns: For the age of its oldest input.
        """
        previous = self._closed.get((prediction.model, prediction.asset))
        outputs = [
            {
                "name": spec.name,
                "value": value if np.isfinite(value) else None,
                "unit": spec.unit,
                "horizon_s": spec.horizon_s,
            }
            for spec, value in zip(self._outputs[prediction.model], prediction.outputs.tolist(), strict=True)
        ]
        body = {
            "model": prediction.model,
            "asset": prediction.asset,
            "sequence": prediction.sequence,
            "source_time": stamp(prediction.end_ns),
            "source_time_ns": prediction.end_ns,
            "domain": prediction.domain,
            "made": stamp(prediction.made_wall_ns),
            "outcome": prediction.outcome.value,
            "quality": prediction.quality,
            "quality_text": describe(prediction.quality),
            "digest": prediction.digest,
            "backend": prediction.backend,
            "age_ms": prediction.oldest_age_ns(now_mono_ns) / NS_PER_MS,
            "trace_ms": prediction.trace.steps_ms(),
            "outputs": outputs,
            "previous": _previous(*previous) if previous else None,
        }
        topic = _topic(self._topics.prediction, gateway=self._gateway, model=prediction.model, asset=prediction.asset)
        return Message(topic, orjson.dumps(body, option=_OPTIONS))


def _previous(sequence: int, trace: Trace) -> dict[str, Any]:
    """The result before, closed: its own number, the one it was written under, and its whole way."""
    return {"sequence": sequence, "written_sequence": trace.written_sequence, "trace_ms": trace.steps_ms()}
