"""Topics that come and go: many of them over a restart, none of them left in memory, brokers killed
in the middle."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration import clients
from tests.integration.brokers import BrokerCluster, ClusterMaker, eventually

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

LIMIT_S = 120.0
SLICE = 50


def outcome(futures: dict[str, Any]) -> dict[str, str]:
    """Names of topics that could not be created or deleted, with what the broker said."""
    failed = {}
    for name, future in futures.items():
        try:
            future.result(LIMIT_S)
        except KafkaException as error:
            failed[name] = str(error.args[0])
    return failed


def answered(
    ask: Callable[[Sequence[str]], dict[str, str]], names: Sequence[str]
) -> dict[str, list[str]]:
    """Topics by the code of the error they got, asked again while there is no controller: the client
    passes that on instead of looking for the new one."""
    found: dict[str, list[str]] = {}
    deadline = time.monotonic() + LIMIT_S
    while names:
        waiting = []
        for name, text in ask(names).items():
            code = text.partition("code=")[2].partition(",")[0]
            if code == "NOT_CONTROLLER" and time.monotonic() < deadline:
                waiting.append(name)
            else:
                found.setdefault(code, []).append(name)
        names = waiting
        time.sleep(0.2 if names else 0)
    return found


class Topics:
    def __init__(self, cluster: BrokerCluster, replicas: int) -> None:
        self.cluster = cluster
        self.replicas = replicas
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def create(self, names: Sequence[str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for start in range(0, len(names), SLICE):
            new = [NewTopic(name, 1, self.replicas) for name in names[start : start + SLICE]]
            failed |= outcome(
                self.admin.create_topics(new, operation_timeout=60, request_timeout=60)
            )
        return failed

    def delete(self, names: Sequence[str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for start in range(0, len(names), SLICE):
            some = list(names[start : start + SLICE])
            failed |= outcome(
                self.admin.delete_topics(some, operation_timeout=60, request_timeout=60)
            )
        return failed

    def whole(self) -> set[str]:
        """Topics whose partitions have a leader and every replica in sync."""
        found = self.admin.list_topics(timeout=LIMIT_S).topics
        return {
            name
            for name, topic in found.items()
            if topic.partitions
            and all(
                p.leader >= 0 and len(p.isrs) == self.replicas for p in topic.partitions.values()
            )
        }

    def directories(self) -> set[str]:
        return {
            path.name
            for broker in self.cluster.brokers
            for path in broker.data.iterdir()
            if path.is_dir()
        }


def test_five_hundred_topics_over_a_restart_in_order_and_a_kill(make_cluster: ClusterMaker) -> None:
    cluster = make_cluster(2)
    topics = Topics(cluster, 2)
    names = [f"t{n}" for n in range(500)]
    assert topics.create(names) == {}
    assert eventually(lambda: topics.whole() == set(names), LIMIT_S)
    values = clients.payloads(200)
    clients.produce(cluster.bootstrap, "t7", values)
    for broker in cluster.brokers:
        assert broker.terminate() == 0
    cluster.start()
    assert eventually(lambda: topics.whole() == set(names), LIMIT_S)
    for broker in cluster.brokers:
        broker.kill()
    cluster.start()
    assert eventually(lambda: topics.whole() == set(names), LIMIT_S)
    assert clients.consume(cluster.bootstrap, "t7", 200) == values
    assert not [broker.id for broker in cluster.brokers if "Traceback" in broker.log()]


def test_topics_that_are_gone_take_no_memory(make_cluster: ClusterMaker) -> None:
    """A thousand in rounds: the later rounds find the room that the earlier ones left."""
    cluster = make_cluster(1, **{"log.segment.delete.delay.ms": "100"})
    topics = Topics(cluster, 1)
    broker = cluster[1]
    after = []
    for turn in range(10):
        names = [f"r{turn}-{n}" for n in range(100)]
        assert topics.create(names) == {}
        assert topics.delete(names) == {}
        after.append(broker.rss_bytes())
    assert eventually(lambda: topics.directories() == set(), 60)
    assert after[-1] - after[4] < 8 << 20, [size >> 20 for size in after]


def test_brokers_killed_while_topics_come_and_go(make_cluster: ClusterMaker) -> None:
    """What was confirmed stays so, and in the end nothing is half there."""
    chance = random.Random(3)
    cluster = make_cluster(3)
    topics = Topics(cluster, 2)
    there: set[str] = set()
    for turn in range(6):
        victim = cluster[chance.randrange(3) + 1]
        new = [f"k{turn}-{n}" for n in range(20)]
        old = chance.sample(sorted(there), min(10, len(there)))
        creating = topics.admin.create_topics(
            [NewTopic(name, 2, 2) for name in new], operation_timeout=60, request_timeout=60
        )
        deleting: dict[str, Any] = {}
        if old:
            deleting = topics.admin.delete_topics(old, operation_timeout=60, request_timeout=60)
        time.sleep(chance.random() * 0.3)
        victim.kill()
        time.sleep(chance.random())
        victim.start()
        outcome(creating), outcome(deleting)  # cut off half way: what came of it is asked below
        assert set(answered(topics.create, new)) <= {"TOPIC_ALREADY_EXISTS"}
        assert set(answered(topics.delete, old)) <= {"UNKNOWN_TOPIC_OR_PART"}
        there = (there | set(new)) - set(old)
    assert eventually(lambda: topics.whole() == there, LIMIT_S)
    assert topics.delete(sorted(there)) == {}
    assert eventually(lambda: topics.whole() == set(), LIMIT_S)

    def nothing_left() -> bool:
        return not [name for name in topics.directories() if not name.endswith("-delete")]

    assert eventually(nothing_left, LIMIT_S)
