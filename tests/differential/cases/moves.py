"""Leaders elected, replicas moved between brokers and directories; who may be asked for it."""

from collections.abc import Iterator, Sequence
from typing import Any

from kafkalike.messages.cluster import (
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)
from kafkalike.messages.control import AlterPartitionRequest, ControlledShutdownRequest
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kafkalike.messages.transactions import AllocateProducerIdsRequest

from ..batches import batch
from ..case import Ask, Case, Names, Topic, versions_of
from .asks import (
    SHUFFLED,
    done,
    elect,
    led_by,
    listed,
    log_dirs,
    metadata,
    move_dir,
    propose,
    reassign,
    seen,
)
from .topics import topic

STOCK = Topic("moves", replicas=[[1, 2, 3], [2, 3, 1]], batches={0: [batch(2)]})
PAIR = Topic("moves-pair", replicas=[[1, 2]])
_Grow = CreatePartitionsRequest.CreatePartitionsTopic
_Feature = UpdateFeaturesRequest.FeatureUpdateKey


def case(name: str, *steps: Ask, setup: Sequence[Topic | Ask] = (), only: str = "") -> Case:
    return Case(
        name,
        list(steps),
        setup=setup,
        uses=[STOCK, PAIR],
        only=only,
        unordered=SHUFFLED,
    )


def cases() -> Iterator[Case]:
    yield from elsewhere()
    for version in versions_of(ElectLeadersRequest):
        yield from elections(version)
    yield from reassignments()
    for version in versions_of(CreatePartitionsRequest):
        yield from growth(version)
    for version in versions_of(CreateTopicsRequest):
        yield from creation(version)
    for version in versions_of(AlterReplicaLogDirsRequest):
        yield from directories(version)
    for version in versions_of(DescribeLogDirsRequest):
        # What lies in which directory is a matter of chance: what is in none is asked for.
        absent = DescribeLogDirsRequest.DescribableLogDirTopic(topic="moves", partitions=[3, 9])
        message = DescribeLogDirsRequest(topics=[absent])
        yield case(f"moves-log-dirs-v{version}", Ask(message, version, to=2))


def elsewhere() -> Iterator[Case]:
    """What only the controller does, asked of another broker."""
    for version in versions_of(CreateTopicsRequest):
        for validate in (False, True):
            create = CreateTopicsRequest(topics=[topic("moves-no", 1)], timeout_ms=5000)
            if version >= 1:
                create.validate_only = validate
            yield case(
                f"moves-create-elsewhere-{validate}-v{version}".lower(), Ask(create, version, to=2)
            )
    for version in versions_of(DeleteTopicsRequest):

        def delete(names: Names, version: int = version) -> DeleteTopicsRequest:
            if version < 6:
                return DeleteTopicsRequest(topic_names=["moves", "no-such"], timeout_ms=5000)
            state = DeleteTopicsRequest.DeleteTopicState
            by_id = state(name=None, topic_id=names.topic_id("moves"))
            return DeleteTopicsRequest(topics=[state(name="no-such"), by_id], timeout_ms=5000)

        yield case(f"moves-delete-elsewhere-v{version}", Ask(delete, version, to=2))
    for version in versions_of(CreatePartitionsRequest):
        grow = CreatePartitionsRequest(
            topics=[_Grow(name="moves", count=9, assignments=None), _Grow(name="no-such", count=2)],
            timeout_ms=5000,
        )
        yield case(f"moves-grow-elsewhere-v{version}", Ask(grow, version, to=2))
    for version in versions_of(ElectLeadersRequest):
        yield case(
            f"moves-elect-elsewhere-v{version}",
            elect(version, 0, ("moves", [0, 9]), ("no-such", [0]), to=2),
        )
    for version in versions_of(UpdateFeaturesRequest):
        change = UpdateFeaturesRequest(
            feature_updates=[_Feature(feature="no.such", max_version_level=1)]
        )
        yield case(f"moves-features-elsewhere-v{version}", Ask(change, version, to=2))
    yield case("moves-reassign-elsewhere", reassign(("moves", 0, [2, 1, 3]), to=2))
    yield case("moves-listed-elsewhere", listed("moves", 0, to=2))
    everything = ListPartitionReassignmentsRequest(topics=None)
    yield case("moves-list-all-elsewhere", Ask(everything, 0, to=2))
    ids = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
    yield case("moves-producer-ids-elsewhere", Ask(ids, 0, to=2))
    for version in versions_of(AlterPartitionRequest):
        yield case(f"moves-isr-elsewhere-v{version}", propose(version, "moves", [1, 2], to=2))
    for version in versions_of(ControlledShutdownRequest):
        leave = ControlledShutdownRequest(broker_id=3, broker_epoch=1)
        yield case(f"moves-leave-elsewhere-v{version}", Ask(leave, version, to=2))


def elections(version: int) -> Iterator[Case]:
    for kind in (0,) if version == 0 else (0, 1):
        name = f"moves-elect-{kind}-v{version}"
        yield case(
            name,
            elect(version, kind, (name, [0, 1, 2, 7]), ("no-such", [0])),
            *(metadata(name, to=to, until=led_by(1 if kind else 2)) for to in (1, 2, 3)),
            elect(version, kind, (name, [0])),
            setup=[
                Topic(name, replicas=[[1, 2, 3], [1, 2, 3], [3, 1, 2]]),
                reassign((name, 0, [2, 1, 3])),
                listed(name, 0, until=done),
            ],
        )


def reassignments() -> Iterator[Case]:
    # Before, after, and the leader epoch when all is done.
    shapes: dict[str, tuple[list[int], list[int], int]] = {
        "itself": ([1, 2, 3], [1, 2, 3], 1),
        "order": ([1, 2, 3], [3, 2, 1], 1),
        "shrink": ([1, 2, 3], [1, 2], 2),
        "shrink-to-follower": ([1, 2, 3], [3], 3),
        "grow": ([1], [1, 2, 3], 2),
        "grow-in-front": ([1], [2, 1], 2),
        "move": ([1], [3], 3),
        "move-leader-out": ([1, 2], [2, 3], 3),
        "move-all": ([3], [1, 2], 3),
    }
    for word, (before, after, epoch) in shapes.items():
        end = seen(isr=after, replicas=after, epoch=epoch)
        name = f"moves-reassign-{word}"
        yield case(
            name,
            reassign((name, 0, after)),
            listed(name, 0, until=done),
            *(metadata(name, to=to, until=end) for to in (1, 2, 3)),
            setup=[Topic(name, replicas=[before], batches={0: [batch(3)]})],
        )
    wrong: dict[str, Sequence[int] | None] = {
        "unknown": [1, 9],
        "empty": [],
        "twice": [1, 1],
        "negative": [1, -1],
        "cancel": None,
    }
    for word, replicas in wrong.items():
        yield case(f"moves-reassign-{word}", reassign(("moves", 0, replicas)), listed("moves", 0))
    name = "moves-reassign-some"
    yield case(
        name,
        reassign((name, 0, [2, 1]), (name, 1, [9]), (name, 7, [1]), ("no-such", 0, [1])),
        listed(name, 0, 1, until=done),
        metadata(name, until=seen(epoch=1)),
        setup=[Topic(name, replicas=[[1, 2], [1, 2]])],
    )
    name = "moves-reassign-no-time"
    yield case(
        name,
        reassign((name, 0, [2, 1]), timeout_ms=0),
        listed(name, 0, until=done),
        metadata(name, until=seen(epoch=1)),
        setup=[Topic(name, replicas=[[1, 2]])],
    )


def growth(version: int) -> Iterator[Case]:
    wanted: dict[str, list[list[int]]] = {
        "good": [[3, 2, 1], [2, 1, 3]],
        "other-factor": [[1, 2], [2, 1, 3]],
        "unknown-broker": [[1, 2, 3], [1, 2, 9]],
        "duplicate": [[1, 2, 2], [1, 2, 3]],
        "too-few": [[1, 2, 3]],
    }
    for word, assigned in wanted.items():
        name = f"moves-grow-{word}-v{version}"
        assignment = _Grow.CreatePartitionsAssignment
        grow = CreatePartitionsRequest(
            topics=[
                _Grow(
                    name=name,
                    count=3,
                    assignments=[assignment(broker_ids=brokers) for brokers in assigned],
                )
            ],
            timeout_ms=30_000,
        )
        yield case(
            name, Ask(grow, version), metadata(name), setup=[Topic(name, replicas=[[1, 2, 3]])]
        )


def creation(version: int) -> Iterator[Case]:
    for factor in (4, 0, -2):
        message = CreateTopicsRequest(topics=[topic("moves-bad", 1, factor)], timeout_ms=5000)
        yield case(f"moves-create-factor-{factor}-v{version}", Ask(message, version))
    uneven = topic("moves-bad", -1, -1, assignments=[(0, [1, 2]), (1, [3])])
    message = CreateTopicsRequest(topics=[uneven], timeout_ms=5000)
    yield case(f"moves-create-uneven-v{version}", Ask(message, version))


def directories(version: int) -> Iterator[Case]:
    suffix = f"-v{version}"

    def there(answer: Any) -> bool:
        """In the second directory and nowhere else."""
        found = [
            (place.log_dir, part.is_future_key)
            for place in answer.results
            for one in place.topics
            for part in one.partitions
        ]
        return len(found) == 1 and not found[0][1] and found[0][0].endswith("-second")

    for to in (1, 2):
        name = f"moves-dir-{to}{suffix}"
        yield case(
            name,
            move_dir(version, 2, (name, [0]), to=to),
            log_dirs(4, name, to=to, until=there),
            move_dir(version, 2, (name, [0]), to=to),
            log_dirs(4, name, to=to, until=there),
            setup=[Topic(name, replicas=[[1, 2, 3]], batches={0: [batch(3), batch(20)]})],
        )
    yield case(
        f"moves-dir-stranger{suffix}",
        move_dir(version, 2, ("moves", [1, 5]), ("moves-pair", [0]), to=3),
    )
    yield case(f"moves-dir-unknown{suffix}", move_dir(version, "/no/such", ("moves", [0, 3])))
    yield case(f"moves-dir-relative{suffix}", move_dir(version, "data", ("moves", [0])))
    yield case(f"moves-dir-empty{suffix}", move_dir(version, "", ("moves", [0])))
    yield case(f"moves-dir-nothing{suffix}", move_dir(version, 1))
    yield case(
        f"moves-dir-unknown-topic{suffix}", move_dir(version, 1, ("no-such", [0]), ("moves", [9]))
    )
