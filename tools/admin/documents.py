"""The JSON files of Kafka's administration tools: partitions to move, to elect leaders of."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafkalike.types import TopicPartition

from .. import cli

ANY_DIR: Final = "any"
_LIMIT_BYTES: Final = 64 << 20


@dataclass(slots=True, frozen=True)
class Move:
    """Where the replicas of one partition shall be; `log_dirs` has one name or `any` a replica."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]


def read_document(flag: str, path: str) -> dict[str, Any]:
    """A JSON object of version 1 (or without one).  Raises CommandError."""
    try:
        file = Path(path)
        if file.stat().st_size > _LIMIT_BYTES:
            raise cli.CommandError(f"{flag}: {path} is larger than {_LIMIT_BYTES} bytes")
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise cli.CommandError(f"{flag}: {path}: {error.strerror}") from error
    except ValueError as error:
        raise cli.CommandError(f"{flag}: {path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise cli.CommandError(f"{flag}: {path}: expected an object, found {_shown(value)}")
    if value.get("version", 1) != 1:
        raise cli.CommandError(
            f"{flag}: {path}: expected version 1, found {_shown(value['version'])}"
        )
    return value


def read_moves(flag: str, path: str) -> list[Move]:
    """`{"version":1,"partitions":[{"topic":..,"partition":..,"replicas":[..],"log_dirs":[..]}]}`."""
    moves: dict[TopicPartition, Move] = {}
    for where, item in _items(flag, path, "partitions"):
        partition = _partition(where, item)
        replicas = item.get("replicas")
        if not _are_ids(replicas):
            raise cli.CommandError(
                f"{where}: 'replicas' is {_shown(replicas)}, expected a list of broker ids"
            )
        assert isinstance(replicas, list)
        if len(set(replicas)) != len(replicas):
            raise cli.CommandError(f"{where}: {partition} names a broker twice: {replicas}")
        dirs = item.get("log_dirs", [ANY_DIR] * len(replicas))
        if not isinstance(dirs, list) or not all(isinstance(d, str) for d in dirs):
            raise cli.CommandError(
                f"{where}: 'log_dirs' is {_shown(dirs)}, expected a list of texts"
            )
        if len(dirs) != len(replicas):
            raise cli.CommandError(
                f"{where}: {partition} has {len(replicas)} replicas and {len(dirs)} log_dirs,"
                " expected as many"
            )
        if partition in moves:
            raise cli.CommandError(f"{where}: {partition} is named twice")
        moves[partition] = Move(partition, tuple(replicas), tuple(dirs))
    if not moves:
        raise cli.CommandError(f"{flag}: {path} names no partition")
    return list(moves.values())


def read_partitions(flag: str, path: str) -> list[TopicPartition]:
    """`{"partitions":[{"topic":..,"partition":..}]}`."""
    found: dict[TopicPartition, None] = {}
    for where, item in _items(flag, path, "partitions"):
        partition = _partition(where, item)
        if partition in found:
            raise cli.CommandError(f"{where}: {partition} is named twice")
        found[partition] = None
    if not found:
        raise cli.CommandError(f"{flag}: {path} names no partition")
    return list(found)


def read_topics(flag: str, path: str) -> list[str]:
    """`{"version":1,"topics":[{"topic":..}]}`."""
    found: dict[str, None] = {}
    for where, item in _items(flag, path, "topics"):
        topic = item.get("topic")
        if not isinstance(topic, str) or not topic:
            raise cli.CommandError(f"{where}: 'topic' is {_shown(topic)}, expected a name")
        if topic in found:
            raise cli.CommandError(f"{where}: {topic} is named twice")
        found[topic] = None
    if not found:
        raise cli.CommandError(f"{flag}: {path} names no topic")
    return list(found)


def format_moves(moves: Sequence[Move]) -> str:
    """One line, as Kafka's tool prints it."""
    return json.dumps(moves_value(moves), separators=(",", ":"), ensure_ascii=False)


def moves_value(moves: Sequence[Move]) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "replicas": list(move.replicas),
                "log_dirs": list(move.log_dirs),
            }
            for move in moves
        ],
    }


def _items(flag: str, path: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    items = read_document(flag, path).get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise cli.CommandError(
            f"{flag}: {path}: '{name}' is {_shown(items)}, expected a list of objects"
        )
    return [(f"{flag}: {path}: {name}[{index}]", item) for index, item in enumerate(items)]


def _partition(where: str, item: dict[str, Any]) -> TopicPartition:
    topic, number = item.get("topic"), item.get("partition")
    if not isinstance(topic, str) or not topic:
        raise cli.CommandError(f"{where}: 'topic' is {_shown(topic)}, expected a name")
    if type(number) is not int or number < 0:
        raise cli.CommandError(f"{where}: 'partition' is {_shown(number)}, expected 0 or more")
    return TopicPartition(topic, number)


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(b) is int and b >= 0 for b in value)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
