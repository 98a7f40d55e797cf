"""What some families need of the cluster: a broker that is gone, frozen, or about to leave.

Broker 3 is the one.  The topics that the cases share are made while all is well.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kafkalike.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
)
from kafkalike.messages.topics import DeleteTopicsRequest

from .case import Ask, Case, Topic
from .run import Broker, Runner, look_at, run
from .tree import ClusterTree

LOST: Final = 3
LIMIT_S: Final = 60.0


@contextlib.contextmanager
def prepared(broker: Broker, family: str, cases: Sequence[Case]) -> Iterator[None]:
    """While this holds, the cluster is as the family wants it."""
    enter, leave = STATES.get(family, (None, None))
    if enter is None or leave is None:
        yield
        return
    topics = {topic.name: topic for case in cases for topic in case.uses}
    for name in topics:
        broker.made.pop(name, None)
    run(broker, Case("the topics of the family", (), uses=list(topics.values())))
    enter(broker, list(topics.values()))
    try:
        yield
    finally:
        leave(broker, list(topics))


def forget_groups(broker: Broker) -> None:
    """Groups and what they committed are gone, as before the first case."""
    runner = Runner(broker, Case("forgetting groups", ()))
    leaving = LeaveGroupRequest.MemberIdentity
    try:
        listed = runner.ask(Ask(ListGroupsRequest(), 5)).groups
        names = [group.group_id for group in listed]
        for group in runner.ask(Ask(DescribeGroupsRequest(groups=names), 5)).groups:
            members = [leaving(member_id=member.member_id) for member in group.members]
            runner.ask(Ask(LeaveGroupRequest(group_id=group.group_id, members=members), 5))
        left = runner.ask(Ask(DeleteGroupsRequest(groups_names=names), 2)).results
        assert all(result.error_code == 0 for result in left), left
        ClusterTree(broker.cluster.zookeeper).forget_old_offsets()
    finally:
        runner.close()


def _kill(broker: Broker, topics: list[Topic]) -> None:
    _forget(broker)
    broker.absent.add(LOST)
    wanted = {n for n in broker.cluster.ports if n != LOST}

    def known(answer: Any) -> bool:
        partitions = [part for topic in answer.topics for part in topic.partitions]
        return {node.node_id for node in answer.brokers} == wanted and all(
            part.leader_id != LOST and (LOST not in part.isr_nodes or part.isr_nodes == [LOST])
            for part in partitions
        )

    _until(broker, [topic.name for topic in topics], known)


def _forget(broker: Broker) -> None:
    broker.cluster.kill(LOST)
    ClusterTree(broker.cluster.zookeeper).forget_broker(LOST)


def _come_back(broker: Broker, topics: list[str]) -> None:
    broker.cluster.start(LOST)
    broker.absent.discard(LOST)
    _all_well(broker, topics)


def _freeze(broker: Broker, topics: list[Topic]) -> None:
    broker.cluster.signal(LOST, signal.SIGSTOP)
    broker.absent.add(LOST)


def _thaw(broker: Broker, topics: list[str]) -> None:
    broker.cluster.signal(LOST, signal.SIGCONT)
    broker.absent.discard(LOST)
    _all_well(broker, topics)


def _nothing(broker: Broker, topics: list[Topic]) -> None: ...


def _begin_anew(broker: Broker, topics: list[str]) -> None:
    """A broker that asked to leave takes part again when it registers anew."""
    _forget(broker)
    _come_back(broker, topics)


def _all_well(broker: Broker, topics: list[str]) -> None:
    wanted = set(broker.cluster.ports)
    _until(broker, [], lambda answer: {node.node_id for node in answer.brokers} == wanted)
    runner = Runner(broker, Case("the end of the family", ()))
    delete = DeleteTopicsRequest(topic_names=topics, timeout_ms=30_000)
    runner.ask(Ask(delete, 5))
    for topic in topics:
        broker.made.pop(topic, None)


def _until(broker: Broker, topics: list[str], holds: Callable[[Any], bool]) -> None:
    runner = Runner(broker, Case("waiting", ()))
    for broker_id in broker.cluster.ports:
        if broker_id in broker.absent:
            continue
        deadline = time.monotonic() + LIMIT_S
        while not holds(answer := runner.ask(Ask(look_at(*topics), 12, to=broker_id))):
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
    runner.close()


STATES: Final = {
    "broker_lost": (_kill, _come_back),
    "broker_frozen": (_freeze, _thaw),
    "broker_leaving": (_nothing, _begin_anew),
    "group_homes": (_freeze, _thaw),
}
