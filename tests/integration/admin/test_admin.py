"""`kafkalike-admin` against a cluster of three: moves, elections, what was lost, what differs."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration import clients
from tests.integration.brokers import ROOT, BrokerCluster, ClusterMaker, eventually

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

LIMIT_S = 120.0


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


def admin(*words: str) -> Answer:
    """One run of the command, as a process."""
    done = subprocess.run(
        [sys.executable, "-m", "kafkalike.tools.admin.main", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def ask(cluster: BrokerCluster, *words: str) -> Answer:
    return admin(*words, "--bootstrap-server", cluster.bootstrap, "--output", "json")


def make_topic(cluster: BrokerCluster, name: str, assignment: str) -> None:
    words = ("topics", "create", "--topic", name, "--replica-assignment", assignment)
    answer = ask(cluster, *words)
    assert answer.code == 0, answer.err


def state_of(cluster: BrokerCluster, topic: str) -> dict[str, Any]:
    answer = ask(cluster, "topics", "describe", "--topic", topic)
    assert answer.code == 0, answer.err
    partition: dict[str, Any] = answer.value["topics"][0]["partitions"][0]
    return partition


def in_trouble(cluster: BrokerCluster, flag: str) -> list[str]:
    answer = ask(cluster, "topics", "describe", flag)
    assert answer.code == 0, answer.err
    return [
        f"{topic['name']}-{partition['partition']}"
        for topic in answer.value["topics"]
        for partition in topic["partitions"]
    ]


def verify(cluster: BrokerCluster, *more: str) -> Answer:
    return ask(cluster, "verify", "--zookeeper", cluster.zookeeper, *more)


def moves_file(folder: Path, *moves: tuple[str, int, list[int]]) -> str:
    path = folder / "moves.json"
    partitions = [{"topic": t, "partition": p, "replicas": r} for t, p, r in moves]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def holds(path: Path, text: str) -> bool:
    """Whether a file that is being replaced now and then has come to hold `text`."""
    return path.exists() and text in path.read_text()


def test_replicas_move_and_everything_agrees(make_cluster: ClusterMaker, tmp_path: Path) -> None:
    cluster = make_cluster(3)
    make_topic(cluster, "moved", "1:2,2:1")
    clients.produce(cluster.bootstrap, "moved", clients.payloads(2000), partition=0)
    clients.produce(cluster.bootstrap, "moved", clients.payloads(500), partition=1)

    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"moved"}]}')
    plan = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    proposal = ask(cluster, "reassign", "generate", *plan).value["proposed"]
    assert all(set(p["replicas"]) == {2, 3} for p in proposal["partitions"])

    path = moves_file(tmp_path, ("moved", 0, [3, 2]), ("moved", 1, [3, 2]))
    words = ("--reassignment-json-file", path)
    started = ask(cluster, "reassign", "execute", *words, "--throttle", "50000")
    assert started.code == 0, started.err
    assert started.value["rollback"]["partitions"][0]["replicas"] == [1, 2]
    configs = ask(cluster, "topics", "describe", "--topic", "moved").value["topics"][0]["configs"]
    assert configs["leader.replication.throttled.replicas"] == "0:1,0:2,1:1,1:2"
    assert configs["follower.replication.throttled.replicas"] == "0:3,1:3"

    moving = ask(cluster, "reassign", "list").value["reassignments"]
    if moving:  # the throttle makes it last, but how long is not for this test to say
        assert moving[0]["adding"] == [3] and moving[0]["removing"] == [1]
        progress = ask(cluster, "reassign", "verify", *words, "--preserve-throttles")
        assert progress.code in (0, 3)

    def is_done() -> bool:
        return ask(cluster, "reassign", "verify", *words).code == 0

    eventually(is_done, 60, what="the reassignment is completed")
    assert state_of(cluster, "moved")["replicas"] == [3, 2]
    described = ask(cluster, "topics", "describe", "--topic", "moved").value["topics"][0]
    assert described["configs"] == {}, "verify took the throttles away"

    other = moves_file(tmp_path, ("moved", 0, [1, 2]))
    answer = ask(cluster, "reassign", "verify", "--reassignment-json-file", other)
    assert answer.code == 1 and answer.value["partitions"][0]["state"] == "different"
    unknown = moves_file(tmp_path, ("moved", 0, [9]))
    answer = ask(cluster, "reassign", "execute", "--reassignment-json-file", unknown)
    assert answer.code == 1 and "unknown broker ids: 9" in answer.err

    answer = ask(
        cluster, "leaders", "elect", "--election-type", "preferred", "--all-topic-partitions"
    )
    assert answer.code == 0, answer.err
    assert state_of(cluster, "moved")["leader"] == 3

    checked = verify(cluster)
    assert checked.code == 0, checked.out
    assert checked.value["compared"]["logs"] >= 4
    assert checked.value["compared"]["log_bytes"] > 100_000
    held = ask(
        cluster, "logdirs", "describe", "--broker-list", "1,3", "--topic-list", "moved"
    ).value
    partitions = {
        broker["broker"]: [p["partition"] for d in broker["logDirs"] for p in d["partitions"]]
        for broker in held["brokers"]
    }
    assert partitions == {1: [], 3: ["moved-0", "moved-1"]}
    nobody = admin(
        "logdirs", "describe", "--bootstrap-server", cluster.bootstrap, "--broker-list", "9"
    )
    assert (nobody.code, nobody.out) == (1, "") and "9" in nobody.err

    story = admin("explain", "moved-0", "--dir", str(cluster.folder)).out
    assert "adding [3], removing [1]" in story and "broker 1: deletes its replica" in story


def test_a_move_is_cancelled(make_cluster: ClusterMaker, tmp_path: Path) -> None:
    cluster = make_cluster(3)
    make_topic(cluster, "slow", "1:2")
    clients.produce(cluster.bootstrap, "slow", clients.payloads(5000, 1000), partition=0)
    path = moves_file(tmp_path, ("slow", 0, [3, 2]))
    words = ("--reassignment-json-file", path)
    assert ask(cluster, "reassign", "execute", *words, "--throttle", "1000").code == 0
    assert ask(cluster, "reassign", "execute", *words).code == 1, "one is under way"
    assert ask(cluster, "reassign", "verify", *words).code == 3
    assert in_trouble(cluster, "--under-replicated-partitions") == [], "an added one is not missing"
    cancelled = ask(cluster, "reassign", "cancel", *words)
    assert cancelled.code == 0, cancelled.err
    assert [r["error"] for r in cancelled.value["results"]] == ["NONE"]
    assert ask(cluster, "reassign", "list").value == {"reassignments": []}
    assert sorted(state_of(cluster, "slow")["replicas"]) == [1, 2]
    assert ask(cluster, "reassign", "cancel", *words).value == {"results": []}
    assert verify(cluster).code == 0
    nowhere = verify(cluster, "--topic", "nowhere")
    assert nowhere.code == 1 and "topic nowhere does not exist" in nowhere.err


def test_what_an_unclean_election_costs_is_in_the_ledger(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3, replica_high_watermark_checkpoint_interval_ms="200")
    make_topic(cluster, "lossy", "1:2")
    clients.produce(cluster.bootstrap, "lossy", clients.payloads(100), partition=0)
    cluster[2].kill()
    eventually(lambda: state_of(cluster, "lossy")["isr"] == [1], 60, what="2 is out of sync")
    assert in_trouble(cluster, "--under-replicated") == ["lossy-0"]
    assert in_trouble(cluster, "--at-min-isr") == ["lossy-0"]
    assert in_trouble(cluster, "--under-min-isr") == [] == in_trouble(cluster, "--unavailable")
    clients.produce(cluster.bootstrap, "lossy", clients.payloads(50), partition=0)
    checkpoint = cluster[1].data / "replication-offset-checkpoint"
    eventually(lambda: "lossy 0 150" in checkpoint.read_text(), 30, what="checkpoint at 150")
    cluster[1].kill()
    cluster[2].start()
    eventually(lambda: in_trouble(cluster, "--unavailable") == ["lossy-0"], 60, what="offline")
    words = ("leaders", "elect", "--topic", "lossy", "--partition", "0", "--election-type")
    refused = ask(cluster, *words, "preferred")
    assert refused.code == 1 and refused.value["results"][0]["error"] != "NONE"
    forced = ask(cluster, *words, "unclean")
    assert forced.code == 0, forced.err
    cluster[1].start()
    eventually(lambda: sorted(state_of(cluster, "lossy")["isr"]) == [1, 2], 60, what="in sync")
    clients.produce(cluster.bootstrap, "lossy", clients.payloads(10), partition=0)
    assert len(clients.kcat_consume(cluster.bootstrap, "lossy", 110)) == 110

    losses = admin("losses", "--dir", str(cluster.folder), "--output", "json")
    (row,) = losses.value["losses"]
    assert (row["topic"], row["partition"], row["broker"]) == ("lossy", 0, 1)
    assert (row["first_offset"], row["end_offset"], row["certain"]) == (100, 150, True)
    assert row["bytes"] > 50 * 200
    story = admin("explain", "lossy-0", "--dir", str(cluster.folder)).out
    assert "UNCLEAN election" in story and "LOSES offsets 100 to 149" in story
    assert "broker 1: started after an unclean stop" in story
    checked = verify(cluster)
    assert checked.code == 0, checked.out


def test_differences_are_found(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(3, replica_high_watermark_checkpoint_interval_ms="200")
    make_topic(cluster, "same", "1:2:3")
    clients.produce(cluster.bootstrap, "same", clients.payloads(300), partition=0)
    assert verify(cluster).code == 0
    segment = cluster[2].data / "same-0" / f"{0:020d}.log"
    with segment.open("r+b") as file:
        file.seek(200)
        file.write(b"?")
    checked = verify(cluster)
    assert checked.code == 1
    (difference,) = checked.value["differences"]
    assert (difference["where"], difference["subject"]) == ("log on broker 2", "same-0")
    assert "does not match" in difference["found"]
    assert verify(cluster, "--no-logs").code == 0
    on_disk = verify(cluster, "--dir", str(cluster.folder))
    assert on_disk.code == 1 and "(broker 2)" in on_disk.value["differences"][0]["where"]
    for broker in cluster.brokers:
        # what is compared afterwards ends at the checkpointed high watermark
        path = broker.data / "replication-offset-checkpoint"
        eventually(partial(holds, path, "same 0 300"), 30, what="checkpoint at 300")
        broker.kill()
    on_disk = admin("verify", "--dir", str(cluster.folder), "--output", "json")
    assert on_disk.code == 1 and len(on_disk.value["differences"]) == 1
    unreachable = ask(cluster, "cluster", "describe", "--timeout-ms", "2000")
    assert unreachable.code == 1 and "no broker answers" in unreachable.err


def test_a_frozen_broker_is_a_difference(make_cluster: ClusterMaker) -> None:
    # Its session outlives the start of the command on a busy machine: without it there is no broker
    # that could differ.  Not the controller: verify cannot do without its answers.
    cluster = make_cluster(3, zookeeper_session_timeout_ms="40000")
    described = ask(cluster, "cluster", "describe").value
    frozen = next(id for id in (3, 2) if id != described["controller_id"])
    cluster[frozen].freeze()
    try:
        words = ("--timeout-ms", "5000", "--settle-ms", "0", "--no-logs")
        checked = verify(cluster, *words)
        assert checked.code == 1, checked
        assert any(f"broker {frozen}" in d["where"] for d in checked.value["differences"])
    finally:
        cluster[frozen].thaw()
    checked = verify(cluster, "--settle-ms", "60000")
    assert checked.code == 0, checked.out
    described = ask(cluster, "cluster", "describe").value
    assert [broker["id"] for broker in described["brokers"]] == [1, 2, 3]


def test_settings_are_shown_and_changed(make_cluster: ClusterMaker, tmp_path: Path) -> None:
    cluster = make_cluster(2)
    make_topic(cluster, "tuned", "1:2")
    topic = ("--entity-type", "topics", "--entity-name", "tuned")

    def values(*words: str) -> dict[str, tuple[str | None, str]]:
        answer = ask(cluster, "configs", *words)
        assert answer.code == 0, answer.err
        (entity,) = answer.value["entities"]
        return {c["name"]: (c["value"], c["source"]) for c in entity["configs"]}

    def change(*words: str) -> Answer:
        return ask(cluster, "configs", "--alter", *words)

    assert values("describe", *topic) == {}
    assert values("describe", *topic, "--all")["retention.ms"][1] == "default"
    done = change(*topic, "--add-config", "retention.ms=7000,cleanup.policy=[compact,delete]")
    assert done.code == 0, done.err
    assert values("--describe", "--topic", "tuned") == {
        "cleanup.policy": ("compact,delete", "topic"),
        "retention.ms": ("7000", "topic"),
    }
    assert change(*topic, "--delete-config", "cleanup.policy").code == 0
    assert set(values("describe", *topic)) == {"retention.ms"}
    refused = change(*topic, "--add-config", "retention.ms=soon")
    assert refused.code == 1 and "retention.ms" in refused.err
    missing = change(*topic, "--delete-config", "segment.ms")
    assert missing.code == 1 and "segment.ms is not set" in missing.err
    nobody = change("--topic", "nobody", "--add-config", "retention.ms=1")
    assert nobody.code == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in nobody.err

    path = tmp_path / "threads.properties"
    path.write_text("log.cleaner.threads=2\n")
    assert change("--broker-defaults", "--add-config-file", str(path)).code == 0
    assert change("--broker", "2", "--add-config", "log.cleaner.threads=3").code == 0
    assert values("describe", "--entity-type", "brokers", "--entity-default") == {
        "log.cleaner.threads": ("2", "all brokers")
    }
    assert values("describe", "--broker", "1")["log.cleaner.threads"] == ("2", "all brokers")
    assert values("describe", "--broker", "2")["log.cleaner.threads"] == ("3", "broker")
    table = admin(
        "configs", "describe", "--entity-type", "brokers", "--bootstrap-server", cluster.bootstrap
    )
    assert table.out.splitlines()[0].split() == [
        "OF",
        "SETTING",
        "VALUE",
        "FROM",
        "CAN",
        "BE",
        "CHANGED",
    ]
    assert "broker 2     log.cleaner.threads  3      broker       yes" in table.out
