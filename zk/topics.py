"""Topics: assignments, topic ids, partition states, creation and deletion (reference: zookeeper 2, 4).

Functions that take `fence` (the data version of `/controller_epoch` from the election) are for the
controller and raise ControllerMoved when it has been replaced; the others are for any broker.
A payload that cannot be read does not stop the rest: it stands in the result as CorruptZnode.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kafkalike.errors import TopicAlreadyExists
from kafkalike.types import LeaderAndIsr, TopicPartition

from . import paths
from .client import (
    Create,
    Delete,
    GetChildren,
    GetData,
    NodeExists,
    NoNode,
    Op,
    SetData,
    Stat,
    Watch,
    ZkClient,
    ZkError,
    ensure_path,
    retrying,
)
from .configs import set_config
from .election import guarded, guarded_batch, write_once
from .znodes import CorruptZnode, PartitionState, TopicInfo


async def list_topics(zk: ZkClient, watch: Watch | None = None) -> list[str]:
    """Names of all topics, sorted."""
    names, _ = await retrying(zk, lambda: zk.get_children(paths.TOPICS, watch))
    return names


async def any_topic(zk: ZkClient) -> bool:
    """Whether there is a topic at all."""
    stat = await retrying(zk, lambda: zk.exists(paths.TOPICS))
    return stat is not None and stat.num_children > 0


async def topic_exists(zk: ZkClient, topic: str) -> bool:
    return await retrying(zk, lambda: zk.exists(paths.topic(topic))) is not None


async def read_topics(
    zk: ZkClient, topics: Sequence[str], watch: Watch | None = None
) -> dict[str, TopicInfo | CorruptZnode]:
    """Assignments of those of `topics` that exist; `watch` is left on each of them."""
    ops = [GetData(paths.topic(topic)) for topic in topics]
    answers = await retrying(zk, lambda: zk.multi_read(ops, watch))
    found: dict[str, TopicInfo | CorruptZnode] = {}
    for topic, answer in zip(topics, answers, strict=True):
        if isinstance(answer, NoNode):
            continue
        if isinstance(answer, ZkError):
            raise answer
        assert isinstance(answer, tuple)
        try:
            found[topic] = TopicInfo.decode(answer[0], paths.topic(topic))
        except CorruptZnode as error:
            found[topic] = error
    return found


async def read_topic(zk: ZkClient, topic: str, watch: Watch | None = None) -> TopicInfo | None:
    """One topic's assignment, None when it does not exist.  Raises CorruptZnode."""
    found = (await read_topics(zk, [topic], watch)).get(topic)
    if isinstance(found, CorruptZnode):
        raise found
    return found


async def read_partition_states(
    zk: ZkClient, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState | CorruptZnode]:
    """Leadership of those of `partitions` that have a state node, with their partition epochs."""
    ops = [GetData(paths.partition_state(tp.topic, tp.partition)) for tp in partitions]
    answers = await retrying(zk, lambda: zk.multi_read(ops))
    found: dict[TopicPartition, PartitionState | CorruptZnode] = {}
    for tp, op, answer in zip(partitions, ops, answers, strict=True):
        if isinstance(answer, NoNode):
            continue
        if isinstance(answer, ZkError):
            raise answer
        assert isinstance(answer, tuple)
        data, stat = answer
        try:
            found[tp] = PartitionState.decode(data, op.path, stat.version, stat.mzxid)
        except CorruptZnode as error:
            found[tp] = error
    return found


async def create_partition_states(
    zk: ZkClient, fence: int, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, LeaderAndIsr | ZkError]:
    """First states of new partitions, with the parents they need: leadership with epoch 0, or why
    not (NodeExists: the partition has a state already)."""
    ops: list[Op] = []
    state_at: dict[TopicPartition, int] = {}
    for topic in dict.fromkeys(tp.topic for tp in states):
        ops.append(Create(paths.partitions(topic), None))
    for tp, state in states.items():
        ops.append(Create(paths.partition(*tp), None))
        state_at[tp] = len(ops)
        ops.append(Create(paths.partition_state(*tp), state.encode()))
    results = await guarded_batch(zk, fence, ops)
    outcomes: dict[TopicPartition, LeaderAndIsr | ZkError] = {}
    for tp, state in states.items():
        result = results[state_at[tp]]
        outcomes[tp] = (
            result
            if isinstance(result, ZkError)
            else replace(state.leader_and_isr, partition_epoch=0)
        )
    return outcomes


async def set_partition_states(
    zk: ZkClient, fence: int, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, LeaderAndIsr | ZkError]:
    """Replace states, each on condition that the partition epoch is the one it carries.

    The leadership with its new partition epoch, or why not: BadVersion (somebody else changed it,
    read it again), NoNode.
    """
    ops: list[Op] = [
        SetData(
            paths.partition_state(*tp), state.encode(), version=state.leader_and_isr.partition_epoch
        )
        for tp, state in states.items()
    ]
    results = await guarded_batch(zk, fence, ops)
    outcomes: dict[TopicPartition, LeaderAndIsr | ZkError] = {}
    for (tp, state), result in zip(states.items(), results, strict=True):
        if isinstance(result, ZkError):
            outcomes[tp] = result
        else:
            assert isinstance(result, Stat)
            outcomes[tp] = replace(state.leader_and_isr, partition_epoch=result.version)
    return outcomes


async def set_topics(
    zk: ZkClient, fence: int, infos: Mapping[str, TopicInfo]
) -> dict[str, ZkError | None]:
    """Rewrite topics (reassignment, topic ids), whatever they hold now; None means written."""
    ops: list[Op] = [SetData(paths.topic(topic), info.encode()) for topic, info in infos.items()]
    results = await guarded_batch(zk, fence, ops)
    return {
        topic: result if isinstance(result, ZkError) else None
        for topic, result in zip(infos, results, strict=True)
    }


async def set_topic(zk: ZkClient, fence: int, topic: str, info: TopicInfo) -> None:
    """One topic of `set_topics`; raises its error."""
    await guarded(zk, fence, SetData(paths.topic(topic), info.encode()))


async def create_topic(
    zk: ZkClient, topic: str, info: TopicInfo, config: Mapping[str, str]
) -> None:
    """Create a topic: its config first, then the node that the controller sees.

    For any broker; no change notification is sent.  `info` carries a fresh topic id, so a lost
    answer is told apart from another broker's creation.  Raises TopicAlreadyExists and
    ControllerMoved (no controller to rely on).
    """
    if await topic_exists(zk, topic):
        raise TopicAlreadyExists(f"Topic '{topic}' already exists.")
    await set_config(zk, f"topics/{topic}", config)
    create: list[Op] = [Create(paths.topic(topic), info.encode())]
    while True:
        try:
            await write_once(zk, create)
        except NodeExists as error:
            raise TopicAlreadyExists(f"Topic '{topic}' already exists.") from error
        except NoNode:
            await ensure_path(zk, paths.TOPICS)
            continue
        return


async def add_partitions(zk: ZkClient, topic: str, info: TopicInfo) -> None:
    """Rewrite a topic with more partitions (CreatePartitions); for any broker, unguarded as in
    Kafka.  `info` must carry the topic id and running reassignments over.  Raises NoNode."""
    await retrying(zk, lambda: zk.set(paths.topic(topic), info.encode()))


async def delete_topic_tree(zk: ZkClient, fence: int, topic: str) -> None:
    """Delete `/brokers/topics/<t>` and all below it, children first."""
    await delete_tree(zk, fence, paths.topic(topic))


async def delete_tree(zk: ZkClient, fence: int, root: str) -> None:
    """Delete a node and all below it, children first; what is already gone is fine."""
    await delete_trees(zk, fence, [root])


async def delete_trees(zk: ZkClient, fence: int, roots: Iterable[str]) -> None:
    """The same for many nodes together, in as few round trips."""
    levels: list[list[str]] = [list(roots)]
    while levels[-1]:
        ops = [GetChildren(path) for path in levels[-1]]
        answers = await retrying(zk, partial(zk.multi_read, ops))
        below: list[str] = []
        for path, answer in zip(levels[-1], answers, strict=True):
            if isinstance(answer, list):
                below.extend(f"{path}/{name}" for name in answer)
            elif not isinstance(answer, NoNode):
                assert isinstance(answer, ZkError)
                raise answer
        levels.append(below)
    deletes = [Delete(path) for level in reversed(levels) for path in level]
    await delete_all(zk, fence, deletes)


async def delete_all(zk: ZkClient, fence: int, deletes: Iterable[Delete]) -> None:
    """Fenced deletions; NoNode is fine, the first other error is raised after all were tried."""
    ops: list[Op] = list(deletes)
    for result in await guarded_batch(zk, fence, ops):
        if isinstance(result, ZkError) and not isinstance(result, NoNode):
            raise result
