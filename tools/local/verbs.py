"""The verbs of a local cluster for tests: what the control port and `kafkalike.testing` can ask for.

Every public coroutine of `Verbs` is a verb; its keyword arguments are the JSON members of a request and
its result is JSON.  `CommandError` says why a verb cannot be done, `WaitTimeout` what was still missing
when the time was up.
"""

import contextlib
import pathlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from kafkalike.errors import (
    NotLeaderOrFollower,
    OffsetNotAvailable,
    error_class,
    error_name,
)
from kafkalike.messages.catalog import APIS, find_api
from kafkalike.messages.cluster import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kafkalike.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafkalike.messages.list_offsets import ListOffsetsRequest
from kafkalike.messages.metadata import MetadataResponse
from kafkalike.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafkalike.net.client import PeerError
from kafkalike.runtime.tasks import TimedOut, as_deferred, sleep, timeout
from kafkalike.types import ZERO_UUID

from .. import cli
from ..local_cluster import ZOOKEEPER, Ends, LocalCluster
from .broker import BrokerHostError, BrokerState, LocalBroker
from .links import OPEN, Direction
from .log_tail import corrupt_log_tail
from .questions import Questions
from .zk_session import Outsider

DEFAULT_TIMEOUT_S: Final = 30.0
NEW_LEADER_S: Final = 10.0
"""For a leader to know the high watermark of its partition."""
BEFORE_SNAPSHOT_S: Final = 10.0
POLL_FIRST_S: Final = 0.002
POLL_MOST_S: Final = 0.05
PREFERRED: Final = 0
UNCLEAN: Final = 1
ELECTION_NOT_NEEDED: Final = 84
OFFSETS_TOPIC: Final = "__consumer_offsets"
LATEST: Final = -1
DISCONNECT_CODE: Final = -195
"""In `push_errors`: no answer and no connection any more; librdkafka's number for that."""

ASKING: Final = frozenset(
    {
        "controller",
        "end_offset",
        "group",
        "info",
        "isr",
        "leader",
        "pending_errors",
        "replicas",
        "topics",
        "wait_brokers",
        "wait_controller",
        "wait_group",
        "wait_isr",
        "wait_isr_full",
        "wait_leader",
        "wait_offset",
    }
)
"""Verbs that leave everything as it is.  All others act."""

HINTS: Final = {
    OffsetNotAvailable.code: "its leader is new and the ISR has yet to confirm what it has",
    NotLeaderOrFollower.code: "the broker that was named as its leader does not lead it",
}
"""What an error means here, where a broker sends no text with it."""

ASKED_AGAIN: Final = (OffsetNotAvailable.code, NotLeaderOrFollower.code)
"""Errors about the end of a partition that pass by themselves while a leader settles."""

MAX_CUTS_TOLD: Final = 8

End = int | str
"""A broker id or "zookeeper"."""


class WaitTimeout(Exception):
    """What was waited for did not come true in time; the text says what was missing."""


class Verbs:
    """One cluster's verbs; used on the supervisor's loop."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._clock = cluster.runtime.clock
        self._questions = Questions(cluster)

    def close(self) -> None:
        self._questions.close()

    # -- facts ---------------------------------------------------------------------------------

    async def info(self) -> dict[str, Any]:
        """Addresses, directory, brokers with pid and state."""
        cluster = self._cluster
        return {
            "ready": cluster.is_ready,
            "bootstrap_servers": cluster.bootstrap,
            "zookeeper": cluster.zookeeper,
            "directory": str(cluster.directory),
            "brokers": {
                str(b.id): {
                    "address": b.address,
                    "state": b.state.value,
                    "pid": b.pid,
                    "exit_code": b.exit_code,
                    "directory": str(b.directory),
                }
                for b in cluster.brokers.values()
            },
        }

    async def leader(self, topic: str, partition: int = 0) -> int:
        """Broker id of the present leader."""
        return int((await self._partition(topic, partition)).leader_id)

    async def isr(self, topic: str, partition: int = 0) -> list[int]:
        """In-sync replicas, the leader's first order."""
        return list((await self._partition(topic, partition)).isr_nodes)

    async def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """All replicas, the preferred leader first."""
        return list((await self._partition(topic, partition)).replica_nodes)

    async def controller(self) -> int:
        """Broker id of the controller, -1 while there is none."""
        return (await self._questions.metadata([])).controller_id

    async def end_offset(
        self,
        topic: str,
        partition: int = 0,
        isolation: str = "uncommitted",
        timeout_s: float = NEW_LEADER_S,
    ) -> int:
        """The high watermark, or with `isolation` "committed" the last stable offset.

        A leader that is new may not know it yet; as consumers do, this asks again for `timeout_s`.
        """
        found = -1

        async def missing() -> str | None:
            nonlocal found
            found, code = await self._end_offset(topic, partition, isolation)
            if code not in ASKED_AGAIN:
                _check(code, f"{topic}-{partition}")
                return None
            return f"{topic}-{partition}: {error_name(code)}: {HINTS[code]}"

        await self._until(missing, timeout_s, patient=False)
        return found

    async def _end_offset(self, topic: str, partition: int, isolation: str) -> tuple[int, int]:
        """The offset, and the error code in place of it."""
        if isolation not in ("uncommitted", "committed"):
            raise cli.CommandError(f"isolation: {isolation!r}, expected uncommitted or committed")
        leader = await self.leader(topic, partition)
        if leader < 0:
            raise cli.CommandError(f"{topic}-{partition} has no leader")
        request = _latest_offsets({topic: [partition]}, committed=isolation == "committed")
        response = await self._questions.ask(leader, request)
        found = response.topics[0].partitions[0]
        return int(found.offset), int(found.error_code)

    # -- topics --------------------------------------------------------------------------------

    async def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        assignment: list[list[int]] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Create a topic and wait until every broker that can know it knows it with a full ISR.

        `assignment` lists the replicas of each partition, the preferred leader first.
        """
        kind = CreateTopicsRequest.CreatableTopic
        wanted = kind(
            name=topic,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1 if assignment else replication_factor,
            assignments=[
                kind.CreatableReplicaAssignment(partition_index=i, broker_ids=list(replicas))
                for i, replicas in enumerate(assignment or ())
            ],
            configs=[
                kind.CreatableTopicConfig(name=name, value=str(value))
                for name, value in (config or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(timeout_s * 1000))
        response = await self._questions.ask_controller(
            request, lambda answer: [one.error_code for one in answer.topics], timeout_s
        )
        result = response.topics[0]
        _check(result.error_code, f"topic {topic}", result.error_message)
        if not self._cluster.cut_off():
            await self.wait_isr_full(topic, timeout_s=timeout_s)

    async def delete_topic(self, topic: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Delete a topic and wait until no broker knows it."""
        await self._delete_topics([topic], timeout_s)

    async def topics(self, internal: bool = False) -> list[str]:
        """Names, sorted."""
        response = await self._questions.metadata(None)
        return sorted(t.name for t in response.topics if t.name and (internal or not t.is_internal))

    async def _delete_topics(self, topics: list[str], timeout_s: float) -> None:
        state = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(
            topics=[state(name=topic, topic_id=ZERO_UUID) for topic in topics],
            timeout_ms=int(timeout_s * 1000),
        )
        response = await self._questions.ask_controller(
            request, lambda answer: [one.error_code for one in answer.responses], timeout_s
        )
        for one in response.responses:
            _check(one.error_code, f"topic {one.name}", one.error_message)

        async def missing() -> str | None:
            for broker in self._witnesses():
                seen = await self._questions.metadata(None, broker.id)
                left = [t.name for t in seen.topics if t.name in topics]
                if left:
                    return f"{broker.name} still knows {', '.join(left)}"
            return None

        await self._until(missing, timeout_s)
        # Brokers forget a topic before the controller is done with it and its name is free.
        left = await self._outsider().wait_deleted(topics, timeout_s)
        if left:
            raise WaitTimeout(f"{', '.join(left)} wait for their deletion")

    # -- waiting -------------------------------------------------------------------------------

    async def wait_isr_full(
        self, topic: str, partition: int = -1, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Until every broker says that all replicas of the partition (-1: of all) are in sync."""

        def problem(found: Any) -> str | None:
            if found.leader_id < 0:
                return "has no leader"
            if set(found.isr_nodes) != set(found.replica_nodes):
                return f"has ISR {found.isr_nodes} of replicas {found.replica_nodes}"
            return None

        await self._until_partitions(topic, partition, problem, timeout_s)

    async def wait_isr(
        self,
        topic: str,
        isr: list[int],
        partition: int = 0,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Until every broker says that the ISR is exactly this."""

        def problem(found: Any) -> str | None:
            if set(found.isr_nodes) != set(isr):
                return f"has ISR {found.isr_nodes}, not {isr}"
            return None

        await self._until_partitions(topic, partition, problem, timeout_s)

    async def wait_leader(
        self,
        topic: str,
        partition: int = 0,
        leader: int | None = None,
        other_than: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> int:
        """Until every broker names this leader (or any, or another one); returns it."""
        named: list[int] = []

        def problem(found: Any) -> str | None:
            if found.leader_id < 0:
                return "has no leader"
            if leader is not None and found.leader_id != leader:
                return f"is led by {found.leader_id}, not {leader}"
            if found.leader_id == other_than:
                return f"is still led by {other_than}"
            named.append(found.leader_id)
            return None

        await self._until_partitions(topic, partition, problem, timeout_s)
        return named[-1]

    async def wait_offset(
        self,
        topic: str,
        offset: int,
        partition: int = 0,
        isolation: str = "uncommitted",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> int:
        """Until consumers can read up to `offset` (the high watermark reaches it); returns it."""
        reached = 0

        async def missing() -> str | None:
            nonlocal reached
            reached, code = await self._end_offset(topic, partition, isolation)
            _check(code, f"{topic}-{partition}")
            return None if reached >= offset else f"{topic}-{partition} is at {reached} of {offset}"

        await self._until(missing, timeout_s)
        return reached

    async def wait_controller(
        self,
        broker: int | None = None,
        other_than: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> int:
        """Until every broker names this controller (or any, or another one); returns it."""
        named: list[int] = []

        async def missing() -> str | None:
            for witness in self._witnesses():
                found = (await self._questions.metadata([], witness.id)).controller_id
                if found < 0 or found == other_than or broker not in (None, found):
                    return f"{witness.name} names controller {found}"
                if found not in self._cluster.brokers or not self._cluster.brokers[found].is_up:
                    return f"{witness.name} names controller {found}, which is gone"
                named.append(found)
            return None if named else "no broker is running"

        await self._until(missing, timeout_s)
        return named[-1]

    async def wait_brokers(
        self, brokers: list[int] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Until every broker sees exactly these (default: those that run) in the cluster."""

        async def missing() -> str | None:
            wanted = brokers
            if wanted is None:
                wanted = [b.id for b in self._cluster.running()]
            for witness in self._witnesses():
                response = await self._questions.metadata([], witness.id)
                seen = sorted(b.node_id for b in response.brokers)
                if seen != sorted(wanted):
                    return f"{witness.name} sees brokers {seen}, not {sorted(wanted)}"
            return None

        await self._until(missing, timeout_s)

    async def wait_group(
        self,
        group: str,
        state: str = "Stable",
        members: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Until a consumer group is in this state, with so many members; returns how it is then."""
        found: dict[str, Any] = {}

        async def missing() -> str | None:
            nonlocal found
            found = await self.group(group)
            if found["state"] != state:
                return f"group {group} is {found['state']}, not {state}"
            if members is not None and len(found["members"]) != members:
                return f"group {group} has {len(found['members'])} members, not {members}"
            return None

        await self._until(missing, timeout_s)
        return found

    async def prepare_groups(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Have the topic of committed offsets made, which needs as many brokers as it has replicas.

        As in Kafka it comes with the first group otherwise, and not while a broker is missing.
        """

        async def missing() -> str | None:
            await self._questions.group_coordinator("kafkalike")
            return None

        await self._until(missing, timeout_s)
        await self.wait_isr_full(OFFSETS_TOPIC, timeout_s=timeout_s)

    async def group(self, group: str) -> dict[str, Any]:
        """State, protocol and members of a consumer group."""
        coordinator = await self._questions.group_coordinator(group)
        response = await self._questions.ask(coordinator, DescribeGroupsRequest(groups=[group]))
        found = response.groups[0]
        _check(found.error_code, f"group {group}")
        return {
            "state": found.group_state,
            "protocol": found.protocol_data,
            "coordinator": coordinator,
            "members": [
                {"member_id": m.member_id, "client_id": m.client_id, "host": m.client_host}
                for m in found.members
            ],
        }

    # -- brokers -------------------------------------------------------------------------------

    async def stop(self, broker: int) -> None:
        """SIGTERM: it hands its partitions over and stops in order."""
        await self._cluster.stop_broker(self._resumed(broker))

    async def kill(self, broker: int, at_once: bool = False) -> None:
        """SIGKILL.  The others notice when its ZooKeeper session has timed out.

        With `at_once` the session is ended too, so that they need not wait for that.
        """
        known = self._cluster.broker(broker)
        in_time = at_once and known.state is BrokerState.RUNNING
        session = None
        if in_time and self._cluster.host.needs_relays:
            session = await self._tell(broker, {"do": "session"})
        await self._cluster.kill_broker(broker)
        if session is not None:
            await self._outsider().end_session(
                session["session_id"], bytes.fromhex(session["password"])
            )
        elif in_time:
            self._cluster.host.end_session_of_dead(known)

    async def start(self, broker: int) -> None:
        """Start a broker that was stopped or killed, on its data and port; wait until it serves."""
        await self._cluster.start_broker(broker)

    async def pause(self, broker: int) -> None:
        """SIGSTOP: connections stay open and nothing moves."""
        self._cluster.pause_broker(broker)

    async def resume(self, broker: int) -> None:
        """SIGCONT."""
        self._cluster.resume_broker(broker)

    def _resumed(self, broker_id: int) -> int:
        if self._cluster.broker(broker_id).state is BrokerState.PAUSED:
            self._cluster.resume_broker(broker_id)
        return broker_id

    # -- links ---------------------------------------------------------------------------------

    async def cut(self, source: End, target: End, both: bool = False) -> None:
        """Nothing from `source` arrives at `target` until healed (with `both`, nor back)."""
        await self._set_links(source, target, both, Direction(cut=True))

    async def delay(self, source: End, target: End, ms: float, both: bool = False) -> None:
        """What `source` sends to `target` arrives that much later."""
        if ms < 0:
            raise cli.CommandError(f"ms: expected 0 or more, found {ms}")
        await self._set_links(source, target, both, Direction(delay_s=ms / 1000))

    async def isolate(self, broker: int, peer: End | None = None) -> None:
        """Cut both ways between a broker and a peer, or "zookeeper", or (None) all of them.

        Clients still reach the broker.
        """
        ends: list[End] = [b for b in self._cluster.brokers if b != broker]
        ends = [*ends, ZOOKEEPER] if peer is None else [peer]
        links: dict[Ends, Direction] = {
            pair: Direction(cut=True) for end in ends for pair in ((broker, end), (end, broker))
        }
        await self._change_links(links)

    async def heal(self, broker: int | None = None) -> None:
        """End all cuts and delays, or those of one broker."""
        await self._change_links(
            {
                ends: OPEN
                for ends in self._cluster.touched_links()
                if broker is None or broker in ends
            }
        )

    async def _set_links(self, source: End, target: End, both: bool, direction: Direction) -> None:
        links: dict[Ends, Direction] = {(source, target): direction}
        if both:
            links[target, source] = direction
        await self._change_links(links)

    async def _change_links(self, links: dict[Ends, Direction]) -> None:
        for source, target in links:
            for end in (source, target):
                if end != ZOOKEEPER:
                    self._cluster.broker(_broker_id(end))
            if source == target:
                raise cli.CommandError(f"a link goes between two, not from {source} to itself")
        await self._cluster.set_links(links)

    async def expire_session(self, broker: int) -> None:
        """End the broker's ZooKeeper session, as ZooKeeper does after its timeout.

        Returns when the broker has a new one, unless it is cut off from ZooKeeper.
        """
        before = await self._tell(broker, {"do": "session"})
        if not self._cluster.host.expire_session(self._cluster.broker(broker)):
            password = bytes.fromhex(before["password"])
            await self._outsider().end_session(before["session_id"], password)
        ends = ((broker, ZOOKEEPER), (ZOOKEEPER, broker))
        if any(self._cluster.direction(*one).cut for one in ends):
            return

        async def missing() -> str | None:
            now = await self._tell(broker, {"do": "session"})
            if now["session_id"] in (0, before["session_id"]):
                return f"broker-{broker} has no new session"
            return None

        await self._until(missing, DEFAULT_TIMEOUT_S)

    def _outsider(self) -> Outsider:
        return Outsider(self._cluster)

    # -- disks ---------------------------------------------------------------------------------

    async def fill_disk(self, broker: int) -> None:
        """Every further write of the broker fails for lack of space.

        As in Kafka, a log directory that cannot be written is given up, and a broker without any left
        stops.
        """
        await self._tell(broker, {"do": "disk", "full": True})

    async def free_disk(self, broker: int) -> None:
        """There is space again.  A broker that has given its directory up is to be started anew.

        One that stopped for it has space when it is started: there is nothing to do here.
        """
        if not self._cluster.broker(broker).is_up:
            return
        await self._tell(broker, {"do": "disk", "full": False})

    async def corrupt_tail(
        self,
        broker: int,
        topic: str,
        partition: int = 0,
        bytes: int = 16,
        how: str = "truncate",
    ) -> dict[str, Any]:
        """Damage the end of a stopped broker's log, as a power cut does: cut bytes off, or flip them.

        The mark of a clean shutdown goes too.  Returns the file and its size before and after.
        """
        known = self._cluster.broker(broker)
        if known.is_up:
            raise cli.CommandError(f"{known.name} is {known.state.value}, expected stopped")
        if how not in ("truncate", "flip"):
            raise cli.CommandError(f"how: {how!r}, expected truncate or flip")
        return corrupt_log_tail(known.directory / "data", topic, partition, bytes, how)

    # -- leadership ----------------------------------------------------------------------------

    async def elect(
        self,
        topic: str,
        partition: int = 0,
        unclean: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> int:
        """Elect the preferred leader, or with `unclean` any live replica where there is no leader.

        Returns the leader.
        """
        kind = ElectLeadersRequest.TopicPartitions
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=[kind(topic=topic, partitions=[partition])],
            timeout_ms=int(timeout_s * 1000),
        )
        response = await self._questions.ask_controller(
            request, lambda answer: [answer.error_code], timeout_s
        )
        _check(response.error_code, "election")
        result = response.replica_election_results[0].partition_result[0]
        if result.error_code != ELECTION_NOT_NEEDED:
            _check(result.error_code, f"{topic}-{partition}", result.error_message)
        return await self.wait_leader(topic, partition, timeout_s=timeout_s)

    async def move_leader(
        self,
        topic: str,
        leader: int,
        partition: int = 0,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Make an in-sync replica the leader: it becomes the preferred one, then is elected."""
        replicas = await self.replicas(topic, partition)
        if leader not in replicas:
            raise cli.CommandError(f"{topic}-{partition} has no replica on {leader}: {replicas}")
        if replicas[0] != leader:
            await self._reorder(topic, partition, [leader, *(r for r in replicas if r != leader)])
        await self.elect(topic, partition, timeout_s=timeout_s)
        await self.wait_leader(topic, partition, leader, timeout_s=timeout_s)

    async def _reorder(self, topic: str, partition: int, replicas: list[int]) -> None:
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        request = AlterPartitionReassignmentsRequest(
            topics=[
                kind(
                    name=topic,
                    partitions=[
                        kind.ReassignablePartition(partition_index=partition, replicas=replicas)
                    ],
                )
            ]
        )
        response = await self._questions.ask_controller(
            request, lambda answer: [answer.error_code], DEFAULT_TIMEOUT_S
        )
        _check(response.error_code, "reassignment", response.error_message)
        result = response.responses[0].partitions[0]
        _check(result.error_code, f"{topic}-{partition}", result.error_message)

        async def missing() -> str | None:
            found = await self.replicas(topic, partition)
            return None if found == replicas else f"{topic}-{partition} has replicas {found}"

        await self._until(missing, DEFAULT_TIMEOUT_S)

    async def move_controller(
        self, broker: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> int:
        """Make another broker, or this one, the controller; returns it.

        The controller's znode is deleted, and while brokers run for it only the chosen one hears of it.
        """
        if broker is not None:
            self._require_running(broker)
        before = await self.wait_controller(timeout_s=timeout_s)
        if broker == before:
            return before
        if broker is None:
            others = [b.id for b in self._witnesses() if b.id != before]
            if not others:
                raise cli.CommandError(f"there is no broker beside {before}")
            broker = others[0]
        held: dict[Ends, Direction] = {
            (ZOOKEEPER, b.id): Direction(cut=True)
            for b in self._cluster.running()
            if b.id != broker and self._cluster.direction(ZOOKEEPER, b.id) == OPEN
        }
        await self._cluster.set_links(held)
        try:
            await self._outsider().move_controller(broker, timeout_s)
        finally:
            await self._cluster.set_links(dict.fromkeys(held, OPEN))
        return await self.wait_controller(broker, timeout_s=timeout_s)

    # -- answers -------------------------------------------------------------------------------

    async def push_errors(
        self,
        api: str,
        codes: list[int],
        broker: int | None = None,
        applied: bool = False,
        topic: str | None = None,
    ) -> None:
        """The next requests of this API get these error codes, one each, on one broker or each one.

        Code -195 closes the connection instead of answering.  With `applied` the request is carried out
        all the same: its acknowledgement is what gets lost.  `topic` narrows it to requests about one.
        """
        for code in codes:
            if code != DISCONNECT_CODE and error_class(code).code != code:
                raise cli.CommandError(f"codes: {code} is no error code of Kafka's")
        command = {
            "do": "push_errors",
            "api_key": _api_key(api),
            "codes": [None if code == DISCONNECT_CODE else code for code in codes],
            "applied": applied,
            "topic": topic,
        }
        await self._tell_each(broker, command)

    async def latency(self, api: str, ms: float, broker: int | None = None) -> None:
        """Hold every answer of this API back by `ms` (0 ends it), on one broker or each one."""
        if ms < 0:
            raise cli.CommandError(f"ms: expected 0 or more, found {ms}")
        command = {"do": "latency", "api_key": _api_key(api), "delay_s": ms / 1000}
        await self._tell_each(broker, command)

    async def clear_errors(self) -> None:
        """Forget pushed errors that nobody has met, and latencies."""
        await self._tell_each(None, {"do": "clear_answers"})

    async def pending_errors(self) -> dict[str, int]:
        """How many pushed errors wait, by API, on all brokers together."""
        total: dict[str, int] = {}
        for broker in self._cluster.running():
            answer = await self._tell(broker.id, {"do": "pending_errors"})
            for key, count in answer["pending"].items():
                api = find_api(int(key))
                name = key if api is None else api.name
                total[name] = total.get(name, 0) + count
        return total

    # -- the whole cluster ---------------------------------------------------------------------

    async def snapshot(self, name: str = "default", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Stop the brokers, keep a copy of everything, start them again; wait as `restore` does.

        While all brokers run, ISRs get some seconds to be full before; then it is copied as it is.
        """
        target = self._snapshot_dir(name)
        self._cluster.require_embedded()
        if all(b.state is BrokerState.RUNNING for b in self._cluster.brokers.values()):
            with contextlib.suppress(WaitTimeout):  # a copy of what is broken is a copy too
                await self._wait_settled(BEFORE_SNAPSHOT_S)
        await self._cluster.stop_brokers()
        await self._cluster.save(target)
        await self._cluster.start_again()
        await self._wait_settled(timeout_s)

    async def restore(self, name: str = "default", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Kill the brokers, bring a copy back, start them; wait until all partitions are served.

        Raises WaitTimeout when one has no leader that answers, or no full ISR, `timeout_s` after the
        brokers started.
        """
        source = self._snapshot_dir(name)
        self._cluster.require_embedded()
        if not source.is_dir():
            raise cli.CommandError(f"there is no snapshot {name!r}")
        await self.heal()
        await self._cluster.stop_brokers(kill=True)
        await self._cluster.load(source)
        await self._cluster.start_again()
        await self._wait_settled(timeout_s)

    async def _wait_settled(self, timeout_s: float) -> None:
        """Until there is a controller, and every partition has a leader that serves and a full ISR.

        What partitions there are stands in ZooKeeper: brokers that have just started know of none.
        While links are cut, only brokers are waited for.
        """
        if self._cluster.cut_off():
            await self.wait_brokers(timeout_s=timeout_s)
            return
        deadline_s = self._clock.monotonic() + timeout_s
        await self.wait_brokers(timeout_s=timeout_s)
        await self.wait_controller(timeout_s=deadline_s - self._clock.monotonic())
        topics = await self._outsider().topics()
        if topics:
            left_s = deadline_s - self._clock.monotonic()
            await self._until(lambda: self._unsettled(topics), left_s)

    async def _unsettled(self, topics: Mapping[str, int]) -> str | None:
        """What is not as it should be with these topics (name: number of partitions)."""
        led: dict[int, dict[str, list[int]]] = {}
        for witness in self._witnesses():
            response = await self._questions.metadata(list(topics), witness.id)
            led.clear()
            for topic, count in topics.items():
                found = _partitions(response, topic)
                if len(found) < count:
                    return f"{witness.name} knows {len(found)} of {count} partitions of {topic}"
                for number, one in found.items():
                    expected = self._cluster.brokers.keys() & set(one.replica_nodes)
                    if one.leader_id < 0:
                        return f"{topic}-{number} has no leader, says {witness.name}"
                    if not expected <= set(one.isr_nodes):
                        return (
                            f"{topic}-{number} has ISR {one.isr_nodes} of replicas "
                            f"{one.replica_nodes}, says {witness.name}"
                        )
                    led.setdefault(one.leader_id, {}).setdefault(topic, []).append(number)
        for leader, partitions in led.items():
            response = await self._questions.ask(leader, _latest_offsets(partitions))
            for answer in response.topics:
                for one in answer.partitions:
                    if one.error_code:
                        where = f"{answer.name}-{one.partition_index}"
                        return f"{where}: broker-{leader} answers {error_name(one.error_code)}"
        return None

    def _snapshot_dir(self, name: str) -> pathlib.Path:
        if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
            raise cli.CommandError(f"name: {name!r}, expected letters, digits, '-', '_', '.'")
        return self._cluster.directory / "snapshots" / name

    async def mend(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Heal links, resume and start brokers, free disks, forget pushed errors; wait for all."""
        await self.heal()
        for broker in self._cluster.brokers.values():
            if broker.state is BrokerState.PAUSED:
                self._cluster.resume_broker(broker.id)
        await self._tell_each(None, {"do": "disk", "full": False})
        await self._tell_each(None, {"do": "clear_answers"})
        await self._cluster.start_again()
        await self.wait_brokers(timeout_s=timeout_s)

    async def reset(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Mend everything, then delete all topics and groups."""
        await self.mend(timeout_s)
        await self._delete_groups()
        topics = await self.topics()
        if topics:
            await self._delete_topics(topics, timeout_s)

    async def _delete_groups(self) -> None:
        for broker in self._cluster.running():
            if not await self._questions.serves(broker.id, ListGroupsRequest):
                continue
            listed = await self._questions.ask(broker.id, ListGroupsRequest())
            names = [g.group_id for g in listed.groups]
            if names:
                request = DeleteGroupsRequest(groups_names=names)
                await self._questions.ask(broker.id, request)

    async def advance(self, seconds: float) -> float:
        """Move the clock of a single-process cluster forward; returns what it now shows (epoch s).

        Sessions of brokers and of group members time out on the way, and retention deletes.
        """
        if seconds < 0:
            raise cli.CommandError(f"seconds: expected 0 or more, found {seconds}")
        return await self._cluster.host.advance(seconds)

    # -- inside --------------------------------------------------------------------------------

    async def _tell(self, broker_id: int, command: dict[str, Any]) -> dict[str, Any]:
        broker = self._require_running(broker_id)
        try:
            return await self._cluster.command(broker, command)
        except (BrokerHostError, TimedOut) as error:
            raise cli.CommandError(str(error)) from error

    def _require_running(self, broker_id: int) -> LocalBroker:
        broker = self._cluster.broker(broker_id)
        if broker.state is not BrokerState.RUNNING:
            raise cli.CommandError(f"{broker.name} is {broker.state.value}, expected running")
        return broker

    async def _tell_each(self, broker_id: int | None, command: dict[str, Any]) -> None:
        if broker_id is not None:
            await self._tell(broker_id, command)
            return
        brokers = list(self._cluster.running())
        for waiting in [as_deferred(self._tell(b.id, command)) for b in brokers]:
            await waiting

    def _witnesses(self) -> list[LocalBroker]:
        """Brokers that can know how the cluster is: they run, the least cut off of all."""
        return self._cluster.witnesses()

    async def _partition(self, topic: str, partition: int) -> Any:
        response = await self._questions.metadata([topic])
        found = _partitions(response, topic)
        if partition not in found:
            raise cli.CommandError(f"there is no partition {topic}-{partition}")
        return found[partition]

    async def _until_partitions(
        self,
        topic: str,
        partition: int,
        problem: Callable[[Any], str | None],
        timeout_s: float,
    ) -> None:
        """Until every witness describes the partition (-1: all of the topic) without a problem."""

        async def missing() -> str | None:
            witnesses = self._witnesses()
            if not witnesses:
                return "no broker is running"
            for broker in witnesses:
                found = _partitions(await self._questions.metadata([topic], broker.id), topic)
                wanted = found if partition == -1 else [partition]
                if not wanted or any(number not in found for number in wanted):
                    return f"{broker.name} does not know {topic}" + _suffix(partition)
                for number in wanted:
                    text = problem(found[number])
                    if text is not None:
                        return f"{topic}-{number} {text}, says {broker.name}"
            return None

        await self._until(missing, timeout_s)

    async def _until(
        self,
        missing: Callable[[], Awaitable[str | None]],
        timeout_s: float,
        *,
        patient: bool = True,
    ) -> None:
        """Ask until nothing is missing.  Raises WaitTimeout with what was missing at last.

        Questions that cannot be asked count as missing, unless it is not `patient`.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        pause_s = POLL_FIRST_S
        last = "no broker has answered"
        while True:
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0:
                cuts = described_cuts(self._cluster.touched_links(), self._cluster.direction)
                raise WaitTimeout(f"{last} (waited {timeout_s:g} s{cuts})")
            try:
                answer = await timeout(self._clock, missing(), left_s, "the question")
            except (PeerError, cli.CommandError) as error:
                if not patient:
                    raise
                last = str(error)
            except TimedOut:
                continue
            else:
                if answer is None:
                    return
                last = answer
            await sleep(self._clock, min(pause_s, max(left_s, 0.001)))
            pause_s = min(pause_s * 1.5, POLL_MOST_S)


def _partitions(response: MetadataResponse, topic: str) -> dict[int, Any]:
    for one in response.topics:
        if one.name == topic and not one.error_code:
            return {p.partition_index: p for p in one.partitions}
    return {}


def _latest_offsets(
    partitions: Mapping[str, Iterable[int]], *, committed: bool = False
) -> ListOffsetsRequest:
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.ListOffsetsPartition(partition_index=number, timestamp=LATEST)
                    for number in numbers
                ],
            )
            for topic, numbers in partitions.items()
        ],
    )


def _suffix(partition: int) -> str:
    return "" if partition == -1 else f"-{partition}"


def _broker_id(end: End) -> int:
    if isinstance(end, str):
        raise cli.CommandError(f"{end!r}: expected a broker id or {ZOOKEEPER!r}")
    return end


def _api_key(name: str) -> int:
    for api in APIS:
        if api.name.lower() == name.lower():
            return int(api.key)
    raise cli.CommandError(f"api: {name!r} is none of Kafka's, e.g. Produce, Fetch, Metadata")


def described_cuts(links: Iterable[Ends], direction: Callable[[End, End], Direction]) -> str:
    """What a wait that came to nothing says of cut links: both ways `1|2`, one way `1>2`."""
    cut = {ends for ends in links if direction(*ends).cut}
    told: list[str] = []
    for source, target in sorted(cut, key=lambda ends: [str(end) for end in ends]):
        if (target, source) not in cut:
            told.append(f"{source}>{target}")
        elif str(source) < str(target):
            told.append(f"{source}|{target}")
    if not told:
        return ""
    more = ", ..." if len(told) > MAX_CUTS_TOLD else ""
    return f"; cut: {', '.join(told[:MAX_CUTS_TOLD])}{more}"


def _check(code: int, what: str, message: str | None = None) -> None:
    message = message or HINTS.get(code)
    if code:
        raise cli.CommandError(f"{what}: {error_name(code)}" + (f": {message}" if message else ""))
