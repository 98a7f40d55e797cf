"""A real cluster for tests: started in about a second, broken on purpose, gone with the test process.

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        ...
        cluster.kill(cluster.leader("orders"))
        cluster.wait_isr_full("orders")

The brokers run in processes of their own under `kafkalike up`; this is a client of its control port,
synchronous and usable from any thread (from asyncio: `await asyncio.to_thread(cluster.kill, 1)`).
Everything listens on free ports of 127.0.0.1 and lives in a directory of its own.  When the test
process ends, however it ends, the kernel tells the cluster and it takes itself away.
"""

import contextlib
import http.client
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

import kafkalike

START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 30.0
WAIT_S: Final = 30.0
ANSWER_GRACE_S: Final = 60.0
"""How much longer than a verb's own limit its answer may take."""

ZOOKEEPER: Final = "zookeeper"
"""The other end of a broker's link to the coordination service."""

DISCONNECT: Final = -195
"""For `push_errors`: close the connection instead of answering."""

End = int | str


class ClusterError(Exception):
    """The cluster could not do what it was asked; the text says why."""


class WaitTimeout(ClusterError, TimeoutError):
    """What was waited for did not come true in time; the text says what was missing."""


@dataclass(slots=True, frozen=True)
class BrokerInfo:
    """One broker: `state` is stopped, starting, running, paused or stopping."""

    id: int
    address: str
    state: str
    pid: int | None
    exit_code: int | None
    directory: pathlib.Path


class Cluster:
    """A local cluster and all that can be done to it.

    Arguments of the constructor are those of `kafkalike up`: `config` holds broker settings for all
    brokers; `directory` keeps the data (default: thrown away, in memory where the system has a
    file system there); `single_process` runs all brokers in one process with a clock that `advance`
    moves.  Nothing runs before `start` or `with`.

    Verbs raise ClusterError, and those that wait WaitTimeout.
    """

    def __init__(
        self,
        brokers: int | None = None,
        *,
        config: Mapping[str, object] | None = None,
        directory: str | os.PathLike[str] | None = None,
        port: int = 0,
        zookeeper: str | None = None,
        single_process: bool = False,
        log_level: str = "INFO",
    ) -> None:
        self._arguments = ["--port", str(port), "--log-level", log_level]
        if brokers is not None:
            self._arguments += ["--brokers", str(brokers)]
        for name, value in (config or {}).items():
            self._arguments += ["--override", f"{name}={_text(value)}"]
        self._arguments += ["--memory"] if directory is None else ["--dir", os.fspath(directory)]
        if zookeeper is not None:
            self._arguments += ["--zookeeper", zookeeper]
        if single_process:
            self._arguments.append("--single-process")
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._facts: dict[str, Any] = {}
        self._touched = False

    @classmethod
    def attach(cls, control_url: str) -> "Cluster":
        """A cluster that somebody else started with `--control-port`; `stop` leaves it running."""
        cluster = cls()
        cluster._facts = {"control": control_url}
        cluster._facts |= cluster.info()
        return cluster

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        """Start and wait until every broker serves.  Raises ClusterError.

        A setting that no broker knows is a UserWarning.
        """
        if self._process is not None:
            raise ClusterError("the cluster runs already")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-m", "kafkalike.tools.main", "up", *self._arguments]
        command += ["--control-port", "0", "--output", "json", "--until-exit-of", str(os.getpid())]
        root = str(pathlib.Path(kafkalike.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": path},
        )
        try:
            self._facts = self._first_event()
            for line in self._facts["warnings"]:
                warnings.warn(line, UserWarning, stacklevel=2)
        except BaseException:
            self._end()
            raise
        return self

    def _first_event(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([self._process.stdout], [], [], left_s)[0]:
                raise ClusterError(f"the cluster was not ready in {START_LIMIT_S:g} s")
            line = self._process.stdout.readline()
            if not line:
                self._process.wait(STOP_LIMIT_S)
                self._errors.seek(0)
                text = self._errors.read().decode(errors="replace").strip()
                raise ClusterError(text or f"kafkalike up ended with {self._process.returncode}")
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "ready":
                return event

    def stop(self) -> None:
        """Stop everything and remove what was temporary; harmless when nothing runs."""
        if self._process is not None:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._errors.close()

    def __enter__(self) -> "Cluster":
        return self if self._process is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- facts ---------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, comma separated."""
        return str(self._fact("bootstrap_servers"))

    @property
    def zookeeper(self) -> str:
        """Connect string of the coordination service."""
        return str(self._fact("zookeeper"))

    @property
    def directory(self) -> pathlib.Path:
        """Where data and logs are; `broker-ID/broker.log` is a broker's log."""
        return pathlib.Path(self._fact("directory"))

    @property
    def control_url(self) -> str:
        """The control port, for tests in other languages."""
        return str(self._fact("control"))

    @property
    def pid(self) -> int:
        """Of the process that runs the cluster."""
        return int(self._fact("pid"))

    def _fact(self, name: str) -> Any:
        if name not in self._facts:
            raise ClusterError("the cluster has not been started")
        return self._facts[name]

    def info(self) -> dict[str, Any]:
        """Everything that `GET /ready` tells."""
        return dict(self._ask("info"))

    @property
    def brokers(self) -> dict[int, BrokerInfo]:
        """All brokers by id, as they are now."""
        return {
            int(key): BrokerInfo(
                int(key),
                one["address"],
                one["state"],
                one["pid"],
                one["exit_code"],
                pathlib.Path(one["directory"]),
            )
            for key, one in self.info()["brokers"].items()
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        """Broker id of the present leader, -1 while there is none."""
        return int(self._ask("leader", topic=topic, partition=partition))

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """In-sync replicas."""
        return list(self._ask("isr", topic=topic, partition=partition))

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """All replicas, the preferred leader first."""
        return list(self._ask("replicas", topic=topic, partition=partition))

    def controller(self) -> int:
        """Broker id of the controller, -1 while there is none."""
        return int(self._ask("controller"))

    def end_offset(
        self, topic: str, partition: int = 0, *, committed: bool = False, timeout_s: float = 10.0
    ) -> int:
        """Up to where consumers can read (with `committed`: read_committed ones).

        A leader that is new may have to hear from its followers first; this waits for it.
        """
        return int(
            self._ask(
                "end_offset",
                topic=topic,
                partition=partition,
                isolation="committed" if committed else "uncommitted",
                timeout_s=timeout_s,
            )
        )

    def topics(self, *, internal: bool = False) -> list[str]:
        """Names, sorted."""
        return list(self._ask("topics", internal=internal))

    def group(self, group: str) -> dict[str, Any]:
        """`state`, `protocol`, `coordinator` and `members` of a consumer group."""
        return dict(self._ask("group", group=group))

    # -- topics --------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        timeout_s: float = WAIT_S,
    ) -> None:
        """Create a topic and wait until every broker knows it with a full ISR.

        `assignment` lists the replicas of each partition, the preferred leader first.
        """
        self._ask(
            "create_topic",
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            config={name: _text(value) for name, value in (config or {}).items()},
            assignment=None if assignment is None else [list(one) for one in assignment],
            timeout_s=timeout_s,
        )

    def delete_topic(self, topic: str, timeout_s: float = WAIT_S) -> None:
        """Delete a topic and wait until no broker knows it."""
        self._ask("delete_topic", topic=topic, timeout_s=timeout_s)

    # -- waiting -------------------------------------------------------------------------------

    def wait_isr_full(
        self, topic: str, partition: int | None = None, timeout_s: float = WAIT_S
    ) -> None:
        """Until all brokers say that all replicas (of all partitions, or of one) are in sync."""
        number = -1 if partition is None else partition
        self._ask("wait_isr_full", topic=topic, partition=number, timeout_s=timeout_s)

    def wait_isr(
        self, topic: str, isr: Sequence[int], partition: int = 0, timeout_s: float = WAIT_S
    ) -> None:
        """Until all brokers say that the ISR is exactly this."""
        self._ask("wait_isr", topic=topic, isr=list(isr), partition=partition, timeout_s=timeout_s)

    def wait_leader(
        self,
        topic: str,
        partition: int = 0,
        leader: int | None = None,
        *,
        other_than: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> int:
        """Until all brokers name this leader (or any, or another one); returns it."""
        return int(
            self._ask(
                "wait_leader",
                topic=topic,
                partition=partition,
                leader=leader,
                other_than=other_than,
                timeout_s=timeout_s,
            )
        )

    def wait_offset(
        self,
        topic: str,
        offset: int,
        partition: int = 0,
        *,
        committed: bool = False,
        timeout_s: float = WAIT_S,
    ) -> int:
        """Until consumers can read up to `offset`; returns how far they can."""
        return int(
            self._ask(
                "wait_offset",
                topic=topic,
                offset=offset,
                partition=partition,
                isolation="committed" if committed else "uncommitted",
                timeout_s=timeout_s,
            )
        )

    def wait_controller(
        self,
        broker: int | None = None,
        *,
        other_than: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> int:
        """Until all brokers name this controller (or any, or another one); returns it."""
        return int(
            self._ask("wait_controller", broker=broker, other_than=other_than, timeout_s=timeout_s)
        )

    def wait_brokers(self, brokers: Sequence[int] | None = None, timeout_s: float = WAIT_S) -> None:
        """Until all brokers see exactly these (default: those that run) in the cluster."""
        wanted = None if brokers is None else list(brokers)
        self._ask("wait_brokers", brokers=wanted, timeout_s=timeout_s)

    def wait_group(
        self,
        group: str,
        state: str = "Stable",
        members: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> dict[str, Any]:
        """Until a consumer group is in this state, with so many members; how it is then."""
        return dict(
            self._ask("wait_group", group=group, state=state, members=members, timeout_s=timeout_s)
        )

    def prepare_groups(self, timeout_s: float = WAIT_S) -> None:
        """Have the topic of committed offsets made before a fault takes a broker away.

        As in Kafka it comes with the first group otherwise, and needs as many brokers as it has
        replicas: a group that starts while one is missing waits for it.
        """
        self._ask("prepare_groups", timeout_s=timeout_s)

    # -- brokers -------------------------------------------------------------------------------

    def stop_broker(self, broker: int) -> None:
        """In order (SIGTERM): it hands its partitions over first."""
        self._do("stop", broker=broker)

    def kill(self, broker: int, *, at_once: bool = False) -> None:
        """SIGKILL.  The others notice when its ZooKeeper session has timed out, or `at_once`."""
        self._do("kill", broker=broker, at_once=at_once)

    def start_broker(self, broker: int) -> None:
        """Start one that was stopped or killed, on its data; waits until it serves."""
        self._do("start", broker=broker)

    def pause(self, broker: int) -> None:
        """SIGSTOP: its connections stay open and nothing moves."""
        self._do("pause", broker=broker)

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        self._do("resume", broker=broker)

    # -- links ---------------------------------------------------------------------------------

    def isolate(self, broker: int, peer: End | None = None) -> None:
        """Cut a broker off from a peer, from ZOOKEEPER, or (None) from all of them.

        Clients still reach it.
        """
        self._do("isolate", broker=broker, peer=peer)

    def cut(self, source: End, target: End, *, both: bool = False) -> None:
        """Nothing from `source` arrives at `target` until healed (with `both`: nor back)."""
        self._do("cut", source=source, target=target, both=both)

    def delay(self, source: End, target: End, ms: float, *, both: bool = False) -> None:
        """What `source` sends to `target` arrives that much later."""
        self._do("delay", source=source, target=target, ms=ms, both=both)

    def heal(self, broker: int | None = None) -> None:
        """End all cuts and delays, or those of one broker."""
        self._do("heal", broker=broker)

    def expire_session(self, broker: int) -> None:
        """End the broker's ZooKeeper session, as ZooKeeper does after its timeout."""
        self._do("expire_session", broker=broker)

    # -- disks ---------------------------------------------------------------------------------

    def fill_disk(self, broker: int) -> None:
        """Every further write of the broker fails for lack of space (a broker then stops)."""
        self._do("fill_disk", broker=broker)

    def free_disk(self, broker: int) -> None:
        """There is space again."""
        self._do("free_disk", broker=broker)

    def corrupt_tail(
        self, broker: int, topic: str, partition: int = 0, bytes: int = 16, how: str = "truncate"
    ) -> dict[str, Any]:
        """Damage the end of a stopped broker's log as a power cut does (`how`: truncate, flip)."""
        return dict(
            self._do(
                "corrupt_tail",
                broker=broker,
                topic=topic,
                partition=partition,
                bytes=bytes,
                how=how,
            )
        )

    # -- leadership ----------------------------------------------------------------------------

    def elect(self, topic: str, partition: int = 0, *, unclean: bool = False) -> int:
        """Elect the preferred leader, or with `unclean` any live replica where there is none."""
        return int(self._do("elect", topic=topic, partition=partition, unclean=unclean))

    def move_leader(self, topic: str, leader: int, partition: int = 0) -> None:
        """Make an in-sync replica the leader."""
        self._do("move_leader", topic=topic, leader=leader, partition=partition)

    def move_controller(self, broker: int | None = None) -> int:
        """Make another broker, or this one, the controller; returns it."""
        return int(self._do("move_controller", broker=broker))

    # -- answers -------------------------------------------------------------------------------

    def push_errors(
        self,
        api: str,
        codes: Sequence[int],
        *,
        broker: int | None = None,
        applied: bool = False,
        topic: str | None = None,
    ) -> None:
        """The next requests of an API get these error codes (or DISCONNECT), one each, per broker.

        With `applied` the request is carried out all the same: only its answer is lost.  `topic`
        narrows it to requests about one.
        """
        self._do(
            "push_errors", api=api, codes=list(codes), broker=broker, applied=applied, topic=topic
        )

    def pending_errors(self) -> dict[str, int]:
        """How many pushed errors nobody has met so far, by API."""
        return dict(self._ask("pending_errors"))

    def latency(self, api: str, ms: float, *, broker: int | None = None) -> None:
        """Hold every answer of an API back by `ms`; 0 ends it."""
        self._do("latency", api=api, ms=ms, broker=broker)

    def clear_errors(self) -> None:
        """Forget pushed errors and latencies."""
        self._do("clear_errors")

    # -- the whole cluster ---------------------------------------------------------------------

    def snapshot(self, name: str = "default", timeout_s: float = WAIT_S) -> None:
        """Stop the brokers, keep a copy of everything, start them again.

        Returns when every partition has a leader that serves and a full ISR.
        """
        self._do("snapshot", name=name, timeout_s=timeout_s)

    def restore(self, name: str = "default", timeout_s: float = WAIT_S) -> None:
        """Bring a copy back: topics, records, offsets, metadata as they were.

        Returns when every partition has a leader that serves and a full ISR.
        """
        self._do("restore", name=name, timeout_s=timeout_s)

    def mend(self) -> None:
        """Undo all faults: heal links, resume and start brokers, free disks, forget errors."""
        self._do("mend")
        self._touched = False

    def reset(self) -> None:
        """`mend`, then delete all topics and groups."""
        self._do("reset")
        self._touched = False

    def advance(self, seconds: float) -> None:
        """Move the clock of a `single_process` cluster forward; what is due in between happens.

        Sessions of brokers and of group members time out, and retention deletes.
        """
        self._do("advance", seconds=seconds)

    @property
    def touched(self) -> bool:
        """Whether a fault may be left from an earlier verb."""
        return self._touched

    # -- the control port ----------------------------------------------------------------------

    def _do(self, verb: str, **arguments: Any) -> Any:
        """A verb that changes how things are."""
        self._touched = True
        return self._ask(verb, **arguments)

    def _ask(self, verb: str, **arguments: Any) -> Any:
        url = urlsplit(self.control_url)
        limit_s = arguments.get("timeout_s", WAIT_S) + ANSWER_GRACE_S
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=limit_s)
        body = json.dumps(arguments).encode()
        try:
            with contextlib.closing(connection):
                connection.request("POST", f"/{verb}", body, {"content-type": "application/json"})
                response = connection.getresponse()
                status, data = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"{verb}: no answer from {self.control_url}: {error}") from error
        answer = json.loads(data)
        if status == http.client.OK:
            return answer["result"]
        text = f"{verb}: {answer['error']}"
        raise (WaitTimeout if status == http.client.GATEWAY_TIMEOUT else ClusterError)(text)


def _text(value: object) -> str:
    """A setting as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
