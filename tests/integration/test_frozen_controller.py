"""What a broker does that was frozen past the end of its session, on an ensemble of three ZooKeepers.

The whole tree is compared: data, version and mzxid of every znode before and after it wakes up.
"""

import contextlib
import json
import random
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalike.types import uuid_to_text
from tests.integration import clients
from tests.integration.brokers import SESSION_TIMEOUT_MS, BrokerCluster, BrokerProcess, eventually
from tests.integration.zookeeper import ZooKeeperEnsemble

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

SESSION_S = SESSION_TIMEOUT_MS / 1000
QUIET_S = 2.0


class Znode(NamedTuple):
    data: bytes
    version: int
    mzxid: int
    owner: int


Tree = dict[str, Znode]


def tree_of(client: Any) -> Tree:
    """Every znode below the chroot."""
    found: Tree = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        try:
            data, stat = client.get(path)
            children = client.get_children(path)
        except NoNodeError:
            continue
        found[path] = Znode(data or b"", stat.version, stat.mzxid, stat.ephemeralOwner)
        waiting.extend(f"{path.rstrip('/')}/{child}" for child in children)
    return found


def settled_tree(client: Any) -> Tree:
    """The tree once it has not changed for a while."""
    tree, since_s = tree_of(client), time.monotonic()
    deadline = since_s + 60
    while time.monotonic() - since_s < QUIET_S:
        assert time.monotonic() < deadline, "the tree does not come to rest"
        time.sleep(0.2)
        now = tree_of(client)
        if now != tree:
            tree, since_s = now, time.monotonic()
    return tree


def changes(before: Tree, after: Tree) -> dict[str, tuple[Znode | None, Znode | None]]:
    return {
        path: (before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    }


@contextlib.contextmanager
def cluster_on(
    ensemble: ZooKeeperEnsemble, count: int, **settings: str
) -> Iterator[tuple[BrokerCluster, Any]]:
    cluster = BrokerCluster(f"{ensemble.address}/frozen", count, **settings)
    client = KazooClient(hosts=cluster.zookeeper)
    try:
        cluster.start()
        cluster.wait_known()
        client.start(timeout=20)
        yield cluster, client
    finally:
        client.stop()
        client.close()
        cluster.close()


def controller_of(client: Any) -> int:
    broker_id: int = json.loads(client.get("/controller")[0])["brokerid"]
    return broker_id


def wait_logged(broker: BrokerProcess, text: str) -> None:
    assert eventually(lambda: text in broker.log(), 60, what=text)


def order_topic(client: Any, name: str, replicas: list[int]) -> None:
    """A topic as CreateTopics writes it: the controller finds it by its watch."""
    assignment = {
        "version": 3,
        "partitions": {"0": replicas},
        "topic_id": uuid_to_text(uuid.uuid4().bytes),
        "adding_replicas": {},
        "removing_replicas": {},
    }
    client.create(f"/brokers/topics/{name}", json.dumps(assignment).encode())


def java_random_bytes(seed: int, count: int) -> bytes:
    """What `new java.util.Random(seed).nextBytes` gives."""
    mask = (1 << 48) - 1
    state = (seed ^ 0x5DEECE66D) & mask
    found = bytearray()
    while len(found) < count:
        state = (state * 0x5DEECE66D + 0xB) & mask
        found += (state >> 16).to_bytes(4, "little")
    return bytes(found[:count])


def expire(address: str, session_id: int) -> None:
    """Close somebody else's session: passwords of ZooKeeper follow from the session's id."""
    password = java_random_bytes(session_id ^ 0xB3415C00, 16)
    connect = struct.pack(">iqiqi", 0, 0, SESSION_TIMEOUT_MS, session_id, len(password)) + password
    close = struct.pack(">ii", 1, -11)
    host, _, port = address.partition(",")[0].partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(b"".join(struct.pack(">i", len(part)) + part for part in (connect, close)))
        answer = b""
        while chunk := sock.recv(4096):
            answer += chunk
    (granted,) = struct.unpack_from(">i", answer, 8)
    assert granted > 0, "ZooKeeper does not know this session and password"


def test_a_thawed_controller_changes_nothing_and_resigns(own_ensemble: ZooKeeperEnsemble) -> None:
    with cluster_on(own_ensemble, 3) as (cluster, client):
        old_id = controller_of(client)
        old = cluster[old_id]
        others = [broker.id for broker in cluster.brokers if broker.id != old_id]
        order_topic(client, "early", others)
        assert eventually(lambda: client.exists("/brokers/topics/early/partitions/0/state"))
        old.freeze()
        # It is controller still: what happens now waits in its socket, as watch events.
        order_topic(client, "ordered", others)
        client.create("/admin/delete_topics/early")
        assert eventually(lambda: controller_of(client) != old_id, SESSION_S + 30)
        assert eventually(lambda: client.exists("/brokers/topics/ordered/partitions/0/state"))
        assert eventually(lambda: not client.exists("/brokers/topics/early"), 60)
        before = settled_tree(client)
        assert f"/brokers/ids/{old_id}" not in before

        old.thaw()
        assert eventually(lambda: client.exists(f"/brokers/ids/{old_id}"))
        assert eventually(lambda: "resigned epoch=" in old.log())
        after = settled_tree(client)
        registration = after.pop(f"/brokers/ids/{old_id}")
        assert changes(before, after) == {}
        assert registration.owner  # of its new session
        assert old.runs
        values = clients.payloads(100)
        clients.produce(cluster.bootstrap, "ordered", values)
        assert clients.consume(cluster.bootstrap, "ordered", 100) == values


@pytest.mark.parametrize("seed", range(2))
def test_whenever_its_session_ends_a_broker_is_back_as_itself_once(
    own_ensemble: ZooKeeperEnsemble, seed: int
) -> None:
    chance = random.Random(seed)
    # No session ends but those that are ended here.
    with cluster_on(own_ensemble, 3, zookeeper_session_timeout_ms="30000") as (cluster, client):
        pids = {broker.id: broker.pid for broker in cluster.brokers}
        lives = dict.fromkeys(pids, 1)
        clients.create_topic(
            cluster.bootstrap, "t", partitions=3, replicas=3, config={"min.insync.replicas": "2"}
        )
        values = clients.payloads(800)
        for turn in range(8):
            if chance.random() < 0.4:
                order_topic(client, f"meanwhile-{turn}", chance.sample(sorted(pids), 2))
            controller = eventually(lambda: controller_of(client), 60)
            victim = controller if turn % 2 else chance.choice(sorted(pids))
            for _ in range(chance.choice((1, 1, 2))):
                path = f"/brokers/ids/{victim}"
                assert eventually(lambda path=path: client.exists(path), 60)  # type: ignore[misc]
                stat = client.exists(path)
                time.sleep(chance.random() * chance.choice((0.02, 1.0)))
                expire(cluster.zookeeper, stat.ephemeralOwner)
                lives[victim] += 1

                def is_back(path: str = path, before: int = stat.czxid) -> bool:
                    now = client.exists(path)
                    return now is not None and now.czxid > before

                assert eventually(is_back, 60)
                # It has to know that, too: else it registers once more and tells of that only.
                wait_logged(
                    cluster[victim], f"registered broker={victim} epoch={client.exists(path).czxid}"
                )
            clients.produce(
                cluster.bootstrap, "t", values[turn * 100 : turn * 100 + 100], partition=0
            )

        def all_in_sync() -> bool:
            states = [
                json.loads(client.get(f"/brokers/topics/t/partitions/{n}/state")[0])
                for n in range(3)
            ]
            return all(len(state["isr"]) == 3 for state in states)

        assert eventually(all_in_sync, 60)
        assert sorted(client.get_children("/brokers/ids")) == ["1", "2", "3"]
        for broker in cluster.brokers:
            assert broker.pid == pids[broker.id] and broker.runs
            assert broker.log().count("registered broker=") == lives[broker.id]
        assert clients.consume(cluster.bootstrap, "t", 800) == values
        for path, znode in settled_tree(client).items():
            if path.startswith("/brokers/topics/meanwhile") and path.endswith("/state"):
                assert json.loads(znode.data)["leader"] in pids
