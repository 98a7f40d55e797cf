"""Writes docs/protocol.md from the catalog: `python -m kafkalike.tools.docs_protocol`.

A test keeps the file equal to what this renders.
"""

import inspect
import pathlib

from kafkalike.messages import stored
from kafkalike.messages.catalog import APIS, Api
from kafkalike.protocol.struct import Message

TARGET = pathlib.Path(__file__).resolve().parent.parent / "docs" / "protocol.md"

_HEAD = """\
# The wire protocol

<!-- Written by tools/docs_protocol.py from kafkalike/messages/catalog.py; do not edit. -->

What a broker serves: {count} APIs, every version from 0 on, as a Kafka 3.9 broker in ZooKeeper mode.
The class bodies in `kafkalike/messages/` are the wire tables; `kafkalike/protocol/struct.py` says how
to read them.  Flexible versions (KIP-482) use compact lengths and tagged fields.

Callers: "brokers" needs ClusterAction on the cluster.  "clients, forwardable" is what a broker
under a KRaft controller would wrap in Envelope; here it answers itself or says NOT_CONTROLLER.

| key | API | versions | flexible from | file | callers | request | response |
|---:|---|---|---:|---|---|---|---|
"""

_STORED = """
## Stored messages

Keys and values of records in internal topics, and the consumer protocol, in
`kafkalike/messages/stored.py`; each follows its version in two bytes.

| message | versions | flexible from | what |
|---|---|---:|---|
"""


def render() -> str:
    """The whole document."""
    rows = "".join(_row(api) for api in APIS)
    kept = "".join(
        f"| {cls.__name__} | {_versions(cls)} | {_flexible(cls)} | {_summary(cls)} |\n"
        for _, cls in inspect.getmembers(stored, inspect.isclass)
        if issubclass(cls, Message) and cls.__module__ == stored.__name__
    )
    return _HEAD.format(count=len(APIS)) + rows + _STORED + kept


def _row(api: Api) -> str:
    callers = "brokers" if api.cluster_action else "clients"
    if api.forwardable:
        callers += ", forwardable"
    return (
        f"| {int(api.key)} | {api.name} | {_versions(api.request)} | {_flexible(api.request)}"
        f" | `{api.request.__module__.rpartition('.')[2]}` | {callers}"
        f" | {_summary(api.request)} | {_summary(api.response)} |\n"
    )


def _versions(message: type[Message]) -> str:
    low, high = message.min_version, message.max_version
    return str(low) if low == high else f"{low}-{high}"


def _flexible(message: type[Message]) -> str:
    return "-" if message.flexible_since is None else str(message.flexible_since)


def _summary(message: type[Message]) -> str:
    """First paragraph of the docstring on one line."""
    text = (inspect.getdoc(message) or "").split("\n\n", maxsplit=1)[0]
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    TARGET.write_text(render())
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
