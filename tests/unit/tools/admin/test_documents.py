"""The JSON files of Kafka's administration tools, and what is said of wrong ones."""

import json
from pathlib import Path

import pytest

from kafkalike.tools import cli
from kafkalike.tools.admin.documents import (
    Move,
    format_moves,
    read_moves,
    read_partitions,
    read_topics,
)
from kafkalike.types import TopicPartition


def test_moves_with_and_without_log_dirs(tmp_path: Path) -> None:
    path = tmp_path / "moves.json"
    text = (
        '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[3,1],'
        '"log_dirs":["any","/d2"]}]}'
    )
    path.write_text(text)
    moves = read_moves("--file", str(path))
    assert moves == [Move(TopicPartition("foo", 0), (3, 1), ("any", "/d2"))]
    assert format_moves(moves) == text
    path.write_text('{"partitions":[{"topic":"foo","partition":1,"replicas":[2]}]}')
    assert read_moves("--file", str(path)) == [Move(TopicPartition("foo", 1), (2,), ("any",))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object"),
        ('{"version":2,"partitions":[]}', "expected version 1, found 2"),
        ('{"version":1}', "'partitions' is null"),
        ('{"version":1,"partitions":[]}', "names no partition"),
        ('{"version":1,"partitions":[1]}', "expected a list of objects"),
        ('{"partitions":[{"partition":0,"replicas":[1]}]}', "'topic' is null"),
        ('{"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}', "'partition' is -1"),
        ('{"partitions":[{"topic":"t","partition":true,"replicas":[1]}]}', "'partition' is true"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "'replicas' is []"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}', "list of broker ids"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}', "names a broker twice"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}',
            "2 replicas and 1 log_dirs",
        ),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":[7]}]}',
            "expected a list of texts",
        ),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
            '{"topic":"t","partition":0,"replicas":[2]}]}',
            "t-0 is named twice",
        ),
    ],
)
def test_wrong_files_of_moves(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "moves.json"
    path.write_text(text)
    with pytest.raises(cli.CommandError) as caught:
        read_moves("--reassignment-json-file", str(path))
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"--reassignment-json-file: {path}")


def test_partitions_and_topics(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    items = [{"topic": "foo", "partition": 1}, {"topic": "foo", "partition": 2}]
    path.write_text(json.dumps({"partitions": items}))
    assert read_partitions("--file", str(path)) == [
        TopicPartition("foo", 1),
        TopicPartition("foo", 2),
    ]
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": "foo"}, {"topic": "bar"}]}))
    assert read_topics("--file", str(path)) == ["foo", "bar"]
    path.write_text(json.dumps({"topics": [{"topic": "foo"}, {"topic": "foo"}]}))
    with pytest.raises(cli.CommandError, match="foo is named twice"):
        read_topics("--file", str(path))
    path.write_text(json.dumps({"partitions": [items[0], items[0]]}))
    with pytest.raises(cli.CommandError, match="foo-1 is named twice"):
        read_partitions("--file", str(path))
    with pytest.raises(cli.CommandError, match="No such file"):
        read_topics("--file", str(tmp_path / "none"))
