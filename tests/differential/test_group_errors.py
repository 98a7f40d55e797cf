"""Every error that a request about groups can get (reference: group-coordinator 1, 3 to 8, 12, 14) is
provoked: which case does it, and that the original answered it there with that error.

`test_cases.py` (`tests/kafka41` for the newer protocol) holds our answers against the original's.  What
cannot be provoked from outside, or is not served yet, names a unit test.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kafkalike.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    GroupMaxSizeReached,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidCommitOffsetSize,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    RequestTimedOut,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnreleasedInstanceId,
    UnstableOffsetCommit,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from kafkalike.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from kafkalike.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.kafka41 import facts as newer

from . import facts
from .case import Ask, Await, Case, Step, Together
from .cases import FAMILIES, cases_of
from .normal import Json
from .test_cases import PENDING

ROOT: Final = Path(__file__).parents[2]
Row = tuple[type[Any], type[KafkaError], str]

CLASSIC: Final[tuple[Row, ...]] = (
    (FindCoordinatorRequest, InvalidRequest, "find-coordinator-kinds-v1"),
    # -- JoinGroup
    (JoinGroupRequest, InvalidGroupId, "group-bad-joins-v9"),
    (JoinGroupRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (JoinGroupRequest, NotCoordinator, "group-elsewhere"),
    (JoinGroupRequest, InvalidSessionTimeout, "group-bad-joins-v9"),
    (JoinGroupRequest, UnknownMemberId, "group-bad-joins-v9"),
    (JoinGroupRequest, GroupMaxSizeReached, "group-full-v9"),
    (JoinGroupRequest, GroupMaxSizeReached, "group-full-while-joining"),
    (JoinGroupRequest, GroupMaxSizeReached, "group-full-static"),
    (JoinGroupRequest, InconsistentGroupProtocol, "group-bad-joins-v9"),
    (JoinGroupRequest, FencedInstanceId, "group-static-v9"),
    (JoinGroupRequest, MemberIdRequired, "group-life-v9"),
    # -- SyncGroup
    (SyncGroupRequest, InvalidGroupId, "group-bad-syncs-v5"),
    (SyncGroupRequest, RebalanceInProgress, "group-while-loading"),
    (SyncGroupRequest, NotCoordinator, "group-elsewhere"),
    (SyncGroupRequest, InconsistentGroupProtocol, "group-bad-syncs-v5"),
    (SyncGroupRequest, UnknownMemberId, "group-bad-syncs-v5"),
    (SyncGroupRequest, FencedInstanceId, "group-static-v9"),
    (SyncGroupRequest, IllegalGeneration, "group-bad-syncs-v5"),
    (SyncGroupRequest, RebalanceInProgress, "group-two-members"),
    # ... of which the group's record cannot be written
    (SyncGroupRequest, CoordinatorNotAvailable, "group-refused"),
    (SyncGroupRequest, RebalanceInProgress, "group-stalled-v5"),
    (SyncGroupRequest, UnknownServerError, "group-assignment-too-large"),
    # -- Heartbeat
    (HeartbeatRequest, InvalidGroupId, "group-bad-heartbeats-v4"),
    (HeartbeatRequest, NotCoordinator, "group-elsewhere"),
    (HeartbeatRequest, UnknownMemberId, "group-bad-heartbeats-v4"),
    (HeartbeatRequest, IllegalGeneration, "group-bad-heartbeats-v4"),
    (HeartbeatRequest, FencedInstanceId, "group-static-v9"),
    (HeartbeatRequest, RebalanceInProgress, "group-two-members"),
    # -- LeaveGroup
    (LeaveGroupRequest, InvalidGroupId, "group-bad-leaves-v5"),
    (LeaveGroupRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (LeaveGroupRequest, NotCoordinator, "group-elsewhere"),
    (LeaveGroupRequest, UnknownMemberId, "group-bad-leaves-v5"),
    (LeaveGroupRequest, FencedInstanceId, "group-static-v9"),
    # -- OffsetCommit
    (OffsetCommitRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (OffsetCommitRequest, NotCoordinator, "group-elsewhere"),
    (OffsetCommitRequest, UnknownTopicOrPartition, "offset-commit-simple-v9"),
    (OffsetCommitRequest, IllegalGeneration, "offset-commit-simple-v9"),
    (OffsetCommitRequest, IllegalGeneration, "offset-commit-members-v9"),
    (OffsetCommitRequest, UnknownMemberId, "offset-commit-members-v9"),
    (OffsetCommitRequest, FencedInstanceId, "offset-commit-static"),
    (OffsetCommitRequest, RebalanceInProgress, "offset-commit-members-v9"),
    (OffsetCommitRequest, OffsetMetadataTooLarge, "offset-commit-simple-v9"),
    (OffsetCommitRequest, InvalidCommitOffsetSize, "offset-commit-too-large-v9"),
    (OffsetCommitRequest, CoordinatorNotAvailable, "group-refused"),
    (OffsetCommitRequest, RequestTimedOut, "offset-commit-stalled-v9"),
    # -- OffsetFetch
    (OffsetFetchRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (OffsetFetchRequest, NotCoordinator, "group-elsewhere"),
    (OffsetFetchRequest, UnstableOffsetCommit, "offset-fetch-on-its-way-v9"),
    (OffsetFetchRequest, UnknownTopicOrPartition, "offset-fetch-v0"),
    # -- administration
    (DescribeGroupsRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (DescribeGroupsRequest, NotCoordinator, "group-elsewhere"),
    (ListGroupsRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (DeleteGroupsRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (DeleteGroupsRequest, NotCoordinator, "group-elsewhere"),
    (DeleteGroupsRequest, NonEmptyGroup, "group-deleted-v2"),
    (DeleteGroupsRequest, GroupIdNotFound, "group-deleted-v2"),
    (OffsetDeleteRequest, InvalidGroupId, "offset-delete-simple"),
    (OffsetDeleteRequest, CoordinatorLoadInProgress, "group-while-loading"),
    (OffsetDeleteRequest, NotCoordinator, "group-elsewhere"),
    (OffsetDeleteRequest, GroupIdNotFound, "offset-delete-simple"),
    (OffsetDeleteRequest, UnknownTopicOrPartition, "offset-delete-simple"),
    (OffsetDeleteRequest, GroupSubscribedToTopic, "offset-delete-active"),
    (OffsetDeleteRequest, NonEmptyGroup, "offset-delete-connect"),
    # -- the newer protocol, switched off
    (ConsumerGroupHeartbeatRequest, UnsupportedVersion, "consumer-group-heartbeat-v0"),
    (ConsumerGroupDescribeRequest, UnsupportedVersion, "consumer-group-describe-v0"),
)
"""A request, an error, and the case in which Kafka 3.9.2 answers the one with the other."""

NEWER: Final[tuple[tuple[type[KafkaError], str], ...]] = (
    (InvalidRequest, "bad-requests-v1"),
    (UnsupportedAssignor, "bad-requests-v1"),
    (InvalidRegularExpression, "patterns-that-are-taken"),
    (GroupIdNotFound, "bad-requests-v1"),
    (FencedMemberEpoch, "one-member"),
    (UnknownMemberId, "one-member"),
    (FencedInstanceId, "static-member"),
    (UnreleasedInstanceId, "static-member"),
    (UnknownMemberId, "static-member"),
    (StaleMemberEpoch, "commits"),
    (UnsupportedVersion, "commits"),
    (GroupIdNotFound, "commits-to-no-group"),
    (IllegalGeneration, "commits-to-no-group"),
    (GroupSubscribedToTopic, "offset-deletion"),
    (NonEmptyGroup, "deletion"),
    (GroupIdNotFound, "deletion"),
)
"""Of the newer protocol: the case in which Kafka 4.1.2 answers with the error."""

ELSEWHERE: Final[tuple[tuple[str, type[KafkaError], str, str], ...]] = (
    ("FindCoordinator of a partition without leader", CoordinatorNotAvailable,
     "handlers/test_groups.py", "test_partition_without_leader_has_no_coordinator"),
    ("everything, before the start", CoordinatorNotAvailable,
     "coordinator/test_loading.py", "test_not_here_and_not_yet"),
    ("JoinGroup and SyncGroup of a group that dies", CoordinatorNotAvailable,
     "coordinator/test_membership.py", "test_group_that_dies_answers_everybody"),
    ("SyncGroup, each way in which the record is not written", NotCoordinator,
     "coordinator/test_membership.py", "test_assignment_that_cannot_be_stored"),
    ("OffsetCommit, each way in which the records are not written", NotCoordinator,
     "coordinator/test_offsets.py", "test_commit_that_fails_changes_nothing"),
    ("the newer protocol, group.consumer.max.size", GroupMaxSizeReached,
     "coordinator/test_consumer_groups.py", "test_largest_group"),
    ("everything, without permission", GroupAuthorizationFailed,
     "handlers/test_groups.py", "test_members_need_to_read_the_group"),
    ("OffsetCommit, without permission for the topic", TopicAuthorizationFailed,
     "handlers/test_groups.py", "test_commits_need_the_topic_too"),
)  # fmt: skip
"""What is asked, the error, and file and name of the unit test that provokes it."""

BAD_INPUT: Final = {
    "wrong generation": "group-bad-heartbeats-v4",
    "fenced instance": "group-static-v9",
    "oversize metadata": "offset-commit-simple-v9",
    "unknown protocol": "group-bad-joins-v9",
    "empty group id": "group-bad-joins-v9",
    "mixed JoinGroup versions in one group": "group-of-mixed-versions",
}


def known_cases() -> dict[str, tuple[str, Case]]:
    return {case.name: (family, case) for family in FAMILIES for case in cases_of(family)}


def asked(steps: list[Step]) -> Iterator[Any]:
    """The class of what each step asks, or waits for."""
    waiting: dict[tuple[int, str], Any] = {}
    for step in steps:
        if isinstance(step, Await):
            yield waiting.pop((step.to, step.via))
        elif isinstance(step, Together):
            yield from asked(list(step.asks))
        elif isinstance(step, Ask):
            message = step.message
            known = message.__annotations__["return"] if callable(message) else type(message)
            if not step.answered:
                waiting[step.to, step.via] = known
            yield known
        else:
            yield None


def codes_in(answer: Json) -> set[int]:
    """Error codes in any place of an answer."""
    if isinstance(answer, dict):
        own = {answer["error_code"]} if "error_code" in answer else set()
        return own.union(*map(codes_in, answer.values()))
    return set().union(*map(codes_in, answer)) if isinstance(answer, list) else set()


@pytest.mark.parametrize(
    ("request_class", "error", "name"),
    CLASSIC,
    ids=[f"{row[0].__name__} {row[1].error_name} {row[2]}" for row in CLASSIC],
)
def test_original_answers_so(request_class: Any, error: type[KafkaError], name: str) -> None:
    family, case = known_cases()[name]
    assert not case.differs, "ours is not held against this"
    assert name not in PENDING
    answers = facts.load(family)[name].answers
    pairs = zip(answers, asked(list(case.steps)), strict=True)
    told = [codes_in(answer) for answer, known in pairs if known is request_class]
    assert told, "is not asked there"
    assert any(error.code in codes for codes in told), set().union(*told)


@pytest.mark.parametrize(
    ("error", "name"), NEWER, ids=[f"{row[0].error_name} {row[1]}" for row in NEWER]
)
def test_original_of_the_newer_protocol_answers_so(error: type[KafkaError], name: str) -> None:
    found = newer.load()[name]
    assert error.code in codes_in(found), codes_in(found)


@pytest.mark.parametrize("row", ELSEWHERE, ids=[row[0] for row in ELSEWHERE])
def test_unit_test_is_there(row: tuple[str, type[KafkaError], str, str]) -> None:
    _, error, file, name = row
    text = (ROOT / "tests" / "unit" / file).read_text()
    assert f"def {name}(" in text
    assert error.__name__ in text or str(error.code) in text


@pytest.mark.parametrize("name", BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_a_case(name: str) -> None:
    _, case = known_cases()[name]
    assert not case.differs
    assert name not in PENDING
