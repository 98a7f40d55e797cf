"""Produce: which error comes first, who is appended, what is answered."""

from typing import Any, cast

import pytest

from kafkalike import errors
from kafkalike.broker.auth.authorizer import (
    Authorizer,
    Operation,
    PermissiveAuthorizer,
    ResourceType,
)
from kafkalike.broker.cluster.metadata_cache import MetadataCache
from kafkalike.broker.handlers.leaders import CurrentLeaders
from kafkalike.broker.handlers.produce import ProduceApi, SoleAppend
from kafkalike.broker.replica.values import AppendResult
from kafkalike.messages.produce import ProduceRequest, ProduceResponse
from kafkalike.types import TopicPartition
from tests.unit.cluster.support import update_metadata
from tests.unit.handlers.support import (
    FakePartition,
    FakeReplicas,
    PickyAuthorizer,
    answer,
    context,
)

_Topic = ProduceRequest.TopicProduceData
T0 = TopicPartition("t", 0)


def batch(
    *, magic: int = 2, attributes: int = 0, size: int = 80, producer: int = -1, epoch: int = -1
) -> bytes:
    """Bytes with a batch's outer form; whether the content is right is for the log to say."""
    raw = bytearray(size)
    raw[8:12] = (size - 12).to_bytes(4, "big")
    raw[16] = magic
    raw[21:23] = attributes.to_bytes(2, "big")
    raw[43:51] = producer.to_bytes(8, "big", signed=True)
    raw[51:53] = epoch.to_bytes(2, "big", signed=True)
    return bytes(raw)


def as_message(response: Any, version: int) -> ProduceResponse | None:
    """What an answer says, also when it wrote its own bytes."""
    if isinstance(response, SoleAppend):
        (data,) = response.encode_parts(version)
        assert isinstance(data, bytes)
        return ProduceResponse.decode(data, version)
    return cast("ProduceResponse | None", response)


class World:
    def __init__(self, authorizer: Authorizer | None = None, **replicas: Any) -> None:
        self.metadata = MetadataCache(1)
        self.metadata.update(update_metadata({"t": [(0, 1, [1]), (1, 2, [2])], "u": [(0, 1, [1])]}))
        self.replicas = FakeReplicas(**replicas)
        manager: Any = self.replicas
        self.api = ProduceApi(
            manager,
            self.metadata,
            authorizer or PermissiveAuthorizer(),
            CurrentLeaders(manager, self.metadata),
        )

    def produce(
        self,
        records: dict[TopicPartition, bytes | None],
        *,
        version: int = 11,
        acks: int = 1,
        transactional_id: str | None = None,
        client_id: str = "c",
    ) -> tuple[ProduceResponse | None, str | None]:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                _Topic(
                    name=tp.topic,
                    partition_data=[
                        _Topic.PartitionProduceData(index=tp.partition, records=content)
                    ],
                )
                for tp, content in records.items()
            ],
        )
        ctx = context(version, client_id=client_id)
        response = as_message(answer(self.api.produce(request, ctx)), version)
        if response is not None:
            response.encode(version)
        return response, ctx.session.closing

    def code(self, records: bytes, *, version: int = 11, target: TopicPartition = T0) -> int:
        response, _ = self.produce({target: records}, version=version)
        assert response is not None
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        return partition.error_code


@pytest.mark.parametrize("throttle_time_ms", [0, 77])
@pytest.mark.parametrize("name", ["t", "x" * 249])
@pytest.mark.parametrize("version", range(ProduceResponse.max_version + 1))
def test_the_short_answer_has_the_bytes_of_the_message(
    version: int, name: str, throttle_time_ms: int
) -> None:
    topic = ProduceResponse.TopicProduceResponse
    result = AppendResult(TopicPartition(name, 3), 0, 1 << 40, 1 << 41, 1 << 42, 12)
    short = SoleAppend(result)
    short.throttle_time_ms = throttle_time_ms
    long = ProduceResponse(
        responses=[
            topic(
                name=name,
                partition_responses=[
                    topic.PartitionProduceResponse(
                        index=3,
                        base_offset=1 << 40,
                        log_append_time_ms=1 << 42,
                        log_start_offset=12,
                    )
                ],
            )
        ],
        throttle_time_ms=throttle_time_ms,
    )
    assert short.encode_parts(version) == [long.encode(version)]


def test_only_one_partition_without_error_is_answered_in_short() -> None:
    world = World()
    request = ProduceRequest(acks=1, timeout_ms=1)
    data = [_Topic.PartitionProduceData(index=0, records=batch())]
    request.topic_data = [_Topic(name="t", partition_data=data)]
    assert type(answer(world.api.produce(request, context(11)))) is SoleAppend
    request.topic_data = [_Topic(name=name, partition_data=data) for name in "tu"]
    assert type(answer(world.api.produce(request, context(11)))) is ProduceResponse
    request.topic_data = [_Topic(name="x", partition_data=data)]
    assert type(answer(world.api.produce(request, context(11)))) is ProduceResponse


def test_success_carries_the_offsets() -> None:
    world = World()
    response, closing = world.produce({T0: batch()})
    assert response is not None and closing is None
    partition = response.responses[0].partition_responses[0]
    assert (partition.error_code, partition.base_offset, partition.log_start_offset) == (0, 40, 2)
    assert partition.error_message is None
    assert world.replicas.arguments == {
        "required_acks": 1,
        "timeout_ms": 1000,
        "internal_topics_allowed": False,
    }


BAD_FORM = [
    (b"", 11, errors.InvalidRecord),
    (batch()[:60], 11, errors.InvalidRecord),
    (batch(magic=1), 11, errors.InvalidRecord),
    (batch() + batch(), 11, errors.InvalidRecord),
    (batch(attributes=4), 6, errors.UnsupportedCompressionType),
]


@pytest.mark.parametrize(("records", "version", "expected"), BAD_FORM)
def test_form_of_the_batches(
    records: bytes, version: int, expected: type[errors.KafkaError]
) -> None:
    world = World()
    assert world.code(records, version=version) == expected.code
    assert world.replicas.appended == []


@pytest.mark.parametrize("version", [0, 2, 3, 11])
@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (batch(magic=3), errors.CorruptMessage),
        (batch()[:8] + b"\0\0\0\5" + batch()[12:], errors.CorruptMessage),
        (batch()[:8] + b"\x7f\xff\xff\xff" + batch()[12:], errors.UnknownServerError),
    ],
)
def test_a_first_batch_that_cannot_be_told_apart_fails_everything(
    records: bytes, expected: type[errors.KafkaError], version: int
) -> None:
    world = World()
    with pytest.raises(expected):
        world.produce({TopicPartition("u", 0): batch(), T0: records}, version=version)
    assert world.replicas.appended == []


@pytest.mark.parametrize(
    ("records", "version"),
    [
        (batch() + b"garbage", 11),
        (batch(attributes=4), 7),
        (batch(magic=1), 2),
        (batch(magic=0) + batch(magic=0), 1),
        (b"", 2),
    ],
)
def test_what_is_left_to_the_log(records: bytes, version: int) -> None:
    world = World()
    assert world.code(records, version=version) == 0
    assert [entry.records for entry in world.replicas.appended] == [records]


def test_permission_comes_before_existence_and_existence_before_form() -> None:
    refuse = (Operation.WRITE, ResourceType.TOPIC, "secret")
    world = World(PickyAuthorizer(refuse))
    bad = batch(magic=1)
    assert world.code(bad, target=TopicPartition("secret", 0)) == 29
    assert world.code(bad, target=TopicPartition("nowhere", 0)) == 3
    assert world.code(bad, target=TopicPartition("t", 7)) == 3
    assert world.code(bad) == 87


def test_each_partition_stands_alone() -> None:
    world = World(errors={TopicPartition("u", 0): 10})
    response, _ = world.produce(
        {T0: batch(), TopicPartition("u", 0): batch(), TopicPartition("x", 0): batch()}
    )
    assert response is not None
    codes = {
        TopicPartition(t.name, p.index): p.error_code
        for t in response.responses
        for p in t.partition_responses
    }
    assert codes == {T0: 0, TopicPartition("u", 0): 10, TopicPartition("x", 0): 3}


def test_a_partition_named_twice_is_appended_and_answered_once_with_the_last() -> None:
    world = World()
    first, last = batch(size=80), batch(size=90)
    request = ProduceRequest(acks=1, timeout_ms=1)
    request.topic_data = [
        _Topic(name="t", partition_data=[_Topic.PartitionProduceData(index=0, records=r)])
        for r in (first, last)
    ]
    response = as_message(answer(world.api.produce(request, context(11))), 11)
    assert response is not None
    assert [entry.records for entry in world.replicas.appended] == [last]
    assert sum(len(topic.partition_responses) for topic in response.responses) == 1


def test_null_records_are_refused_as_a_whole() -> None:
    world = World()
    with pytest.raises(errors.InvalidRequest):
        world.produce({T0: batch(), TopicPartition("u", 0): None})
    assert world.replicas.appended == []


def test_without_acks_nothing_is_answered_and_an_error_closes() -> None:
    assert World().produce({T0: batch()}, acks=0) == (None, None)
    response, closing = World(errors={T0: 6}).produce({T0: batch()}, acks=0)
    assert response is None
    assert closing is not None and "t-0" in closing
    response, closing = World().produce({TopicPartition("x", 0): batch()}, acks=0)
    assert response is None and closing is not None


def test_the_answer_waits_when_the_append_does() -> None:
    world = World(waits=True)
    request = ProduceRequest(acks=-1, timeout_ms=1)
    data = [_Topic.PartitionProduceData(index=0, records=batch())]
    request.topic_data = [
        _Topic(name="t", partition_data=data),
        _Topic(name="x", partition_data=data),
    ]
    waiting: Any = world.api.produce(request, context(11))
    assert not waiting.called
    world.replicas.waiting.pop()()
    response = answer(waiting)
    assert [t.partition_responses[0].error_code for t in response.responses] == [3, 0]


@pytest.mark.parametrize(("version", "leader"), [(9, -1), (10, 2)])
def test_who_leads_now_is_told_from_version_ten(version: int, leader: int) -> None:
    target = TopicPartition("t", 1)
    world = World(errors={target: 6}, hosted={target: FakePartition(leader=2, leader_epoch=8)})
    response, _ = world.produce({target: batch()}, version=version)
    assert response is not None
    partition = response.responses[0].partition_responses[0]
    assert partition.current_leader.leader_id == leader
    assert [n.node_id for n in response.node_endpoints] == ([2] if leader == 2 else [])


def test_only_the_admin_client_may_write_internal_topics() -> None:
    world = World()
    world.produce({T0: batch()}, client_id="__admin_client")
    assert world.replicas.arguments["internal_topics_allowed"] is True


def test_transactions_need_an_id_that_may_be_written() -> None:
    transactional = batch(attributes=0x10, producer=5, epoch=0)
    with pytest.raises(errors.TransactionalIdAuthorizationFailed):
        World().produce({T0: transactional})
    refuse = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "id")
    with pytest.raises(errors.TransactionalIdAuthorizationFailed):
        World(PickyAuthorizer(refuse)).produce({T0: transactional}, transactional_id="id")
    with pytest.raises(errors.InvalidProducerIdMapping):
        World().produce(
            {
                T0: transactional,
                TopicPartition("u", 0): batch(attributes=0x10, producer=6, epoch=0),
            },
            transactional_id="id",
        )
    world = World()
    response, _ = world.produce({T0: transactional}, transactional_id="id")
    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == 19
    assert world.replicas.appended == []
