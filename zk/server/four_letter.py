"""The four-letter words: what an operator asks with `echo srvr | nc host port`.

Texts have ZooKeeper's layout, since tools and client libraries read them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .connection import ClientConnection
from .tree import CoordinationTree

VERSION: Final = "3.8.4-kafkalike, built on 2024-02-12 22:16 UTC"
"""The ZooKeeper release whose behaviour is followed; clients read the number from here."""

WORDS: Final = frozenset({"ruok", "srvr", "mntr", "envi", "stat", "cons", "wchs", "conf", "isro"})


@dataclass(slots=True)
class Latency:
    """Milliseconds from a request's arrival to its answer's leaving, since the start."""

    least: int = 0
    total: int = 0
    most: int = 0
    count: int = 0

    def add(self, ms: int) -> None:
        self.least = ms if self.count == 0 else min(self.least, ms)
        self.most = max(self.most, ms)
        self.total += ms
        self.count += 1

    def average(self) -> float:
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True, frozen=True)
class ServerFacts:
    """What the answers are made from."""

    tree: CoordinationTree
    connections: Sequence[ClientConnection]
    latency: Latency
    packets_received: int
    packets_sent: int
    held_answers: int
    settings: dict[str, object]


def answer(word: str, facts: ServerFacts) -> str:
    """The text for one of `WORDS`."""
    if word == "ruok":
        return "imok"
    if word == "isro":
        return "rw"
    if word == "envi":
        return f"Environment:\nzookeeper.version={VERSION}\nserver.implementation=kafkalike\n"
    if word == "conf":
        return "".join(f"{key}={value}\n" for key, value in facts.settings.items())
    if word == "wchs":
        return _watches(facts.tree)
    if word == "cons":
        return "".join(f" {_connection(c)}\n" for c in facts.connections) + "\n"
    if word == "mntr":
        return _monitoring(facts)
    if word == "stat":
        clients = "".join(f" {_connection(c, brief=True)}\n" for c in facts.connections)
        return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{_statistics(facts)}"
    return f"Zookeeper version: {VERSION}\n{_statistics(facts)}"


def _statistics(facts: ServerFacts) -> str:
    latency = facts.latency
    return (
        f"Latency min/avg/max: {latency.least}/{latency.average():.1f}/{latency.most}\n"
        f"Received: {facts.packets_received}\n"
        f"Sent: {facts.packets_sent}\n"
        f"Connections: {len(facts.connections)}\n"
        f"Outstanding: {facts.held_answers}\n"
        f"Zxid: {facts.tree.zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {len(facts.tree.nodes)}\n"
    )


def _watches(tree: CoordinationTree) -> str:
    tables = (tree.data_watches, tree.child_watches)
    callers = {id(caller) for table in tables for caller in table.by_caller}
    paths = {path for table in tables for path in table.by_path}
    return f"{len(callers)} connections watching {len(paths)} paths\nTotal watches:{_count(tree)}\n"


def _count(tree: CoordinationTree) -> int:
    tables = (tree.data_watches, tree.child_watches)
    return sum(len(callers) for table in tables for callers in table.by_path.values())


def _connection(connection: ClientConnection, *, brief: bool = False) -> str:
    c = connection
    interest = 0 if c.caller is None else 1
    text = f"/{c.host}:{c.port}[{interest}](queued=0,recved={c.received},sent={c.sent}"
    if brief or c.caller is None:
        return text + ")"
    return (
        f"{text},sid={c.caller.session_id:#x},lop={c.last_op},est={c.established_ms},"
        f"to={c.timeout_ms},lcxid={c.last_xid & 0xFFFFFFFF:#x},lzxid={c.last_zxid:#x})"
    )


def _monitoring(facts: ServerFacts) -> str:
    tree, latency = facts.tree, facts.latency
    ephemerals = sum(len(session.ephemerals) for session in tree.sessions.values())
    data_bytes = sum(len(path) + len(node.data or b"") for path, node in tree.nodes.items())
    values: dict[str, object] = {
        "zk_version": VERSION,
        "zk_server_state": "standalone",
        "zk_min_latency": latency.least,
        "zk_avg_latency": f"{latency.average():.4f}",
        "zk_max_latency": latency.most,
        "zk_packets_received": facts.packets_received,
        "zk_packets_sent": facts.packets_sent,
        "zk_num_alive_connections": len(facts.connections),
        "zk_outstanding_requests": facts.held_answers,
        "zk_znode_count": len(tree.nodes),
        "zk_watch_count": _count(tree),
        "zk_ephemerals_count": ephemerals,
        "zk_approximate_data_size": data_bytes,
        "zk_global_sessions": len(tree.sessions),
    }
    return "".join(f"{key}\t{value}\n" for key, value in values.items())
