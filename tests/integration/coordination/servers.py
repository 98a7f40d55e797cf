"""Coordination servers as processes: the embedded one, and a real ZooKeeper where there is one.

ZooKeeper comes from `ZOOKEEPER_CLASSPATH`, else from the jars of a Kafka distribution in
`KAFKA39_HOME` (its `libs`), else from the system package.  Without any, or without Java, tests are
skipped with that reason.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.ports import free_port
from tests.reference_kafka import die_with_parent

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PATIENCE_S = 60.0
SYSTEM_JAR = pathlib.Path("/usr/share/java/zookeeper.jar")


class Server:
    """A server process; `address` is where it listens."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, output: pathlib.Path) -> None:
        self.process = process
        self.port = port
        self.output = output

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        """As by `kill -9`."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE_S)
                raise
        return int(self.process.returncode)

    def log(self) -> str:
        return self.output.read_text(errors="replace")


def start_embedded(
    directory: pathlib.Path, *options: str, port: int = 0, prefix: tuple[str, ...] = ()
) -> Server:
    """The embedded service (`options`: see serve.py); returns when it serves."""
    directory.mkdir(parents=True, exist_ok=True)
    output = directory / "coordination.out"
    command = [*prefix, sys.executable, str(HERE / "serve.py"), "--port", str(port), *options]
    begin = output.stat().st_size if output.exists() else 0
    with output.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for line in output.read_bytes()[begin:].decode(errors="replace").splitlines():
            if line.startswith("ready "):
                return Server(process, int(line.split()[1]), output)
            if line.startswith("failed "):
                process.wait(PATIENCE_S)
                raise RuntimeError(line)
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise RuntimeError(f"the embedded service did not start: {output.read_text()}")


@contextmanager
def embedded(directory: pathlib.Path, *options: str) -> Iterator[Server]:
    server = start_embedded(directory, *options)
    try:
        yield server
    finally:
        server.stop()


def kafka_libs() -> pathlib.Path | None:
    """The folder with Kafka's and ZooKeeper's jars, if there is one."""
    home = os.environ.get("KAFKA39_HOME")
    base = pathlib.Path(home) if home else pathlib.Path.home() / ".cache" / "kafka39"
    for folder in [base / "libs", *sorted(base.glob("*/libs"), reverse=True)]:
        if list(folder.glob("zookeeper-[0-9]*.jar")):
            return folder
    return None


def zookeeper_classpath() -> str | None:
    given = os.environ.get("ZOOKEEPER_CLASSPATH")
    if given:
        return given
    libs = kafka_libs()
    if libs is not None:
        return f"{libs}/*"
    return str(SYSTEM_JAR) if SYSTEM_JAR.exists() else None


def need_zookeeper() -> str:
    """The class path of a ZooKeeper; skips the test without one."""
    if shutil.which("java") is None:
        pytest.skip("needs Java for a real ZooKeeper")
    classpath = zookeeper_classpath()
    if classpath is None:
        pytest.skip("needs a ZooKeeper: ZOOKEEPER_CLASSPATH, KAFKA39_HOME or the system package")
    return classpath


@contextmanager
def zookeeper(
    directory: pathlib.Path, *, properties: tuple[str, ...] = (), settings: str = ""
) -> Iterator[Server]:
    """A real ZooKeeper; `properties` are Java's, `settings` lines of its configuration."""
    classpath = need_zookeeper()
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (directory / "zoo.cfg").write_text(
        f"dataDir={directory}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n{settings}"
    )
    output = directory / "zookeeper.out"
    with output.open("ab") as file:
        process = subprocess.Popen(
            [
                *("java", "-Xmx256m", *properties, "-cp", classpath),
                "org.apache.zookeeper.server.ZooKeeperServerMain",
                str(directory / "zoo.cfg"),
            ],
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
    server = Server(process, port, output)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while b"Mode:" not in four_letter_word(server, b"srvr"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper did not start: {server.log()[-2000:]}")
            time.sleep(0.1)
        yield server
    finally:
        server.kill()


def four_letter_word(server: Server, word: bytes) -> bytes:
    """The answer, empty when nobody listens."""
    with suppress(OSError), socket.create_connection(server.address, timeout=5) as connection:
        connection.sendall(word)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer
    return b""
