"""Kafka's own programs on our groups: the same output as on its own brokers, and our records read."""

import contextlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration import clients
from tests.integration.brokers import BrokerCluster, ClusterMaker, eventually
from tests.reference_kafka import ReferenceKafka, ReferenceMissing, tool

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.java, pytest.mark.slow]

SETTINGS: Final = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TOPICS: Final = ("t", "u")
"""Arguments of the groups program, in order; what they print is compared."""
QUESTIONS: Final = (
    "--list",
    "--list --state",
    "--list --state Stable,Empty --type classic",
    "--describe --group live",
    "--describe --group live --members",
    "--describe --group live --members --verbose",
    "--describe --group live --state",
    "--describe --group past",
    "--describe --group past --offsets --verbose",
    "--describe --group past --members",
    "--describe --group past --state",
    "--describe --group simple",
    "--describe --group simple --state",
    "--describe --group nobody",
    "--describe --all-groups --state",
    "--describe --all-groups",
    "--reset-offsets --group live --all-topics --to-latest --dry-run",
    "--reset-offsets --group past --all-topics --to-earliest --dry-run",
    "--reset-offsets --group past --topic t --to-latest --dry-run",
    "--reset-offsets --group past --topic t:1 --to-offset 3 --execute",
    "--reset-offsets --group past --topic t --shift-by -2 --execute",
    "--reset-offsets --group past --topic t --shift-by 500 --dry-run",
    "--reset-offsets --group past --topic t --to-current --dry-run",
    "--reset-offsets --group past --topic t --to-datetime 2020-01-01T00:00:00.000 --dry-run",
    "--reset-offsets --group past --topic t --by-duration P1D --execute",
    "--reset-offsets --group past --group simple --all-topics --to-earliest --export --dry-run",
    "--reset-offsets --group past --from-file {plan} --execute",
    "--reset-offsets --group new --topic u --to-latest --execute",
    "--describe --group past",
    "--describe --group new",
    "--delete-offsets --group past --topic t:0",
    "--delete-offsets --group live --topic t",
    "--delete-offsets --group past --topic nowhere",
    "--delete-offsets --group nobody --topic t",
    "--describe --group past",
    "--delete --group live",
    "--delete --group past --group live --group nobody",
    "--delete --group simple",
    "--list",
)


@contextlib.contextmanager
def live_member(bootstrap: str) -> Iterator[None]:
    """A static member of the group `live` that reads everything."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "live",
            "group.instance.id": "one",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    ended = threading.Event()
    ready = threading.Event()

    def work() -> None:
        count = 0
        while not ended.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                count += 1
                if count == 30:
                    consumer.commit(asynchronous=False)
                    ready.set()
        consumer.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


def prepare(bootstrap: str) -> None:
    """Topics with records; `past` has read and gone, `simple` has only committed."""
    for topic in TOPICS:
        clients.create_topic(bootstrap, topic, 3)
        for partition in range(3):
            clients.produce(bootstrap, topic, clients.payloads(10), partition=partition)
    past: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "past",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    past.subscribe(["t"])
    left = 30
    while left:
        left -= len(past.consume(left, timeout=1.0))
    past.commit(asynchronous=False)
    past.close()
    simple: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
    simple.commit(
        offsets=[TopicPartition("u", 1, 4), TopicPartition("t", 2, 1)], asynchronous=False
    )
    simple.close()


def answers(bootstrap: str, plan: Path) -> list[list[str]]:
    """What the program prints for each question, without what no two runs share."""
    prepare(bootstrap)
    found = []
    port = bootstrap.rpartition(":")[2]
    with live_member(bootstrap):
        for question in QUESTIONS:
            words = [*question.format(plan=plan).split(), "--timeout", "60000"]
            try:
                text = tool("groups", "--bootstrap-server", bootstrap, *words)
            except subprocess.CalledProcessError as error:
                text = f"exit {error.returncode}\n{error.stdout}"
            lines = [
                " ".join(UUID.sub("<uuid>", line).replace(port, "<port>").split())
                for line in text.splitlines()
            ]
            # Their order is that of a hash table; a stack trace names Kafka's own lines.
            found.append(sorted(line for line in lines if line and not line.startswith("at ")))
    return found


def test_groups_program_says_the_same(make_cluster: ClusterMaker, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("t,0,5\nt,2,900\n")
    cluster = make_cluster(1)
    try:
        with ReferenceKafka(tmp_path / "kafka", settings=SETTINGS) as kafka:
            expected = answers(kafka.bootstrap, plan)
    except ReferenceMissing as reason:
        pytest.skip(str(reason))
    found = answers(cluster.bootstrap, plan)
    different = [
        f"{question}\n  Kafka: {one}\n  ours:  {other}"
        for question, one, other in zip(QUESTIONS, expected, found, strict=True)
        if one != other
    ]
    assert not different, "\n".join(different)
    assert expected[0] == ["live", "past", "simple"]
    assert sum(answer[0].startswith("exit") for answer in expected if answer) < len(QUESTIONS) / 4
    assert cluster.errors() == []


def segments(cluster: BrokerCluster) -> list[Path]:
    return sorted(cluster[1].data.glob("__consumer_offsets-*/*.log"))


def test_dump_tool_reads_our_records(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(1)
    prepare(cluster.bootstrap)
    with live_member(cluster.bootstrap):
        pass
    eventually(lambda: any(path.stat().st_size for path in segments(cluster)))
    files = [str(path) for path in segments(cluster) if path.stat().st_size]
    text = tool("dump-log", "--offsets-decoder", "--files", ",".join(files))
    keys = [json.loads(line.split("key: ")[1].split(" payload: ")[0]) for line in _records(text)]
    values = [json.loads(line.split(" payload: ")[1]) for line in _records(text)]
    kinds = {(key["type"], value.get("version")) for key, value in zip(keys, values, strict=True)}
    assert {(str(kind), str(version)) for kind, version in kinds} == {("1", "3"), ("2", "3")}
    groups = {key["data"]["group"] for key in keys}
    assert groups == {"past", "simple", "live"}
    offsets = {
        (key["data"]["group"], key["data"]["topic"], key["data"]["partition"]): value["data"]
        for key, value in zip(keys, values, strict=True)
        if str(key["type"]) == "1"
    }
    assert offsets["simple", "u", 1]["offset"] == 4
    assert offsets["past", "t", 0]["offset"] == 10
    stored = [
        value["data"] for key, value in zip(keys, values, strict=True) if str(key["type"]) == "2"
    ]
    assert any(group["members"] for group in stored)
    assert "Exception" not in text


def _records(text: str) -> list[str]:
    return [line for line in text.splitlines() if " key: " in line]
