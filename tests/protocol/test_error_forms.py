"""The answer to a request that failed as a whole, against Kafka's own request classes."""

import pytest

from kafkalike.errors import (
    ClusterAuthorizationFailed,
    UnknownServerError,
    UnsupportedVersion,
    error_class,
)
from kafkalike.messages.api_versions import ApiVersionsRequest
from kafkalike.messages.catalog import APIS, response_class
from kafkalike.messages.error_forms import error_response
from kafkalike.messages.produce import ProduceRequest
from kafkalike.messages.transactions import WriteTxnMarkersRequest
from kafkalike.protocol.struct import Request, Response, Struct, fields_of
from tests.protocol.instances import Instances, versions_of
from tests.protocol.oracle import Answer, Oracle, Question

CODES = (31, -1, 42, 77, 35)


VALID = {
    "records": b"",
    "security_protocol": 1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
}
"""What Kafka's request classes look at while they read; other values they refuse to read at all."""


def sample(request: type[Request], version: int, number: int) -> Request:
    """A random request that Kafka's request class accepts."""
    drawn = Instances(("error form", request.__name__, version, number)).message(request, version)
    make_valid(drawn, version)
    if isinstance(drawn, WriteTxnMarkersRequest):
        for producer_id, marker in enumerate(drawn.markers):
            marker.producer_id = producer_id  # Kafka keeps one marker of each
    return drawn


def make_valid(struct: Struct, version: int) -> None:
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if field.name in VALID and field.present(version):
            setattr(struct, field.name, VALID[field.name])
        elif field.name == "users" and value is None:
            setattr(struct, field.name, [])
        elif field.struct is not None and value is not None:
            for inner in value if field.is_array else [value]:
                make_valid(inner, version)


@pytest.mark.java
@pytest.mark.parametrize("text", ["", "because of this"], ids=["plain", "with text"])
def test_error_forms_are_those_of_kafka(oracle: Oracle, text: str) -> None:
    questions, ours = [], []
    for api in APIS:
        for version in versions_of(api.request):
            for number, code in enumerate(CODES):
                request = sample(api.request, version, number)
                body = code.to_bytes(2, "big", signed=True) + request.encode(version)
                questions.append(Question("e", "", version, body, int(api.key), text))
                ours.append(error_response(request, version, code, text or None))
    wrong = []
    for question, response, answer in zip(questions, ours, oracle.ask(questions), strict=True):
        problem = difference(question, response, answer)
        if problem is not None:
            wrong.append(problem)
    assert not wrong, "\n".join(wrong)


def difference(question: Question, response: Response | None, answer: Answer) -> str | None:
    where = f"{response_class(question.argument).__name__} v{question.version}"
    if answer.refusal is not None:
        return f"{where}: {answer.refusal}"
    if response is None or answer.body is None:
        return None if response is None and answer.body is None else f"{where}: {response} {answer}"
    ours = response.encode(question.version)
    if ours == answer.body:
        return None
    theirs = response_class(question.argument).decode(answer.body, question.version)
    if leaves(type(theirs).decode(ours, question.version)) == leaves(theirs):
        return None
    return f"{where}:\n  ours   {response}\n  theirs {theirs}"


def leaves(struct: Struct, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Every innermost struct with the values of all structs around it.

    That leaves out what Kafka leaves to chance or to its own words: some of its classes gather
    partitions in hash maps first, so order is lost, and so are repetitions; three APIs always send
    Kafka's general text for the error, and ours is another.
    """
    values, inner = list(above), []
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if field.is_array and field.struct is not None and value:
            inner += value
        elif field.name == "error_message" and type(struct).__qualname__ in WITH_OWN_TEXT:
            values.append(f"{field.name} {value is None}")
        else:
            values.append(f"{field.name} {value}")
    if not inner:
        return {tuple(values)}
    return set().union(*(leaves(item, tuple(values)) for item in inner))


WITH_OWN_TEXT = (
    "FindCoordinatorResponse",
    "FindCoordinatorResponse.Coordinator",
    "DescribeConfigsResponse.DescribeConfigsResult",
    "AlterClientQuotasResponse.EntryData",
)


def test_produce_without_acknowledgement_has_no_error_form() -> None:
    assert error_response(ProduceRequest(acks=0), 9, ClusterAuthorizationFailed()) is None
    assert error_response(ProduceRequest(acks=1), 9, ClusterAuthorizationFailed()) is not None


def test_every_request_has_a_form_that_can_be_sent() -> None:
    for api in APIS:
        for version in versions_of(api.request):
            request = ProduceRequest(acks=1) if api.key == 0 else api.request()
            response = error_response(request, version, 31)
            assert isinstance(response, api.response)
            assert response.encode(version)


def test_the_text_of_an_unknown_error_stays_here() -> None:
    from kafkalike.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse

    request = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t")]
    )
    secret = error_response(request, 3, UnknownServerError("secret"))
    told = error_response(request, 3, error_class(42)("bad"))
    assert isinstance(secret, CreatePartitionsResponse) and isinstance(
        told, CreatePartitionsResponse
    )
    assert secret.results[0].error_message is None
    assert told.results[0].error_message == "bad"


def test_api_versions_in_an_unknown_version_lists_itself() -> None:
    response = error_response(ApiVersionsRequest(), 0, UnsupportedVersion())
    assert response is not None
    assert response.encode(0) == bytes.fromhex("0023 00000001 0012 0000 0004")
