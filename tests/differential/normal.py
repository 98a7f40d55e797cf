"""Answers as plain data, without what differs from one broker or run to the next.

Fields at their default are left out, so that facts stay short; null and empty are told apart, as they
are different defaults.  Message texts are replaced by a mark and collected apart, see `texts`.
"""

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kafkalike.messages.api_versions import ApiVersionsResponse
from kafkalike.messages.configs import DescribeConfigsResponse
from kafkalike.messages.fetch import FetchResponse
from kafkalike.protocol.declaration import fields_of
from kafkalike.protocol.primitives import RECORDS, UUID
from kafkalike.protocol.struct import Message, Struct
from kafkalike.records.batch import CorruptBatch, RecordBatch
from kafkalike.records.scan import AnyBatch, iterate_batches
from kafkalike.types import ZERO_UUID

from .case import Case

Json: TypeAlias = Any

TEXTS: Final = ("error_message", "batch_index_error_message")
TIMES: Final = ("log_append_time_ms", "last_timestamp", "timestamp")
SIZES: Final = ("total_bytes", "usable_bytes")
RECENT_MS: Final = 24 * 3600 * 1000
SHORT_BYTES: Final = 48
UUID_TEXT: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What a coordinator puts at the end of member ids."""


def replaced_in(text: str, replaced: Mapping[str, str]) -> str:
    """The text with each key's value for the key; a number only where it is a whole word."""
    for old, new in replaced.items():
        if old.isdigit():
            text = re.sub(rf"(?<![0-9A-Za-z]){old}(?![0-9A-Za-z])", new, text)
        else:
            text = text.replace(old, new)
    return text


class Normaliser:
    """For one case: numbers ids by their first appearance."""

    def __init__(self, case: Case, replaced: Mapping[str, str]) -> None:
        self._case = case
        self._replaced = replaced
        self._ids: dict[bytes, str] = {}
        self._sessions: dict[int, str] = {}
        self._producers: dict[int, str] = {}
        self._members: dict[str, str] = {}
        self._now_ms = time.time() * 1000
        self.texts: list[str] = []
        """Message texts in the order of their appearance."""

    def message(self, message: Message, version: int, raw: bytes | memoryview) -> Json:
        """An answer; says so when its bytes are not those of our own encoding."""
        if message.encode(version) != bytes(raw):
            return {"odd_bytes": True, **self._struct(message, version)}
        return self._struct(message, version)

    def _struct(self, struct: Struct, version: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for field in fields_of(type(struct)) or fields_of(type(struct).__bases__[0]):
            if not field.present(version):
                continue
            value = getattr(struct, field.name)
            if field.name == "producer_id_start" and not getattr(struct, "error_code", 0):
                found[field.name] = "some" if value >= 0 else value
            elif field.wire is RECORDS:
                found[field.name] = None if value is None else self._records(bytes(value))
            elif field.name in TEXTS:
                found[field.name] = self._text(value)
            elif value != field.default or (value is None) != (field.default is None):
                found[field.name] = self._value(field.name, field.wire, value, version, struct)
                if field.name == "groups" and not found[field.name]:
                    del found[field.name]  # all were groups of other cases
        return found

    def _value(self, name: str, wire: Any, value: Any, version: int, owner: Struct) -> Json:
        if isinstance(value, list):
            if name == "api_keys" and len(value) > 1 and not self._case.whole_list:
                return "many"
            if name in ("topics", "responses", "groups"):
                value = [item for item in value if self._is_compared(item)]
            if name in self._case.unordered:
                value = sorted(value, key=_name_of)
            items = [self._value(name, wire, item, version, owner) for item in value]
            if name in self._case.unordered or isinstance(
                owner, DescribeConfigsResponse.DescribeConfigsResult
            ):
                items.sort(key=repr)
            return _joined(items) if isinstance(owner, FetchResponse) else items
        if isinstance(value, Struct):
            return self._struct(value, version)
        if value is None:
            return None
        if wire is UUID:
            return self._id(value)
        if isinstance(value, bytes):
            return brief(value)
        if name == "session_id":
            return self._sessions.setdefault(value, f"session-{len(self._sessions) + 1}")
        if name == "producer_id" and type(owner).__name__ == "InitProducerIdResponse":
            return self._producers.setdefault(value, f"producer-{len(self._producers) + 1}")
        if name in TIMES and abs(value - self._now_ms) < RECENT_MS:
            return "now"
        if name in SIZES and value > 0:
            return "bytes"
        if name == "documentation":
            return "text"
        if name == "cluster_id":
            return "cluster"
        if name == "finalized_features_epoch" and isinstance(owner, ApiVersionsResponse):
            return "epoch"
        if name == "port":
            return self._replaced.get(str(value), value)
        if isinstance(value, str):
            # First, or a port may be found among the digits of one.
            value = UUID_TEXT.sub(lambda found: self._member(found[0]), value)
            return replaced_in(value, self._replaced)
        return value

    def _member(self, text: str) -> str:
        return self._members.setdefault(text, f"uuid-{len(self._members) + 1}")

    def _is_compared(self, item: Any) -> bool:
        if not self._case.only or not isinstance(item, Struct):
            return True
        names = (getattr(item, key, None) for key in ("name", "topic", "group_id"))
        name = next(filter(None, names), "")
        return bool(name.startswith(self._case.only))

    def _id(self, value: bytes) -> str:
        if value == ZERO_UUID or len(set(value)) == 1:
            return value.hex()  # made up by a case
        return self._ids.setdefault(value, f"id-{len(self._ids) + 1}")

    def _text(self, value: str | None) -> Json:
        if not value:
            return value
        value = replaced_in(value, self._replaced)
        self.texts.append(value)
        return "text"

    # -- records -------------------------------------------------------------------------------

    def _records(self, data: bytes) -> Json:
        """Batches with every header field; their payload as hex, or hashed when it is long."""
        found: list[Json] = []
        position = 0
        try:
            for batch in iterate_batches(data):
                found.append(self._batch(batch))
                position = batch.position + batch.size
        except CorruptBatch:
            pass
        if position < len(data):
            rest = data[position:]
            is_filler = self._case.content and rest.startswith(b"\xff" * 8)
            found.append({"rest": "filler" if is_filler else brief(rest)})
        return found

    def _batch(self, batch: AnyBatch) -> Json:
        if not isinstance(batch, RecordBatch):
            if self._case.content:
                return [_record(record) for record in batch.records()]
            return {"old": brief(bytes(batch.view()))}
        is_recent = abs(batch.max_timestamp - self._now_ms) < RECENT_MS
        facts: dict[str, Json] = {
            "base": batch.base_offset,
            "delta": batch.last_offset_delta,
            "leader_epoch": batch.partition_leader_epoch,
            "attributes": batch.attributes,
            "base_time": batch.base_timestamp,
            "max_time": "now" if is_recent else batch.max_timestamp,
            "producer": [batch.producer_id, batch.producer_epoch, batch.base_sequence],
            "count": batch.count,
            "crc_ok": batch.crc_is_valid(),
        }
        if self._case.content:
            facts["records"] = [
                _record(r._replace(timestamp=0) if is_recent else r) for r in batch.records()
            ]
        else:
            facts["payload"] = brief(bytes(batch.payload()))
        return facts


def _name_of(item: Any) -> str:
    """So that ids are numbered in the order of the topics."""
    return getattr(item, "name", None) or getattr(item, "topic", None) or ""


def _joined(topics: list[Json]) -> list[Json]:
    """Neighbours of one topic as one: Kafka begins it anew between partitions read and refused."""
    found: list[Json] = []
    for topic in topics:
        identity = [topic.get("topic"), topic.get("topic_id")]
        if found and identity == [found[-1].get("topic"), found[-1].get("topic_id")]:
            both = found[-1].get("partitions", []) + topic.get("partitions", [])
            if both:
                found[-1]["partitions"] = both
        else:
            found.append(topic)
    return found


def _record(record: Any) -> Json:
    return [
        record.offset,
        record.timestamp,
        None if record.key is None else brief(record.key),
        None if record.value is None else brief(record.value),
        [[key.hex(), None if value is None else value.hex()] for key, value in record.headers],
    ]


def brief(data: bytes) -> str:
    if len(data) <= SHORT_BYTES:
        return data.hex()
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:12]}"
