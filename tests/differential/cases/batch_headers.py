"""Batches with each header field bent in several ways, with and without a fitting CRC."""

from collections.abc import Iterator
from typing import Any

from ..batches import T0, batch, bend
from ..case import Case
from .batch_records import produced

I32, I64 = 2**31 - 1, 2**63 - 1
VERSION = 11


def values(size: int, count: int, attributes: int) -> dict[str, tuple[int, ...]]:
    """Field -> values to try, for a batch of that many bytes and records."""
    length = size - 12
    return {
        "base_offset": (1, -1, 5, I64, -I64 - 1),
        "length": (0, -1, 13, 14, 48, 49, length - 1, length + 1, length + 1000, I32, -I32 - 1),
        "leader_epoch": (0, 7, -2, I32),
        "magic": (-1, 0, 1, 3, 127),
        "crc": (0, 1, 2**32 - 1),
        "attributes": tuple(
            attributes | bits for bits in (5, 6, 7, 8, 0x20, 0x40, 0x80, 0x100, 0x8000, 0xFF80)
        ),
        "last_offset_delta": (-1, -2, count, count - 2, count + 100, I32, -I32 - 1),
        "base_timestamp": (0, -1, T0 + 5000, I64, -I64 - 1),
        "max_timestamp": (0, -1, -2, T0 + 99, I64, -I64 - 1),
        "producer_id": (0, -2, 9, I64, -I64 - 1),
        "producer_epoch": (0, -2, 1, 32767, -32768),
        "base_sequence": (0, -2, 1, I32, -I32 - 1),
        "count": (0, -1, count + 1, count - 1, count + 1000, I32, -I32 - 1),
    }


def cases() -> Iterator[Case]:
    kinds = {
        "one": batch(1),
        "twelve": batch(12),
        "large": batch(60, size=100),
        "gzip": batch(12, 1),
    }
    for kind, good in kinds.items():
        count = {"one": 1, "gzip": 12, "twelve": 12, "large": 60}[kind]
        for field, tries in values(len(good), count, good[22]).items():
            for value in dict.fromkeys(tries):
                changes: dict[str, Any] = {field: value}
                for fix in (True, False):
                    if not fix and (kind != "one" or field == "crc"):
                        continue
                    bent = bend(good, fix_crc=fix, **changes)
                    word = field.replace("_", "-")
                    name = f"header-{kind}-{word}-{value}{'' if fix else '-unsealed'}"
                    yield produced(name, bent)
    pairs: dict[str, dict[str, Any]] = {
        "producer-without-sequence": {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1},
        "producer-without-epoch": {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
        "epoch-minus-2": {"producer_id": 7, "producer_epoch": -2, "base_sequence": 0},
        "sequence-without-producer": {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0},
        "producer-minus-2": {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
        "transactional-no-producer": {"attributes": 0x10},
        "control-transactional": {"attributes": 0x30, "producer_id": 7, "producer_epoch": 0},
        "no-times": {"base_timestamp": -1, "max_timestamp": -1},
        "count-and-delta-0": {"count": 0, "last_offset_delta": -1},
        "count-and-delta-more": {"count": 13, "last_offset_delta": 12},
        "count-and-delta-less": {"count": 11, "last_offset_delta": 10},
        "count-and-delta-huge": {"count": I32, "last_offset_delta": I32 - 1},
    }
    for kind in ("twelve", "gzip", "large"):
        for word, changes in pairs.items():
            bent = bend(
                kinds[kind],
                **{
                    field: value | kinds[kind][22] if field == "attributes" else value
                    for field, value in changes.items()
                },
            )
            for version in (3, VERSION):
                name = f"header-{kind}-{word}-v{version}"
                yield produced(name, bent, version)
