"""Promises about marks that only go forward, and about groups."""

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kafkalike.types import TopicPartition

from .check import OFFSETS_TOPIC, Check, Running, answer_of
from .evidence import Evidence
from .history import (
    AskCommitted,
    Assigned,
    Commit,
    Committed,
    Fetched,
    Joined,
    ListedOffset,
    ListOffset,
    Operation,
    Phase,
    Slow,
)

LATEST: Final = -1
_MADE_UP: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class WatermarksForward(Check):
    """High watermark, end and start of a log never go back for an observer; no read goes beyond.

    A broker that restarts and goes on leading in the same epoch begins with its stored high watermark,
    which is behind, and stays there below min.insync.replicas (KIP-966): each life counts alone.
    """

    name = "watermarks"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        yield from self._fetched(evidence)
        yield from self._listed(evidence)

    def _fetched(self, evidence: Evidence) -> Iterator[str]:
        highest: dict[tuple[str, TopicPartition, bytes, int, int, int], tuple[int, int]] = {}
        births = evidence.registrations
        for entry, fetched in evidence.history.notes(Fetched):
            where = (
                f"{entry.client} at {entry.time_s:.3f} s: {fetched.partition} on {fetched.broker}"
            )
            if fetched.records and fetched.records[-1].offset >= fetched.high_watermark:
                yield (
                    f"{where}: offset {fetched.records[-1].offset} was given, the high watermark is"
                    f" {fetched.high_watermark}"
                )
            if fetched.log_start_offset > fetched.high_watermark:
                yield (
                    f"{where}: log start {fetched.log_start_offset} is above the high watermark"
                    f" {fetched.high_watermark}"
                )
            if fetched.from_follower or fetched.leader_epoch < 0:
                continue
            key = (
                entry.client,
                fetched.partition,
                fetched.topic_id,
                fetched.broker,
                fetched.leader_epoch,
                bisect.bisect(births[fetched.broker], entry.time_s * 1000),
            )
            high, start = highest.get(key, (-1, -1))
            if fetched.high_watermark < high:
                yield (
                    f"{where}: high watermark {fetched.high_watermark} after {high} in epoch"
                    f" {fetched.leader_epoch}"
                )
            if fetched.log_start_offset < start:
                yield f"{where}: log start {fetched.log_start_offset} after {start}"
            highest[key] = (
                max(high, fetched.high_watermark),
                max(start, fetched.log_start_offset),
            )

    def _listed(self, evidence: Evidence) -> Iterator[str]:
        """An end that was told to a client holds for every question it asks afterwards (KIP-207).

        Another client may still ask a leader that does not know of its end.
        """
        gone = evidence.unsteady_topics
        ends: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = defaultdict(list)
        asked: list[tuple[Operation, ListOffset]] = []
        for operation, what in evidence.history.operations(ListOffset):
            if operation.is_ok and what.timestamp == LATEST and what.partition.topic not in gone:
                asked.append((operation, what))
        for operation, what in asked:
            answer: ListedOffset = answer_of(operation)
            ends[operation.client, what.partition].append((operation.ended, answer.offset))
        best = {key: Running(points) for key, points in ends.items()}
        for operation, what in asked:
            answer = answer_of(operation)
            before = best[operation.client, what.partition].before(operation.begun)
            if answer.offset < before and not any(
                entry.first_offset < before for entry in evidence.ledger_of(what.partition)
            ):
                yield (
                    f"{operation.client} at {operation.invoke.time_s:.3f} s: the end of"
                    f" {what.partition} is {answer.offset}, it was {before} before"
                )


class Prompt(Check):
    """Where a producer was told to expect prompt answers, they are prompt."""

    name = "promptness"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        for entry, slow in evidence.history.notes(Slow):
            yield (
                f"{entry.client}: broker {slow.broker} took {slow.seconds:.1f} s at"
                f" {entry.time_s:.3f} s for {slow.partition}, the limit is {slow.limit_s:g} s"
            )


class CommittedForward(Check):
    """A question for committed offsets is answered with what was acknowledged before, or later."""

    name = "committed offsets"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        if any(entry.partition.topic == OFFSETS_TOPIC for entry in evidence.ledger):
            return
        points: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = defaultdict(list)
        for operation, commit in evidence.history.operations(Commit):
            if operation.is_ok:
                for partition, offset in commit.offsets:
                    points[commit.group, partition].append((operation.ended, offset))
        best = {key: Running(found) for key, found in points.items()}
        gone = evidence.deleted_topics
        for operation, asked in evidence.history.operations(AskCommitted):
            if not operation.is_ok:
                continue
            answer: Committed = answer_of(operation)
            for partition, offset in answer.offsets:
                running = best.get((asked.group, partition))
                before = -1 if running is None else running.before(operation.begun)
                if offset < before and partition.topic not in gone:
                    yield (
                        f"{operation.client} at {operation.invoke.time_s:.3f} s: group"
                        f" {asked.group} has {offset} committed for {partition}, acknowledged was"
                        f" {before}"
                    )


class GroupsExclusive(Check):
    """One generation has one leader and gives a partition to one member; what an older generation
    commits is refused once a newer one is known.

    A generation counts from its first assignment on, which is stored before anybody is told.  One
    that got no further than its Join is forgotten with its coordinator, and its number used again.
    A static member that comes back gets a new id in the same generation: members are told apart by
    the client they belong to, which begins their ids.
    """

    name = "groups"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        if any(entry.partition.topic == OFFSETS_TOPIC for entry in evidence.ledger):
            return
        yield from self._generations(evidence)
        yield from self._zombies(evidence)

    def _generations(self, evidence: Evidence) -> Iterator[str]:
        leaders: dict[tuple[str, int], tuple[str, str]] = {}
        members: dict[tuple[str, int], tuple[str, ...]] = {}
        confirmed = _confirmed(evidence)
        for client, joined in confirmed:
            key = (joined.group, joined.generation)
            leads = (_client_of(joined.leader), joined.protocol)
            before = leaders.setdefault(key, leads)
            if before != leads:
                yield (
                    f"group {joined.group} generation {joined.generation}: {client} was told that"
                    f" {leads[0]!r} leads with {leads[1]!r}, another that {before[0]!r} does with"
                    f" {before[1]!r}"
                )
            if joined.members:
                members[key] = tuple(map(_client_of, joined.members))
        for client, joined in confirmed:
            known = members.get((joined.group, joined.generation))
            if known is not None and _client_of(joined.member_id) not in known:
                yield (
                    f"group {joined.group} generation {joined.generation}: {joined.member_id!r} of"
                    f" {client} is in, the leader was told of {list(known)}"
                )
        yield from self._owners(evidence)

    def _owners(self, evidence: Evidence) -> Iterator[str]:
        owners: dict[tuple[str, int], dict[TopicPartition, str]] = defaultdict(dict)
        for entry in evidence.history.entries:
            what = entry.what
            if entry.phase is not Phase.OK or not isinstance(what, Assigned):
                continue
            for partition in what.partitions:
                owner = owners[what.group, what.generation].setdefault(
                    partition, _client_of(what.member_id)
                )
                if owner != _client_of(what.member_id):
                    yield (
                        f"group {what.group} generation {what.generation}: {partition} belongs"
                        f" to {owner!r} and to {what.member_id!r}"
                    )

    def _zombies(self, evidence: Evidence) -> Iterator[str]:
        newest: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for entry in evidence.history.entries:
            if entry.phase is Phase.OK and isinstance(entry.what, Assigned):
                newest[entry.what.group].append((entry.number, entry.what.generation))
        best = {group: Running(points) for group, points in newest.items()}
        # Commits only: a coordinator that does not know of its end still answers all that asks for no
        # write, heartbeats and members that join again among it.
        for operation, commit in evidence.history.operations(Commit):
            running = best.get(commit.group)
            if not operation.is_ok or running is None or commit.generation < 0:
                continue
            known = running.before(operation.begun)
            if commit.generation < known:
                yield (
                    f"group {commit.group}: {operation.client} committed in generation"
                    f" {commit.generation} at {operation.invoke.time_s:.3f} s, generation {known}"
                    " was known"
                )


def _client_of(member_id: str) -> str:
    """A member's id without the part that the coordinator made up."""
    return _MADE_UP.sub("", member_id)


def _confirmed(evidence: Evidence) -> list[tuple[str, Joined]]:
    """(client, answer) of each Join that was followed by an assignment in its generation."""
    last: dict[str, Joined] = {}
    found: list[tuple[str, Joined]] = []
    for entry in evidence.history.entries:
        if entry.phase is not Phase.OK:
            continue
        if isinstance(entry.what, Joined):
            last[entry.client] = entry.what
        elif isinstance(entry.what, Assigned):
            joined = last.get(entry.client)
            if joined is not None and joined.generation == entry.what.generation:
                found.append((entry.client, joined))
    return found
