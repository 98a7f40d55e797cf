"""The target assignment of a whole group, from its members and the topics that exist."""

from collections.abc import Mapping

from .assignors import ASSIGNORS, Subject, Targets, in_java_order
from .consumer_group import ConsumerGroup
from .topics import Topics


def compute(group: ConsumerGroup, assignor: str, topics: Topics) -> Targets:
    """What each member is to own; topics that do not exist are left out."""
    counts: dict[bytes, int] = {}
    ids: dict[str, bytes] = {}
    for topic in group.names:
        topic_id = topics.id_of(topic)
        if topic_id is not None:
            ids[topic] = topic_id
            counts[topic_id] = topics.count(topic)
    subjects = [_subject(group, member_id, ids) for member_id in in_java_order(group.members)]
    return ASSIGNORS[assignor](subjects, counts)


def _subject(group: ConsumerGroup, member_id: str, ids: Mapping[str, bytes]) -> Subject:
    member = group.members[member_id]
    return Subject(
        member_id,
        member.instance_id,
        frozenset(ids[topic] for topic in group.topics_of(member) if topic in ids),
        group.target(member_id),
    )
