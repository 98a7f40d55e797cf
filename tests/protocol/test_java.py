"""Every message in every version against the codec of kafka-clients 3.9.2 itself."""

import random
import struct

import pytest

from kafkalike.messages import stored
from kafkalike.messages.catalog import APIS
from kafkalike.protocol.codegen import has_records
from kafkalike.protocol.headers import RequestHeader, decode_request_header, encode_request_header
from kafkalike.protocol.primitives import MalformedMessage
from kafkalike.protocol.struct import Message
from tests.protocol.instances import Instances, versions_of
from tests.protocol.oracle import Oracle, Question

pytestmark = pytest.mark.java

COMMON = "org.apache.kafka.common.message."
GROUP = "org.apache.kafka.coordinator.group.generated."
TRANSACTION = "org.apache.kafka.coordinator.transaction.generated."

MESSAGES: dict[type[Message], str] = {
    **{cls: f"{COMMON}{cls.__name__}Data" for api in APIS for cls in (api.request, api.response)},
    stored.ConsumerProtocolSubscription: f"{COMMON}ConsumerProtocolSubscription",
    stored.ConsumerProtocolAssignment: f"{COMMON}ConsumerProtocolAssignment",
    stored.OffsetCommitKey: f"{GROUP}OffsetCommitKey",
    stored.OffsetCommitValue: f"{GROUP}OffsetCommitValue",
    stored.GroupMetadataKey: f"{GROUP}GroupMetadataKey",
    stored.GroupMetadataValue: f"{GROUP}GroupMetadataValue",
    **{
        cls: f"{GROUP}{cls.__name__}"
        for cls in (
            stored.ConsumerGroupMetadataKey,
            stored.ConsumerGroupPartitionMetadataKey,
            stored.ConsumerGroupPartitionMetadataValue,
            stored.ConsumerGroupMemberMetadataKey,
            stored.ConsumerGroupMemberMetadataValue,
            stored.ConsumerGroupTargetAssignmentMetadataKey,
            stored.ConsumerGroupTargetAssignmentMetadataValue,
            stored.ConsumerGroupTargetAssignmentMemberKey,
            stored.ConsumerGroupTargetAssignmentMemberValue,
            stored.ConsumerGroupCurrentMemberAssignmentKey,
            stored.ConsumerGroupCurrentMemberAssignmentValue,
        )
    },
    stored.TransactionLogKey: f"{TRANSACTION}TransactionLogKey",
    stored.TransactionLogValue: f"{TRANSACTION}TransactionLogValue",
}
ROUNDS = 6


def test_kafka_reads_what_we_write_and_writes_the_same(oracle: Oracle) -> None:
    questions = []
    for message, name in MESSAGES.items():
        for version in versions_of(message):
            operation = "b" if has_records(message, version) else "r"
            for number in range(ROUNDS):
                seed = ("java", message.__name__, version, number)
                body = Instances(seed).message(message, version).encode(version)
                questions.append(Question(operation, name, version, body))
    assert len(questions) > 3500
    for question, answer in zip(questions, oracle.ask(questions), strict=True):
        where = (question.message, question.version)
        assert answer.refusal is None, where
        assert answer.body == bytes(4) + question.body, where


def test_defaults_are_those_of_kafka(oracle: Oracle) -> None:
    """An object with nothing set, through Kafka and back, is still one with nothing set."""
    questions, messages = [], []
    for message, name in MESSAGES.items():
        for version in versions_of(message):
            messages.append(message)
            questions.append(Question("b", name, version, message().encode(version)))
    for message, question, answer in zip(messages, questions, oracle.ask(questions), strict=True):
        assert answer.body is not None, (question, answer)
        assert answer.body[4:] == question.body
        assert message.decode(answer.body, question.version, 4) == message()


def test_both_refuse_or_accept_the_same_mutilated_bytes(oracle: Oracle) -> None:
    """Cut, changed and inserted bytes: what Kafka reads we read alike, what it refuses we refuse."""
    chance = random.Random(20240611)
    questions, messages = [], []
    for message, name in MESSAGES.items():
        for version in versions_of(message):
            for number in range(ROUNDS):
                instances = Instances(("mutilated", message.__name__, version, number))
                body = mutilate(chance, instances.message(message, version).encode(version))
                questions.append(Question("m", name, version, body))
                messages.append(message)
    accepted = 0
    for message, question, answer in zip(messages, questions, oracle.ask(questions), strict=True):
        where = (question.message, question.version, question.body.hex())
        try:
            decoded, end = message.decode_prefix(question.body, question.version)
        except MalformedMessage as malformed:
            assert answer.body is None, (where, str(malformed))
            continue
        assert answer.body is not None, (where, answer.refusal)
        accepted += 1
        (left,) = struct.unpack_from(">i", answer.body)
        assert end == len(question.body) - left, where
        if len(answer.body) == 4:
            continue  # read but not writable for Kafka, such as unknown tags in descending order
        theirs = message.decode(answer.body, question.version, 4)
        # Encoded again, since a float may have become one that is not equal to itself.
        assert decoded.encode(question.version) == theirs.encode(question.version), where
    assert 500 < accepted < len(questions) - 500


def mutilate(chance: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 2))):
        position = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0:
                del changed[position:]
            case 1:
                changed[position:position] = chance.randbytes(chance.choice((1, 2, 4)))
            case 2:
                changed[position : position + 1] = chance.choice(
                    (b"\x00", b"\xff", b"\x80", b"\x7f", chance.randbytes(1))
                )
            case 3:
                changed[position : position + 4] = chance.choice(
                    (
                        b"\xff\xff\xff\xfe",
                        b"\x80\x00\x00\x00",
                        b"\xff\xff\xff\xff\x0f",
                        b"\x81\x80\x80\x80\x08",
                    )
                )
    return bytes(changed)


def test_request_headers(oracle: Oracle) -> None:
    frames = []
    for api in APIS:
        for version in versions_of(api.request):
            for client_id in ("", "client-ü", "x" * 300):
                header = RequestHeader(api.key, version, -7, client_id)
                frames.append(encode_request_header(header) + b"body")
            # client id null, and (where flexible) an unknown tag: both are read over
            plain = struct.pack(">hhih", api.key, version, 2**31 - 1, -1)
            frames.append(plain + b"\x01\x05\x02ab" + b"body")
    questions = [Question("h", "", 0, frame) for frame in frames]
    for frame, answer in zip(frames, oracle.ask(questions), strict=True):
        assert answer.body is not None, (frame.hex(), answer.refusal)
        size, key, version, correlation_id = struct.unpack_from(">ihhi", answer.body)
        client_id = answer.body[12:].decode()
        if (key, version) == (7, 0):
            client_id = ""
        header, position = decode_request_header(frame)
        assert position == size
        assert header == RequestHeader(key, version, correlation_id, client_id)
