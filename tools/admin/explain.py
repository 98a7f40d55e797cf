"""`kafkalike-admin explain TOPIC-PARTITION`: what happened to a partition, told from the journals.

Needs no running cluster: it reads the journals of as many brokers as it is given directories of.
"""

import argparse
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafkalike.broker.journal import JOURNAL, LOSSES, Entry
from kafkalike.types import TopicPartition

from .. import cli
from .journals import add_dir_flag, parse_time, read_history, time_text


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "explain", help="tell a partition's history from the brokers' journals", description=__doc__
    )
    parser.add_argument("partition", metavar="TOPIC-PARTITION", help="for example orders-3")
    add_dir_flag(parser)
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="story until then, and state at it, such as 2024-05-01T12:30:00 (UTC)",
    )
    parser.add_argument(
        "--all", action="store_true", help="also every step of the controller's state machines"
    )
    cli.add_output_flag(parser)


def run(args: argparse.Namespace) -> int:
    partition = parse_partition(args.partition)
    until_ms = None if args.at is None else parse_time("--at", args.at)
    history = read_history(args.dir, JOURNAL, LOSSES)
    if not history.files:
        raise cli.CommandError(f"no journal in or below {', '.join(args.dir)}")
    entries = history.entries
    if until_ms is not None:
        entries = [entry for entry in entries if entry["time_ms"] <= until_ms]
    story = tell(entries, partition, tell_all=args.all)
    if not story:
        raise cli.CommandError(f"the journals say nothing of {partition}")
    state = final_state(entries, partition)
    unreadable = history.unreadable_lines
    if args.output == "json":
        cli.print_json(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "until_ms": until_ms,
                "events": [entry | {"text": text} for entry, text in story],
                "state": state,
                "files": history.files,
                "unreadable_lines": unreadable,
            }
        )
        return cli.DONE
    for entry, text in story:
        print(f"{time_text(entry['time_ms'])}  {text}")
    print()
    _print_state(state, until_ms)
    if unreadable:
        cli.print_error(f"{unreadable} lines could not be read")
    return cli.DONE


def parse_partition(text: str) -> TopicPartition:
    """`orders-3`.  Raises UsageError."""
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not number.isdecimal():
        raise cli.UsageError(f"expected TOPIC-PARTITION such as orders-3, found {text!r}")
    return TopicPartition(topic, int(number))


# -- the story -------------------------------------------------------------------------------------


def tell(
    entries: Iterable[Entry], partition: TopicPartition, *, tell_all: bool = False
) -> list[tuple[Entry, str]]:
    """The entries that matter to the partition, each with a sentence.  Empty: it is not mentioned.

    Other brokers' comings and goings are told from those that ever held it; elections of controllers
    always.
    """
    entries = list(entries)
    own = [entry for entry in entries if _is_about(entry, partition)]
    if not own:
        return []
    brokers = {broker for entry in own for broker in _brokers_of(entry)}
    story = []
    for entry in entries:
        about = _is_about(entry, partition)
        if about and not tell_all and not _is_loud(entry):
            continue
        if about or _is_context(entry, brokers):
            story.append((entry, sentence(entry)))
    return story


def _is_about(entry: Entry, partition: TopicPartition) -> bool:
    if entry.get("topic") != partition.topic:
        return False
    return entry["kind"] == "TopicForgotten" or entry.get("partition") == partition.partition


def _is_context(entry: Entry, brokers: set[int]) -> bool:
    kind = entry["kind"]
    if kind in ("Elected", "Resigned", "RecordsDropped"):
        return True
    if kind == "BrokerSeen":
        return entry.get("broker_id") in brokers and entry.get("cause") != "failover"
    return kind in ("BrokerStarted", "BrokerStopped") and entry["broker"] in brokers


def _is_loud(entry: Entry) -> bool:
    """Told without `--all`: of the steps of state machines only what no other record tells."""
    if entry["kind"] == "LeadershipChanged":
        return not _is_confirmation(entry)
    if entry["kind"] not in ("PartitionMoved", "ReplicaMoved"):
        return True
    states = (str(entry.get("old")), str(entry.get("new")))
    if entry["kind"] == "PartitionMoved":
        return "OFFLINE" in states or states[1] == "NON_EXISTENT"
    return bool({"DELETION_STARTED", "DELETION_SUCCESSFUL"} & set(states))


def _is_confirmation(entry: Entry) -> bool:
    """The same state, written again by another controller."""
    old, new = entry.get("old"), entry.get("new")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return all(old[key] == new.get(key) for key in old if key != "controller_epoch")


def _brokers_of(entry: Entry) -> set[int]:
    found: set[int] = set()
    for state in (entry, entry.get("old"), entry.get("new")):
        if isinstance(state, dict):
            for name in ("isr", "replicas", "adding", "removing"):
                found.update(b for b in state.get(name) or () if isinstance(b, int))
    if entry["kind"] in ("StateChange", "Loss", "LogIsShorter"):
        found.add(entry["broker"])
    return found


def sentence(entry: Entry) -> str:
    """One entry for people; an unknown kind is shown as it is."""
    describe = _SENTENCES.get(entry["kind"])
    try:
        if describe is not None:
            return describe(entry)
    except (KeyError, TypeError, AttributeError):
        pass  # written by another version: shown as it is
    return f"broker {entry['broker']}: {entry}"


def _controller(entry: Entry) -> str:
    return f"controller {entry['broker']} (epoch {entry['controller_epoch']})"


def _leader(broker_id: int) -> str:
    return "none" if broker_id < 0 else str(broker_id)


def _ids(ids: Iterable[int]) -> str:
    return "[" + ",".join(map(str, ids)) + "]"


def _leadership(entry: Entry) -> str:
    old, new = entry["old"], entry["new"]
    if old is None:
        verb = "finds it with" if entry["cause"] == "failover" else "begins with"
        return (
            f"{_controller(entry)}: {verb} leader {_leader(new['leader'])},"
            f" leader epoch {new['leader_epoch']}, ISR {_ids(new['isr'])},"
            f" partition epoch {new['partition_epoch']} ({entry['cause']})"
        )
    changes = []
    if old["leader"] != new["leader"]:
        changes.append(f"leader {_leader(old['leader'])} -> {_leader(new['leader'])}")
    if old["isr"] != new["isr"]:
        changes.append(f"ISR {_ids(old['isr'])} -> {_ids(new['isr'])}")
    for key, name in (("leader_epoch", "leader epoch"), ("partition_epoch", "partition epoch")):
        if old[key] != new[key]:
            changes.append(f"{name} {old[key]} -> {new[key]}")
    text = f"{_controller(entry)}: {', '.join(changes) or 'no change'} ({entry['cause']})"
    if entry["unclean"]:
        text += "; UNCLEAN election: the new leader may lack acknowledged records"
    return text


def _assignment(entry: Entry) -> str:
    old, new = entry["old"], entry["new"]
    text = f"{_controller(entry)}: replicas {_ids(old['replicas'])} -> {_ids(new['replicas'])}"
    if not old["replicas"]:
        text = f"{_controller(entry)}: finds its replicas to be {_ids(new['replicas'])}"
    for key in ("adding", "removing"):
        if new[key]:
            text += f", {key} {_ids(new[key])}"
    return f"{text} ({entry['cause']})"


def _broker_seen(entry: Entry) -> str:
    if entry["old_epoch"] < 0:
        change = f"broker {entry['broker_id']} is here (epoch {entry['new_epoch']})"
    elif entry["new_epoch"] < 0:
        change = f"broker {entry['broker_id']} is gone"
    else:
        change = (
            f"broker {entry['broker_id']} has restarted"
            f" (epoch {entry['old_epoch']} -> {entry['new_epoch']})"
        )
    return f"{_controller(entry)}: {change}"


_CHANGES: Final = {
    "leader": "leads in epoch {leader_epoch}",
    "follower": "follows {leader} in epoch {leader_epoch}",
    "isr": "ISR is {isr} (partition epoch {partition_epoch})",
    "isr-proposed": "asks for ISR {isr} (partition epoch {partition_epoch})",
    "isr-refused": "did not get ISR {isr}",
    "stopped": "stops its replica",
    "closed": "closes its replica in order",
    "deleted": "deletes its replica",
    "offline": "its replica is offline (log directory failed)",
    "truncating": "is about to remove the end of its log",
    "truncated": "has removed the end of its log",
}


def _state_change(entry: Entry) -> str:
    pattern = _CHANGES.get(entry["change"], str(entry["change"]))
    shown = entry | {"isr": _ids(entry["isr"]), "leader": _leader(entry["leader"])}
    return (
        f"broker {entry['broker']}: {pattern.format_map(shown)};"
        f" high watermark {entry['high_watermark']}, log end {entry['log_end_offset']}"
    )


def _loss(entry: Entry) -> str:
    count = entry["end_offset"] - entry["first_offset"]
    if entry["bytes"] is None:
        return (
            f"broker {entry['broker']}: HAS LOST offsets {entry['first_offset']} to"
            f" {entry['end_offset'] - 1} ({count}) before its start, and leads in epoch"
            f" {entry['new_leader_epoch']}"
        )
    return (
        f"broker {entry['broker']}: LOSES offsets {entry['first_offset']} to"
        f" {entry['end_offset'] - 1} ({count}, {entry['bytes']} bytes) below its high watermark,"
        f" written in epochs up to {entry['old_leader_epoch']}, dropped for epoch"
        f" {entry['new_leader_epoch']}"
    )


def _passed_over(entry: Entry) -> str:
    return (
        f"{_controller(entry)}: takes broker {entry['leader']}, a former member of the ISR, instead of"
        f" broker {entry['instead_of']}, whose log is shorter than it was ({entry['cause']})"
    )


def _shorter(entry: Entry) -> str:
    return (
        f"broker {entry['broker']}: HAS LOST the end of its log: it ends at {entry['log_end_offset']},"
        f" its high watermark was {entry['high_watermark']}; it is the whole ISR"
        f" (leader epoch {entry['leader_epoch']})"
    )


def _started(entry: Entry) -> str:
    how = "" if entry["clean"] else " after an unclean stop"
    return f"broker {entry['broker']}: started{how} (epoch {entry['broker_epoch']})"


_SENTENCES: Final[dict[str, Callable[[Entry], str]]] = {
    "Elected": lambda e: (
        f"broker {e['controller_id']} is controller, epoch {e['controller_epoch']}"
    ),
    "Resigned": lambda e: (
        f"broker {e['controller_id']} is no longer controller of epoch {e['controller_epoch']}"
        f" ({e['cause']})"
    ),
    "BrokerSeen": _broker_seen,
    "LeadershipChanged": _leadership,
    "LastReplicaPassedOver": _passed_over,
    "LogIsShorter": _shorter,
    "AssignmentChanged": _assignment,
    "PartitionMoved": lambda e: (
        f"{_controller(e)}: partition {e['old']} -> {e['new']} ({e['cause']})"
    ),
    "ReplicaMoved": lambda e: (
        f"{_controller(e)}: replica on {e['broker_id']} {e['old']} -> {e['new']} ({e['cause']})"
    ),
    "TopicForgotten": lambda e: f"{_controller(e)}: topic {e['topic']} is gone ({e['cause']})",
    "StateChange": _state_change,
    "Loss": _loss,
    "BrokerStarted": _started,
    "BrokerStopped": lambda e: f"broker {e['broker']}: stops in order",
    "RecordsDropped": lambda e: (
        f"broker {e['broker']}: {e['count']} records of its journal are missing here"
    ),
}


# -- the state -------------------------------------------------------------------------------------


def final_state(entries: Iterable[Entry], partition: TopicPartition) -> dict[str, Any]:
    """What was last known: the controllers' leadership and assignment, each broker's own view.

    Leadership is the one of the highest leader epoch, then partition epoch: of the entries of several
    brokers the last one by time need not be the newest.
    """
    leadership: dict[str, Any] | None = None
    replicas: dict[str, Any] | None = None
    brokers: dict[int, dict[str, Any]] = {}
    stopped_ms: dict[int, int] = {}
    for entry in entries:
        if entry["kind"] == "BrokerStopped":
            stopped_ms[entry["broker"]] = entry["time_ms"]
        elif entry["kind"] == "BrokerStarted":
            stopped_ms.pop(entry["broker"], None)
        if not _is_about(entry, partition):
            continue
        kind = entry["kind"]
        if kind == "TopicForgotten":
            leadership = replicas = None
            brokers.clear()
        elif kind == "LeadershipChanged":
            new = entry["new"]
            if leadership is None or _age(new) >= _age(leadership):
                leadership = new
        elif kind == "AssignmentChanged":
            replicas = entry["new"]
        elif kind == "StateChange":
            brokers[entry["broker"]] = {
                "broker": entry["broker"],
                "time_ms": entry["time_ms"],
                "change": entry["change"],
                "leader": entry["leader"],
                "leader_epoch": entry["leader_epoch"],
                "partition_epoch": entry["partition_epoch"],
                "isr": entry["isr"],
                "high_watermark": entry["high_watermark"],
                "log_end_offset": entry["log_end_offset"],
            }
    return {
        "leadership": leadership,
        "assignment": replicas,
        "brokers": [
            brokers[broker] | {"stopped_ms": stopped_ms.get(broker)} for broker in sorted(brokers)
        ],
    }


def _age(state: dict[str, Any]) -> tuple[int, int]:
    return state["leader_epoch"], state["partition_epoch"]


def _print_state(state: dict[str, Any], until_ms: int | None) -> None:
    when = "at the end of the journals" if until_ms is None else f"at {time_text(until_ms)}"
    leadership, assignment = state["leadership"], state["assignment"]
    if leadership is None:
        print(f"State {when}: no controller's record of it")
    else:
        print(
            f"State {when}: leader {_leader(leadership['leader'])},"
            f" leader epoch {leadership['leader_epoch']}, ISR {_ids(leadership['isr'])},"
            f" partition epoch {leadership['partition_epoch']}"
            + ("" if assignment is None else f", replicas {_ids(assignment['replicas'])}")
        )
    if state["brokers"] and all(b["stopped_ms"] is not None for b in state["brokers"]):
        print("Every broker that held it was stopped in order: nobody serves it.")
    if state["brokers"]:
        cli.print_table(
            (
                "BROKER",
                "LAST CHANGE",
                "LEADER",
                "EPOCH",
                "HIGH WATERMARK",
                "LOG END",
                "SINCE",
                "STOPPED IN ORDER",
            ),
            (
                (
                    b["broker"],
                    b["change"],
                    _leader(b["leader"]),
                    b["leader_epoch"],
                    b["high_watermark"],
                    b["log_end_offset"],
                    time_text(b["time_ms"]),
                    "no" if b["stopped_ms"] is None else time_text(b["stopped_ms"]),
                )
                for b in state["brokers"]
            ),
        )
