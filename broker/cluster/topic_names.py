"""What a topic may be called (reference: broker-errors 2), and which names are the broker's own."""

from typing import Final

from kafkalike.errors import InvalidTopicException

MAX_TOPIC_NAME: Final = 249
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)

_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def is_internal(topic: str) -> bool:
    """Whether only brokers write to the topic."""
    return topic in INTERNAL_TOPICS


def topic_name_problem(topic: str) -> str | None:
    """Why the name is not allowed, or None when it is."""
    if not topic:
        return "Topic name is invalid: the empty string is not allowed"
    if topic in (".", ".."):
        return f"Topic name is invalid: '{topic}' is not allowed"
    if len(topic) > MAX_TOPIC_NAME:
        return f"Topic name has {len(topic)} characters, allowed are {MAX_TOPIC_NAME}"
    if not _LEGAL.issuperset(topic):
        return f"Topic name '{topic}' has a character other than letters, digits, '.', '_', '-'"
    return None


def check_topic_name(topic: str) -> None:
    """Raises InvalidTopicException naming what is wrong."""
    problem = topic_name_problem(topic)
    if problem is not None:
        raise InvalidTopicException(problem)


def has_collision_characters(topic: str) -> bool:
    """Whether another name could differ from this one only in `.` against `_`."""
    return "." in topic or "_" in topic


def collides(one: str, other: str) -> bool:
    """Names that differ only in `.` against `_` share a metric name; one of them must not exist."""
    return one.replace(".", "_") == other.replace(".", "_")
