"""A real ZooKeeper for tests, and pytest fixtures that hand it out.

Where it comes from, in this order: the address in `KAFKALIKE_TEST_ZOOKEEPER`; the system package (a
Java program below /usr/share/java); Docker through the `docker` package; else tests that need it are
skipped with the reason.  A server of ours lives in its own folder on a free port of 127.0.0.1 with a
small memory, is told by the kernel to die with the test process, and is killed at the end.

Tests that only need some server share one per session (`zookeeper_address`), each in a chroot of its
own (`chroot`).  Tests that stop, kill or freeze it start their own (`own_zookeeper`).
"""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.ports import free_port
from tests.reference_kafka import die_with_parent

ADDRESS_VARIABLE: Final = "KAFKALIKE_TEST_ZOOKEEPER"
JAR: Final = Path("/usr/share/java/zookeeper.jar")
LOGGING_JARS: Final = ("slf4j-simple.jar", "slf4j-nop.jar")
TLS_JARS: Final = ("netty-codec.jar", "netty-resolver.jar")
"""Needed by the Netty server socket and missing from the manifest of Debian's jar."""

MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
IMAGE: Final = "zookeeper:3.8"
START_LIMIT_S: Final = 60.0
TICK_MS: Final = 200


def four_letters(port: int, word: bytes, limit_s: float = 5.0) -> bytes:
    """The answer to one of ZooKeeper's four-letter words; empty when it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=limit_s) as connection:
            connection.sendall(word)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            return answer
    except OSError:
        return b""


def missing() -> str | None:
    """Why no server of the system package can be started, or None."""
    if not JAR.exists():
        return f"{JAR} is not there (Debian package zookeeper)"
    if shutil.which("java") is None:
        return "there is no java"
    return None


class ZooKeeperServer:
    """One standalone ZooKeeper process of ours.  Session timeouts from 2 to 200 ticks of 200 ms."""

    def __init__(self, settings: dict[str, str] | None = None, port: int = 0) -> None:
        self.port = port or free_port()
        self._settings = settings or {}
        self._dir = Path(tempfile.mkdtemp(prefix="kafkalike-zookeeper-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def data(self) -> Path:
        return self._dir / "data"

    def start(self) -> None:
        """Start, with the data there is, and return when it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start, with the data there is."""
        assert self._process is None
        settings = {
            "dataDir": str(self._dir / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(TICK_MS),
            "maxSessionTimeout": str(200 * TICK_MS),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "forceSync": "no",
            "4lw.commands.whitelist": "*",
        } | self._settings
        config = self._dir / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = [JAR, *(JAR.parent / name for name in (*LOGGING_JARS, *TLS_JARS))]
        command = [
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Djava.awt.headless=true",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.extendedTypesEnabled=true",
            *(f"-D{k}={v}" for k, v in self._settings.items() if k == "jute.maxbuffer"),
            "-cp",
            ":".join(str(jar) for jar in jars if jar.exists()),
            MAIN,
            str(config),
        ]
        with (self._dir / "out").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._dir,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )

    def wait_ready(self) -> None:
        """Until it serves; in an ensemble that takes a majority."""
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while b"Mode:" not in four_letters(self.port, b"srvr"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._dir / "out").read_text(errors="replace")[-2000:]
                self.kill()
                raise RuntimeError(f"ZooKeeper did not start: {said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """As a power cut would."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop for good and remove the folder."""
        self.kill()
        shutil.rmtree(self._dir, ignore_errors=True)

    def __enter__(self) -> "ZooKeeperServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ZooKeeperEnsemble:
    """Three ZooKeeper processes of ours that elect a leader."""

    def __init__(self, size: int = 3) -> None:
        members = {
            f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}"
            for number in range(1, size + 1)
        }
        settings = members | {"initLimit": "50", "syncLimit": "50"}
        self.servers = [ZooKeeperServer(settings) for _ in members]
        for number, server in enumerate(self.servers, 1):
            server.data.mkdir()
            (server.data / "myid").write_text(str(number))

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def __enter__(self) -> "ZooKeeperEnsemble":
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.close()


@contextlib.contextmanager
def _docker_server() -> Iterator[str]:
    """The address of a ZooKeeper in a container; raises when Docker cannot give one."""
    import docker

    client: Any = docker.from_env()
    port = free_port()
    container = client.containers.run(
        IMAGE,
        detach=True,
        auto_remove=True,
        ports={"2181/tcp": ("127.0.0.1", port)},
        environment={"ZOO_TICK_TIME": str(TICK_MS), "ZOO_4LW_COMMANDS_WHITELIST": "*"},
    )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while b"Mode:" not in four_letters(port, b"srvr"):
            if time.monotonic() > deadline:
                raise RuntimeError("ZooKeeper in Docker did not start")
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        container.kill()


@pytest.fixture(scope="session")
def zookeeper_address() -> Iterator[str]:
    """`host:port` of a ZooKeeper that all tests share."""
    given = os.environ.get(ADDRESS_VARIABLE)
    if given:
        yield given
        return
    reason = missing()
    if reason is None:
        with ZooKeeperServer() as server:
            yield server.address
        return
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(_docker_server())
        except Exception as error:
            pytest.skip(f"no ZooKeeper: {reason}; Docker: {error}")
        yield address


_numbers = itertools.count()


@pytest.fixture
def chroot() -> str:
    """A path that no other test uses."""
    return f"/test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeperServer]:
    """A running server that this test alone uses and may kill, freeze and restart."""
    reason = missing()
    if reason is not None:
        pytest.skip(f"needs a ZooKeeper process of its own: {reason}")
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def own_ensemble() -> Iterator[ZooKeeperEnsemble]:
    """A running ensemble that this test alone uses."""
    reason = missing()
    if reason is not None:
        pytest.skip(f"needs ZooKeeper processes of its own: {reason}")
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble
