"""What is asked of Kafka 4.1 and of us about groups of the newer protocol.

Each case is a function of a `Talk` and of a word that no other case uses for its names.
"""

from collections.abc import Callable
from typing import Any, Final

from kafkalike.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafkalike.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
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
from kafkalike.messages.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_versioned,
)

from .talk import Talk

Case = Callable[[Talk, str], None]
CASES: Final[dict[str, Case]] = {}
NO_ID: Final = ""


def case(function: Case) -> Case:
    CASES[function.__name__.removeprefix("case_").replace("_", "-")] = function
    return function


# -- requests that are wrong by themselves -----------------------------------------------------


def _bad(talk: Talk, name: str, version: int) -> None:
    talk.ready(name)
    talk.topic(name)

    def beat(**fields: Any) -> None:
        whole: dict[str, Any] = {
            "group_id": name,
            "member_id": "a",
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": [name],
            "topic_partitions": [],
            **fields,
        }
        talk.ask(ConsumerGroupHeartbeatRequest(**whole), version)

    beat(group_id="")
    beat(group_id="  ")
    beat(member_id=NO_ID, member_epoch=1)
    beat(member_id=NO_ID, member_epoch=-1)
    beat(member_id=NO_ID, member_epoch=-2)
    beat(instance_id="")
    beat(rack_id=" ")
    beat(rebalance_timeout_ms=-1)
    beat(topic_partitions=None)
    part = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=b"\7" * 16, partitions=[0])
    beat(topic_partitions=[part])
    beat(subscribed_topic_names=None)
    beat(member_epoch=-2)
    beat(member_epoch=-3)
    beat(member_epoch=-100)
    beat(server_assignor="roundrobin")
    beat(server_assignor="")
    beat(member_epoch=1)
    beat(member_epoch=-1)
    beat(member_epoch=-2, instance_id="i")
    talk.describe(name, version=version)


@case
def case_bad_requests_v0(talk: Talk, name: str) -> None:
    _bad(talk, name, 0)


@case
def case_bad_requests_v1(talk: Talk, name: str) -> None:
    _bad(talk, name, 1)


@case
def case_member_without_id(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    joined = talk.join(name, NO_ID, name, version=0)
    talk.heartbeat(name, joined.member_id, joined.member_epoch, version=0)
    talk.describe(name, version=0)
    talk.describe(name, "", name + "-other", version=1)
    talk.join(name, NO_ID, name, version=1)
    talk.heartbeat(name, joined.member_id, -1, version=0)


# -- one member --------------------------------------------------------------------------------


@case
def case_one_member(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 3)
    talk.join(name, "a", name)
    talk.heartbeat(name, "a", 1)
    talk.heartbeat(name, "a", 1, owned={name: [0, 1, 2]})
    talk.heartbeat(name, "a", 1, owned={name: [0, 1, 2]}, topics=[name], timeout_ms=60_000)
    talk.describe(name)
    talk.heartbeat(name, "a", 2)
    talk.heartbeat(name, "a", 0)
    talk.heartbeat(name, "a", 0, owned={name: [1]})
    talk.join(name, "a", name)
    talk.heartbeat(name, "b", 1)
    talk.heartbeat(name, "a", -1)
    talk.heartbeat(name, "a", -1)
    talk.heartbeat(name, "a", 1)
    talk.describe(name)
    talk.join(name, "a", name)
    talk.heartbeat(name, "a", 3)
    talk.describe(name)


@case
def case_subscription_changes(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name + "-1", 2)
    talk.topic(name + "-2", 1)
    talk.join(name, "a", name + "-1")
    talk.heartbeat(name, "a", 1, topics=[name + "-1", name + "-2"])
    talk.describe(name)
    talk.heartbeat(name, "a", 2, topics=[name + "-2"])
    talk.describe(name)
    talk.heartbeat(name, "a", 2, owned={name + "-1": [0], name + "-2": [0]})
    talk.heartbeat(name, "a", 2, owned={name + "-2": [0]})
    talk.describe(name)
    talk.heartbeat(name, "a", 3, topics=[])
    talk.heartbeat(name, "a", 3, owned={})
    talk.describe(name)
    talk.heartbeat(name, "a", 4, topics=[name + "-1", name + "-1", name + "-none"])
    talk.describe(name)
    talk.heartbeat(name, "a", 5, rack_id="r", server_assignor="range", timeout_ms=5000)
    talk.describe(name)


@case
def case_nothing_to_read(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.join(name, "a")
    talk.heartbeat(name, "a", 1)
    talk.join(name, "b", name + "-none")
    talk.describe(name)


@case
def case_topic_comes_and_grows(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.join(name, "a", name)
    talk.topic(name, 1)
    _beat_until(talk, name, "a", 1, lambda beaten: beaten.member_epoch == 2)
    talk.heartbeat(name, "a", 2, owned={name: [0]}, topics=[name], timeout_ms=60_000)
    talk.grow(name, 3)
    _beat_until(talk, name, "a", 2, lambda beaten: beaten.member_epoch == 3)
    talk.heartbeat(name, "a", 3, owned={name: [0, 1, 2]}, topics=[name], timeout_ms=60_000)
    talk.describe(name)


@case
def case_topic_goes(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    talk.join(name, "a", name)
    talk.delete_topic(name)
    _beat_until(talk, name, "a", 1, lambda b: b.assignment is not None, owned={name: [0, 1]})
    talk.heartbeat(name, "a", 1, owned={})
    talk.describe(name)


def _beat_until(
    talk: Talk, group: str, member: str, epoch: int, holds: Callable[[Any], bool], **more: Any
) -> None:
    talk.until(lambda: talk.heartbeat(group, member, epoch, keep=False, **more), holds)


# -- several members ---------------------------------------------------------------------------


@case
def case_second_member_waits(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 4)
    talk.join(name, "a", name)
    talk.join(name, "b", name)
    talk.describe(name)
    talk.heartbeat(name, "b", 2, owned={})
    talk.heartbeat(name, "a", 1)
    talk.describe(name)
    talk.heartbeat(name, "a", 1, owned={name: [0, 1, 2, 3]})
    talk.heartbeat(name, "b", 2)
    talk.heartbeat(name, "a", 1, owned={name: [0, 1]})
    talk.describe(name)
    talk.heartbeat(name, "b", 2)
    talk.describe(name)
    talk.heartbeat(name, "a", 1, owned={name: [0, 1]})
    talk.heartbeat(name, "a", 1, owned={name: [0, 1, 2]})
    talk.heartbeat(name, "a", 2)
    talk.heartbeat(name, "b", -1)
    talk.heartbeat(name, "a", 2)
    talk.describe(name)


@case
def case_third_member_while_revoking(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 6)
    talk.join(name, "a", name)
    talk.join(name, "b", name)
    talk.heartbeat(name, "a", 1)
    talk.join(name, "c", name)
    talk.describe(name)
    talk.heartbeat(name, "a", 1, owned={name: [0, 1, 2]})
    talk.heartbeat(name, "b", 2)
    talk.describe(name)
    talk.heartbeat(name, "a", 2, owned={name: [0, 1, 2]})
    talk.heartbeat(name, "a", 2, owned={name: [0, 1]})
    talk.heartbeat(name, "b", 3)
    talk.heartbeat(name, "c", 3)
    talk.describe(name)
    talk.heartbeat(name, "a", -1)
    talk.heartbeat(name, "b", 3)
    talk.heartbeat(name, "c", 3)
    talk.describe(name)


def _settle(talk: Talk, group: str, epochs: dict[str, int]) -> None:
    """Members take every step that they are asked for, until nothing changes."""
    owned: dict[str, dict[str, list[int]]] = {member: {} for member in epochs}
    for _ in range(8):
        for member, epoch in epochs.items():
            beaten = talk.heartbeat(group, member, epoch, owned=owned[member], keep=False)
            assert beaten.error_code == 0, beaten
            epochs[member] = beaten.member_epoch
            if beaten.assignment is not None:
                owned[member] = {
                    talk._topics[bytes(part.topic_id)]: list(part.partitions)
                    for part in beaten.assignment.topic_partitions
                }


def _many(talk: Talk, name: str, assignor: str, sizes: list[int], counts: list[int]) -> None:
    """Groups of each size read topics with so many partitions."""
    talk.ready(name)
    topics = [f"{name}-{number}" for number in range(len(counts))]
    for topic, count in zip(topics, counts, strict=True):
        talk.topic(topic, count)
    for size in sizes:
        group = f"{name}-{size}"
        talk.ready(group)
        for number in range(size):
            talk.join(group, f"m{number}", *topics, server_assignor=assignor, keep=False)
        talk.describe(group)


@case
def case_range_assignor(talk: Talk, name: str) -> None:
    _many(talk, name, "range", [1, 2, 3, 5], [7, 2, 1])


@case
def case_uniform_assignor_one_topic(talk: Talk, name: str) -> None:
    _many(talk, name, "uniform", [1, 2, 3, 4, 7], [6])


@case
def case_range_mixed(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name + "-1", 5)
    talk.topic(name + "-2", 4)
    talk.join(name, "a", name + "-1", server_assignor="range")
    talk.join(name, "b", name + "-1", name + "-2", server_assignor="range")
    talk.join(name, "c", name + "-2", server_assignor="range", instance_id="z")
    talk.join(name, "d", name + "-2", server_assignor="range", instance_id="y")
    talk.describe(name)


@case
def case_uniform_mixed(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name + "-1", 6)
    talk.topic(name + "-2", 2)
    talk.join(name, "a", name + "-1")
    talk.join(name, "b", name + "-1", name + "-2")
    epochs = {"a": 1, "b": 2}
    _settle(talk, name, epochs)
    talk.describe(name)


@case
def case_assignors_are_voted_for(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    talk.join(name, "a", name)
    talk.join(name, "b", name, server_assignor="range")
    talk.describe(name)
    talk.join(name, "c", name, server_assignor="uniform")
    talk.join(name, "d", name, server_assignor="uniform")
    talk.describe(name)


# -- static members ----------------------------------------------------------------------------


@case
def case_static_member(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    talk.join(name, "a", name, instance_id="i")
    talk.heartbeat(name, "a", 1, instance_id="i")
    talk.join(name, "b", name, instance_id="i")
    talk.heartbeat(name, "b", 1, instance_id="i")
    talk.heartbeat(name, "a", 1, instance_id="other")
    talk.heartbeat(name, "a", -2, instance_id="other")
    talk.heartbeat(name, "b", -2, instance_id="i")
    talk.heartbeat(name, "a", -2, instance_id="i")
    talk.describe(name)
    talk.heartbeat(name, "a", 1, instance_id="i")
    talk.join(name, "b", name, instance_id="i")
    talk.describe(name)
    talk.heartbeat(name, "a", 1, instance_id="i")
    talk.heartbeat(name, "b", 1, instance_id="i")
    talk.heartbeat(name, "b", 1)
    talk.heartbeat(name, "b", -1, instance_id="i")
    talk.describe(name)


@case
def case_static_member_comes_back_under_its_id(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    talk.join(name, "a", name, instance_id="i")
    talk.heartbeat(name, "a", -2, instance_id="i")
    talk.join(name, "a", name, instance_id="i")
    talk.describe(name)
    talk.heartbeat(name, "a", 1, instance_id="i")


@case
def case_static_member_comes_back_with_other_topics(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name + "-1", 2)
    talk.topic(name + "-2", 2)
    talk.join(name, "a", name + "-1", instance_id="i")
    talk.join(name, "b", name + "-1", instance_id="j")
    epochs = {"a": 1, "b": 2}
    _settle(talk, name, epochs)
    talk.heartbeat(name, "a", -2, instance_id="i")
    talk.heartbeat(name, "b", epochs["b"])
    talk.join(name, "c", name + "-2", instance_id="i")
    talk.describe(name)
    talk.heartbeat(name, "b", epochs["b"])
    talk.describe(name)


# -- regular expressions -----------------------------------------------------------------------

PATTERNS: Final = (
    "(", ")", "[a", "a**", "a*+", "*a", "a|*", "(*a)", "a{2,1}", "a{1001}", "a{2", "a{,3}",
    "a{99999999999}", "\\", "\\8", "\\1", "\\07", "\\x4", "\\x{110000}", "\\x{41}", "\\q", "\\_",
    "\\-", "\\C", "\\Z", "\\z", "(?<n>a)(?<n>b)", "(?P<n>a)", "(?P<n", "(?<1>a)", "(?<a-b>c)",
    "(?=a)", "(?!a)", "(?<=a)", "(?:a", "(?i)a", "(?i:a)", "(?x)a", "(?i", "(?-i)a", "(?i-s:a)",
    "(?-)a", "(?i-)a", "(?)a", "(?is-mU:a)", "[b-a]", "[]a]", "[^]a]", "[a-]", "[-a]", "[a-\\d]",
    "[[:alpha:]]", "[[:^alpha:]]", "[[:foo:]]", "[[:alpha]", "\\pL", "\\pX", "\\p{Lu}", "\\p{^Lu}",
    "\\p{Greek}", "\\p{Foo}", "\\p{", "\\p", "\\PN", "[\\pL]", "[\\p{Foo}]", "\\Q(\\E", "\\Qa",
    "a??", "a+?", "a{1,2}?", "(a*)*", "((a)|b)", "^*", "\\b*", "(?i)*", "a(?i)*", "", "|", "()",
    "a\\Qb*\\E*", "{", "a{", "{1}", "a{0}", "a{1}{2}", "[\\", "[\\x]", "(?'n'a)", "(?#c)a", "a++",
    "\\h", "\\A", "[[a]",
)  # fmt: skip


@case
def case_patterns_that_are_taken(talk: Talk, name: str) -> None:
    for number, pattern in enumerate(PATTERNS):
        group = f"{name}-{number}"
        talk.ready(group)
        talk.join(group, "a", topics=None, subscribed_topic_regex=pattern)


MATCHING: Final = (
    "X.*", "X-[ab]", "X-(a|c)", "X-[^a]", "(?i)x-A", "X-\\w", "X-.{1,2}", "X-[[:lower:]]+",
    "X-a|X-b", "-a", "^X-a$", "X\\-\\pL", "X-\\Qa\\E", "X-a\\b", "X-\\Ba", "X-ab?", "(?P<n>X)-b",
    "X-[[:^alpha:]]", "X-\\d", "X-[_.]x?",
)  # fmt: skip


@case
def case_patterns_match_topics(talk: Talk, name: str) -> None:
    word = name.replace("-", "")
    for suffix in ("-a", "-b", "-ab", "-1", "-.", "-_x", "-always"):
        talk.topic(word + suffix, 1)
    for number, pattern in enumerate(MATCHING):
        group = f"{name}-{number}"
        talk.ready(group)
        pattern = pattern.replace("X", word).replace("(?i)x", f"(?i){word.upper()}")
        pattern = f"(?:{pattern})|{word}-always"
        talk.join(group, "a", topics=None, subscribed_topic_regex=pattern, keep=False)
    for number, _ in enumerate(MATCHING):
        _beat_until(talk, f"{name}-{number}", "a", 1, lambda b: b.member_epoch != 1)
        talk.heartbeat(f"{name}-{number}", "a", 2, owned={}, topics=[], timeout_ms=1000)


@case
def case_pattern_beside_names(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name + "-1", 1)
    talk.topic(name + "-2", 1)
    pattern = f"{name}-[0-9]"
    talk.join(name, "a", topics=None, subscribed_topic_regex=pattern)
    _beat_until(talk, name, "a", 1, lambda beaten: beaten.member_epoch == 2)
    talk.describe(name)
    talk.join(name, "b", topics=[], subscribed_topic_regex=pattern)
    talk.outline(name)
    talk.join(name, "c", name + "-1", subscribed_topic_regex="")
    talk.outline(name)
    talk.heartbeat(name, "b", 3, subscribed_topic_regex="", topics=[name + "-2"], keep=False)
    talk.outline(name)
    talk.heartbeat(name, "a", -1)
    talk.outline(name)


# -- administration ----------------------------------------------------------------------------


def _listed(talk: Talk, name: str, **filters: list[str]) -> None:
    answer = talk.quietly(ListGroupsRequest(**filters), 5)
    talk.said.append(
        sorted(
            [g.group_id, g.protocol_type, g.group_state, g.group_type]
            for g in answer.groups
            if g.group_id.startswith(name)
        )
    )


@case
def case_lists(talk: Talk, name: str) -> None:
    talk.topic(name, 1)
    for suffix in ("-stable", "-empty", "-reconciling", "-classic"):
        talk.ready(name + suffix)
    for suffix in ("-stable", "-empty", "-reconciling"):
        talk.join(name + suffix, "a", name, keep=False)
    talk.heartbeat(name + "-empty", "a", -1, keep=False)
    talk.topic(name + "-2", 1)
    talk.heartbeat(name + "-reconciling", "a", 1, topics=[name + "-2"], keep=False)
    classic = _Classic(talk, name + "-classic")
    classic.join("c", name, keep=False)
    _listed(talk, name)
    for states in (["stable"], ["Stable", "empty"], ["RECONCILING"], ["assigning"], ["none"]):
        _listed(talk, name, states_filter=states)
    for types in (["consumer"], ["Classic"], ["consumer", "classic"], ["none"]):
        _listed(talk, name, types_filter=types)
    _listed(talk, name, types_filter=["consumer"], states_filter=["Empty"])
    groups = [name + suffix for suffix in ("-stable", "-empty", "-none")]
    for version in (0, 5):
        talk.ask(DescribeGroupsRequest(groups=groups), version)
    talk.describe(name + "-classic", name + "-empty", name + "-none")


@case
def case_deletion(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 1)
    talk.join(name, "a", name)
    _commit(talk, name, "a", 1, 5)
    talk.ask(DeleteGroupsRequest(groups_names=[name]), 2)
    talk.heartbeat(name, "a", -1)
    talk.ask(DeleteGroupsRequest(groups_names=[name, name + "-none"]), 2)
    talk.ask(DeleteGroupsRequest(groups_names=[name]), 2)
    talk.describe(name)
    _fetch(talk, name)


INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION: Final = "consumer.session.timeout.ms"


def _show_configs(talk: Talk, group: str) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=32, resource_name=group, configuration_keys=[INTERVAL, SESSION]
    )
    answer = talk.quietly(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    result = answer.results[0]
    talk.said.append(
        [
            result.error_code,
            sorted(
                [
                    config.name,
                    config.value,
                    config.config_source,
                    config.config_type,
                    config.read_only,
                    [[s.name, s.value, s.source] for s in config.synonyms],
                ]
                for config in result.configs
            ),
        ]
    )


def _set_config(talk: Talk, group: str, name: str, value: str | None, operation: int = 0) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name=name, value=value, config_operation=operation)
    asked = resource(resource_type=32, resource_name=group, configs=[change])
    answer = talk.quietly(IncrementalAlterConfigsRequest(resources=[asked]), 1)
    talk.said.append([name, value, answer.responses[0].error_code])


@case
def case_settings_of_a_group(talk: Talk, name: str) -> None:
    talk.ready(name)
    _show_configs(talk, name)
    talk.join(name, "a")
    _set_config(talk, name, INTERVAL, "6000")
    _beat_until(talk, name, "a", 1, lambda beaten: beaten.heartbeat_interval_ms == 6000)
    talk.heartbeat(name, "a", 1)
    _show_configs(talk, name)
    for value in ("4999", "15001", "soon", "0", "-1"):
        _set_config(talk, name, INTERVAL, value)
    for value in ("44999", "60001", "60000"):
        _set_config(talk, name, SESSION, value)
    _set_config(talk, name, "consumer.unknown", "1")
    _set_config(talk, name, INTERVAL, "1", operation=2)
    _set_config(talk, "", INTERVAL, "6000")
    _set_config(talk, name, INTERVAL, None, operation=1)
    _beat_until(talk, name, "a", 1, lambda beaten: beaten.heartbeat_interval_ms == 5000)
    _show_configs(talk, name)
    _show_configs(talk, "")


# -- offsets -----------------------------------------------------------------------------------


def _commit(
    talk: Talk,
    group: str,
    member: str,
    epoch: int,
    offset: int,
    *,
    version: int = 9,
    topic: str | None = None,
    instance: str | None = None,
) -> None:
    topics = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topics.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    talk.ask(
        OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            group_instance_id=instance,
            topics=[topics(name=topic or group, partitions=[partition])],
        ),
        version,
    )


def _fetch(talk: Talk, group: str, member: str | None = None, epoch: int = -1) -> None:
    one = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = one.OffsetFetchRequestTopics(name=group, partition_indexes=[0])
    for topics in (None, [topic]):
        asked = one(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
        talk.ask(OffsetFetchRequest(groups=[asked]), 9)


@case
def case_commits(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 1)
    talk.join(name, "a", name)
    _commit(talk, name, "a", 1, 1)
    _commit(talk, name, "a", 0, 2)
    _commit(talk, name, "a", 2, 2)
    _commit(talk, name, "a", -1, 2)
    _commit(talk, name, "b", 1, 2)
    _commit(talk, name, "", -1, 2)
    _commit(talk, name, "", 1, 2)
    for version in (2, 8):
        _commit(talk, name, "a", 1, 3, version=version)
    _fetch(talk, name)
    _fetch(talk, name, "a", 1)
    _fetch(talk, name, "a", 0)
    _fetch(talk, name, "a", 7)
    _fetch(talk, name, "b", 1)
    _fetch(talk, name, "a", -1)
    talk.heartbeat(name, "a", -1)
    _commit(talk, name, "a", 1, 4)
    _commit(talk, name, "", -1, 5)
    _commit(talk, name, "", -1, 6, version=8)
    _fetch(talk, name)
    _fetch(talk, name, "a", 1)


@case
def case_commits_to_no_group(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 1)
    _commit(talk, name, "a", 1, 1)
    _commit(talk, name, "a", 1, 1, version=8)
    _fetch(talk, name, "a", 1)
    _commit(talk, name, "", -1, 1)
    talk.join(name, "a", name)
    _fetch(talk, name, "a", 1)
    _listed(talk, name)


@case
def case_offset_deletion(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 1)
    talk.topic(name + "-2", 1)
    talk.join(name, "a", name)
    _commit(talk, name, "a", 1, 1)
    _commit(talk, name, "a", 1, 1, topic=name + "-2")
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition(
                    partition_index=0
                )
            ],
        )
        for topic in (name, name + "-2")
    ]
    talk.ask(OffsetDeleteRequest(group_id=name, topics=topics), 0)
    _fetch(talk, name)
    talk.heartbeat(name, "a", -1)
    talk.ask(OffsetDeleteRequest(group_id=name, topics=topics), 0)
    _fetch(talk, name)


# -- both protocols in one group ---------------------------------------------------------------


class _Classic:
    """Members of the classic protocol in one group."""

    def __init__(self, talk: Talk, group: str) -> None:
        self.talk = talk
        self.group = group
        self.ids: dict[str, str] = {}
        self.generation = -1

    def join(
        self,
        who: str,
        *topics: str,
        owned: dict[str, list[int]] | None = None,
        instance: str | None = None,
        kind: str = "consumer",
        protocols: tuple[str, ...] = ("range",),
        metadata: bytes | None = None,
        keep: bool = True,
    ) -> Any:
        talk = self.talk
        said = ConsumerProtocolSubscription(
            topics=list(topics),
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in (owned or {}).items()
            ],
        )
        data = encode_versioned(said, 1) if metadata is None else metadata

        def request() -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                member_id=self.ids.get(who, ""),
                group_instance_id=instance,
                protocol_type=kind,
                protocols=[
                    JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data)
                    for name in protocols
                ],
            )

        answer = (talk.ask if keep else talk.quietly)(request(), 9)
        if answer.error_code == 79:
            self.ids[who] = answer.member_id
            answer = (talk.ask if keep else talk.quietly)(request(), 9)
        if answer.error_code == 0:
            self.ids[who] = answer.member_id
            self.generation = answer.generation_id
        return answer

    def sync(
        self,
        who: str,
        assignments: dict[str, dict[str, list[int]]] | None = None,
        *,
        generation: int | None = None,
        name: str | None = "range",
        user_data: bytes | None = None,
        instance: str | None = None,
        keep: bool = True,
    ) -> Any:
        part = ConsumerProtocolAssignment.TopicPartition
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.ids.get(who, who),
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=self.ids.get(member, member),
                    assignment=encode_versioned(
                        ConsumerProtocolAssignment(
                            assigned_partitions=[
                                part(topic=topic, partitions=numbers)
                                for topic, numbers in assigned.items()
                            ],
                            user_data=user_data,
                        ),
                        1,
                    ),
                )
                for member, assigned in (assignments or {}).items()
            ],
        )
        return (self.talk.ask if keep else self.talk.quietly)(request, 5)

    def beat(self, who: str, *, generation: int | None = None, instance: str | None = None) -> Any:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.ids.get(who, who),
            group_instance_id=instance,
        )
        return self.talk.ask(request, 4)

    def leave(self, *who: str, instance: str | None = None) -> Any:
        members = [
            LeaveGroupRequest.MemberIdentity(
                member_id=self.ids.get(one, one), group_instance_id=instance
            )
            for one in who
        ]
        return self.talk.ask(LeaveGroupRequest(group_id=self.group, members=members), 5)

    def stable(self, topic: str, partitions: list[int]) -> None:
        self.join("c", topic, keep=False)
        self.sync("c", {"c": {topic: partitions}}, keep=False)


@case
def case_upgrade(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 4)
    classic = _Classic(talk, name)
    classic.stable(name, [0, 1, 2, 3])
    _commit(talk, name, classic.ids["c"], 1, 7)
    talk.join(name, "n", name)
    talk.describe(name)
    _listed(talk, name)
    _commit(talk, name, classic.ids["c"], 1, 8)
    _fetch(talk, name, classic.ids["c"], 0)
    classic.beat("c")
    classic.beat("c", generation=0)
    classic.beat("x")
    classic.beat("n")
    classic.sync("c")
    classic.join("c", name, owned={name: [0, 1, 2, 3]})
    talk.describe(name)
    classic.beat("c")
    classic.sync("c", name="roundrobin")
    classic.sync("c", generation=7)
    classic.sync("c")
    classic.join("c", name, owned={name: [0, 1]})
    talk.describe(name)
    classic.sync("c")
    classic.beat("c")
    talk.heartbeat(name, "n", 2)
    talk.describe(name)
    _commit(talk, name, classic.ids["c"], 2, 9, version=8)
    _commit(talk, name, classic.ids["c"], 1, 9)
    _fetch(talk, name)
    talk.heartbeat(name, "n", -1)
    _listed(talk, name)
    talk.describe(name)
    classic.beat("c")


@case
def case_upgrade_then_classic_leaves(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    classic = _Classic(talk, name)
    classic.stable(name, [0, 1])
    talk.join(name, "n", name)
    classic.leave("x")
    classic.leave("c", "c")
    talk.heartbeat(name, "n", 2)
    talk.describe(name)
    _listed(talk, name)


@case
def case_classic_joins_newer(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    talk.join(name, "n", name)
    classic = _Classic(talk, name)
    classic.join("d", name, kind="connect")
    classic.join("d", name, protocols=())
    classic.join("c", name)
    talk.describe(name)
    classic.sync("c")
    classic.join("d", name, protocols=("sticky",))
    classic.join("e", name, protocols=("sticky", "range"))
    classic.beat("c")
    talk.heartbeat(name, "n", 1, owned={name: [0, 1]})
    talk.heartbeat(name, "n", 1, owned={name: [0]})
    classic.join("c", name)
    classic.sync("c")
    classic.beat("c")
    talk.describe(name)
    classic.leave("c")
    talk.describe(name)


@case
def case_upgrade_while_rebalancing(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    classic = _Classic(talk, name)
    classic.join("c", name)
    talk.join(name, "n", name)
    classic.sync("c", {"c": {name: [0, 1]}})
    classic.beat("c")
    classic.join("c", name)
    classic.sync("c")
    talk.describe(name)


@case
def case_upgrade_of_others(talk: Talk, name: str) -> None:
    talk.topic(name, 2)
    for suffix in ("-connect", "-custom", "-malformed", "-gone", "-left"):
        talk.ready(name + suffix)
    connect = _Classic(talk, name + "-connect")
    connect.join("c", name, kind="connect", keep=False)
    talk.join(name + "-connect", "n", name)
    custom = _Classic(talk, name + "-custom")
    custom.join("c", name, keep=False)
    custom.sync("c", {"c": {name: [0]}}, user_data=b"x", keep=False)
    talk.join(name + "-custom", "n", name)
    talk.heartbeat(name + "-custom", "n", 1)
    malformed = _Classic(talk, name + "-malformed")
    malformed.join("c", metadata=b"\0\1\0", keep=False)
    talk.join(name + "-malformed", "n", name)
    talk.heartbeat(name + "-malformed", "n", -1)
    left = _Classic(talk, name + "-left")
    left.stable(name, [0, 1])
    left.leave("c")
    talk.join(name + "-left", "n", name)
    _listed(talk, name)


@case
def case_static_upgrade_and_back(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    classic = _Classic(talk, name)
    classic.join("c", name, instance="i")
    classic.sync("c", {"c": {name: [0, 1]}}, instance="i")
    talk.join(name, "n", name, instance_id="i")
    talk.describe(name)
    _listed(talk, name)
    talk.heartbeat(name, "n", 2, instance_id="i")
    classic.beat("c", instance="i")
    back = _Classic(talk, name)
    back.join("c", name, instance="i", owned={name: [0, 1]})
    _listed(talk, name)
    talk.describe(name)
    back.sync("c", instance="i")
    back.beat("c", instance="i")
    talk.heartbeat(name, "n", 2, instance_id="i")


@case
def case_static_beside_others(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 4)
    talk.join(name, "n", name)
    talk.join(name, "s", name, instance_id="i")
    talk.heartbeat(name, "n", 1, owned={name: [0, 1]})
    talk.heartbeat(name, "s", 2, instance_id="i")
    classic = _Classic(talk, name)
    classic.join("c", name, instance="i")
    classic.sync("c", instance="i")
    talk.describe(name)
    talk.heartbeat(name, "s", 2, instance_id="i")
    classic.leave("", instance="i")
    talk.describe(name)


@case
def case_empty_groups_change_sides(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 1)
    talk.join(name, "n", name)
    talk.heartbeat(name, "n", -1)
    classic = _Classic(talk, name)
    classic.sync("n", generation=1)
    classic.beat("n", generation=1)
    classic.leave("n")
    classic.join("c", name)
    classic.sync("c", {"c": {name: [0]}})
    _listed(talk, name)
    classic.leave("c")
    talk.heartbeat(name, "n", 2)
    talk.join(name, "n", name)
    _listed(talk, name)
    talk.describe(name)


# -- requests that are odd ---------------------------------------------------------------------


@case
def case_owned_in_parts(talk: Talk, name: str) -> None:
    """What a member says of itself may be cut up, repeated, or of nothing that there is."""
    talk.ready(name)
    talk.topic(name, 4)
    talk.join(name, "a", name)
    part = ConsumerGroupHeartbeatRequest.TopicPartitions
    topic_id = talk.topic_id(name)
    for owned in (
        [part(topic_id=topic_id, partitions=[0, 1]), part(topic_id=topic_id, partitions=[2, 3])],
        [part(topic_id=topic_id, partitions=[0, 0])],
        [part(topic_id=topic_id, partitions=[-1])],
        [part(topic_id=b"\0" * 16, partitions=[0])],
        [part(topic_id=topic_id, partitions=[])],
    ):
        request = ConsumerGroupHeartbeatRequest(
            group_id=name,
            member_id="a",
            member_epoch=1,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[name],
            topic_partitions=owned,
        )
        talk.ask(request, 1)
    talk.describe(name)


@case
def case_names_that_cannot_be(talk: Talk, name: str) -> None:
    talk.ready(name)
    for topic in ("", "a b", "x" * 300, ".", "__consumer_offsets"):
        talk.join(name, "a", topic)
    talk.join(name, "b", name, timeout_ms=0)
    talk.join(name, "c" * 3000, name)
    talk.describe(name)


@case
def case_described_twice_or_not_at_all(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.describe("")
    talk.describe(name, name, "")
    talk.describe()


@case
def case_classic_members_that_err(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 2)
    talk.join(name, "a", name)
    classic = _Classic(talk, name)
    classic.join("x", name, protocols=())
    classic.join("y", name, kind="")
    classic.join("x", name)
    classic.join("x", name)
    known = classic.ids["x"]

    def sync(member: str, generation: int, kind: str = "consumer", protocol: str = "range") -> None:
        talk.ask(
            SyncGroupRequest(
                group_id=name,
                generation_id=generation,
                member_id=member,
                protocol_type=kind,
                protocol_name=protocol,
            ),
            5,
        )

    for generation in (-1, 0, 2, 3, 99):
        sync(known, generation)
    sync(known, 2, "other")
    sync(known, 2, "consumer", "other")
    for member in ("a", "nobody", ""):
        sync(member, 1)
    for member, generation in ((known, 2), (known, 9), ("a", 1), ("nobody", 1), ("", 1)):
        request = HeartbeatRequest(group_id=name, generation_id=generation, member_id=member)
        talk.ask(request, 4)
    one = LeaveGroupRequest.MemberIdentity
    leaving = [one(member_id="nobody"), one(group_instance_id="i"), one(member_id="a"), one()]
    talk.ask(LeaveGroupRequest(group_id=name, members=leaving), 5)
    talk.ask(LeaveGroupRequest(group_id=name), 5)


@case
def case_commits_of_static_members(talk: Talk, name: str) -> None:
    talk.ready(name)
    talk.topic(name, 1)
    talk.join(name, "a", name, instance_id="i")
    for member, epoch, instance in (
        ("a", 1, "j"), ("a", 1, "i"), ("", -1, "i"), ("", 1, "i"),
    ):  # fmt: skip
        _commit(talk, name, member, epoch, 1, instance=instance)
    talk.heartbeat(name, "a", -2, instance_id="i")
    _commit(talk, name, "a", 1, 1, instance="i")
    _commit(talk, name, "a", -2, 1, instance="i")
    _fetch(talk, name, "a", -2)
    _fetch(talk, name, "a", 1)
