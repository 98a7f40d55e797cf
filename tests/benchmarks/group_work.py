"""Members of consumer groups that are measured: what they ask of a coordinator, over connections shared
by members of different groups.  Works against any broker.
"""

import asyncio
import itertools
import time
from typing import Any

from kafkalike.errors import MemberIdRequired, UnknownMemberId
from kafkalike.messages.catalog import response_class
from kafkalike.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from kafkalike.messages.metadata import MetadataRequest
from kafkalike.messages.offsets import OffsetCommitRequest
from kafkalike.messages.stored import ConsumerProtocolSubscription, encode_versioned
from kafkalike.messages.topics import CreateTopicsRequest
from kafkalike.protocol.headers import decode_response_header
from kafkalike.protocol.struct import Request
from tests.differential.case import frame

TOPIC = "bench-groups"
HEARTBEAT_S = 3.0
SESSION_MS = 600_000
"""Members stand idle while the other side works."""

REBALANCE_MS = 20_000
BEAT_S = 0.02
"""Between two heartbeats of a member that waits for others to come."""

VERSIONS = {3: 12, 8: 9, 9: 8, 10: 4, 11: 9, 12: 4, 14: 5, 18: 3, 19: 7}


class Link:
    """One connection; requests may be in flight together, answers come in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], type[Request], int]] = {}
        self._task = asyncio.create_task(self._receive(reader))

    @classmethod
    async def open(cls, host: str, port: int) -> "Link":
        return cls(*await asyncio.open_connection(host, port))

    async def ask(self, request: Request) -> Any:
        version = VERSIONS[request.api_key]
        number = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (future, type(request), version)
        self._writer.write(frame(request, version, correlation_id=number))
        return await future

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            data = await reader.readexactly(size)
            future, kind, version = self._waiting.pop(int.from_bytes(data[:4], "big"))
            _, position = decode_response_header(data, kind.api_key, version)
            answer = response_class(kind.api_key).decode(data, version, position)
            if not future.done():
                future.set_result(answer)

    def close(self) -> None:
        """Its task ends in the next turn of the loop."""
        self._task.cancel()
        self._writer.close()


class Member:
    def __init__(self, link: Link, group: str) -> None:
        self.link = link
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.leads = False

    async def join(self) -> Any:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(
                    name="range",
                    metadata=encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 1),
                )
            ],
        )
        while True:
            request.member_id = self.member_id
            answer = await self.link.ask(request)
            self.member_id = answer.member_id or self.member_id
            if answer.error_code == 0:
                self.generation = answer.generation_id
                self.leads = answer.leader == self.member_id
                return answer
            if answer.error_code == UnknownMemberId.code:
                self.member_id = ""
            await asyncio.sleep(0 if answer.error_code == MemberIdRequired.code else 0.1)

    async def sync(self, joined: Any) -> int:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member.member_id, assignment=b"\0\0" + bytes(60)
                )
                for member in joined.members
            ],
        )
        code: int = (await self.link.ask(request)).error_code
        return code

    async def beat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        code: int = (await self.link.ask(request)).error_code
        return code

    async def commit(self, offset: int) -> int:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[
                topic(
                    name=TOPIC,
                    partitions=[
                        topic.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        answer = await self.link.ask(request)
        code: int = answer.topics[0].partitions[0].error_code
        return code


def percentiles(times: list[float]) -> dict[str, float]:
    """Of seconds, in us."""
    ordered = sorted(times)
    return {
        name: ordered[min(int(len(ordered) * at), len(ordered) - 1)] * 1e6
        for name, at in {"p50": 0.5, "p99": 0.99}.items()
    }


async def create_topic(seed: Link) -> None:
    metadata = await seed.ask(MetadataRequest(topics=[]))
    places = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    controller = await Link.open(*places[metadata.controller_id])
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    await controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    controller.close()


async def coordinators(seed: Link, groups: list[str]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    while len(found) < len(groups):
        missing = [group for group in groups if group not in found]
        answer = await seed.ask(FindCoordinatorRequest(coordinator_keys=missing))
        found.update({c.key: (c.host, c.port) for c in answer.coordinators if not c.error_code})
        await asyncio.sleep(0.1)
    return found


async def form(members: list[Member]) -> None:
    """One group: all join and get their assignments, in the same generation."""
    settled: dict[Member, int] = {}

    def is_whole() -> bool:
        return len(settled) == len(members) and len(set(settled.values())) == 1

    async def take_part(member: Member) -> None:
        while not is_whole():
            if member not in settled:
                joined = await member.join()
                if not await member.sync(joined):
                    settled[member] = member.generation
            elif await member.beat():
                del settled[member]  # others have come: once more
            else:
                await asyncio.sleep(BEAT_S)

    await asyncio.gather(*(take_part(member) for member in members))


async def rebalances(place: tuple[str, int], name: str, count: int, rounds: int) -> list[float]:
    """Seconds from when all members of a group have sent JoinGroup until all have their assignment."""
    members = [Member(await Link.open(*place), name) for _ in range(count)]
    await form(members)
    times: list[float] = []
    members.sort(key=lambda member: not member.leads)
    for _ in range(rounds):
        leader = asyncio.create_task(members[0].join())
        await asyncio.sleep(0.05)  # the group is preparing now
        begin = time.perf_counter()
        joined = await asyncio.gather(leader, *(member.join() for member in members[1:]))
        codes = await asyncio.gather(*(m.sync(j) for m, j in zip(members, joined, strict=True)))
        assert not any(codes), codes
        times.append(time.perf_counter() - begin)
    for member in members:
        member.link.close()
    return times


async def at_rate(members: list[Member], seconds: float) -> tuple[list[float], list[int]]:
    """Every member once in HEARTBEAT_S, evenly spread."""
    times: list[float] = []
    codes: list[int] = []

    async def one(member: Member) -> None:
        begin = time.perf_counter()
        codes.append(await member.beat())
        times.append(time.perf_counter() - begin)

    step_s = HEARTBEAT_S / len(members)
    begin_s = time.perf_counter()
    tasks: list[asyncio.Task[None]] = []
    for number in itertools.count():
        due_s = begin_s + number * step_s
        if due_s - begin_s > seconds:
            break
        wait_s = due_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        tasks.append(asyncio.create_task(one(members[number % len(members)])))
    await asyncio.gather(*tasks)
    return times, codes


async def flat_out(members: list[Member], seconds: float, what: str) -> tuple[float, list[float]]:
    """One call in flight for each of 100 members."""
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    bad: list[int] = []

    async def loop(member: Member) -> None:
        number = 0
        while (begin := time.perf_counter()) < end_s:
            code = await (member.beat() if what == "beat" else member.commit(number))
            times.append(time.perf_counter() - begin)
            number += 1
            if code:
                bad.append(code)

    step = max(len(members) // 100, 1)
    begin_s = time.perf_counter()
    await asyncio.gather(*(loop(member) for member in members[::step]))
    assert not bad, bad[:5]
    return len(times) / (time.perf_counter() - begin_s), times
