"""`kafkalike up` as a process, and what is left of one."""

import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

ROOT: Final = pathlib.Path(__file__).resolve().parents[3]
LIMIT_S: Final = 60.0


class Up:
    """One `kafkalike up --output json`; `with` kills what is left."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "kafkalike.tools.main", "up", "--output", "json"]
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.facts: dict[str, Any] = {}
        self._buffer = b""

    def __enter__(self) -> "Up":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def event(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The next line of stdout."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            assert ready, "no event in time"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"ended: {self.process.stderr and self.process.stderr.read().decode()}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return dict(json.loads(line))

    def ready(self) -> "Up":
        self.facts = self.event()
        assert self.facts["event"] == "ready"
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)

    def errors(self) -> list[str]:
        """Lines of stderr, once the process has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode().splitlines()

    def pids(self) -> list[int]:
        """This process and all below it."""
        return descendants(self.process.pid)

    @property
    def directory(self) -> pathlib.Path:
        return pathlib.Path(self.facts["directory"])

    @property
    def brokers(self) -> dict[str, Any]:
        return dict(self.facts["brokers"])


def descendants(pid: int) -> list[int]:
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            text = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text()
            for child in text.split():
                found += descendants(int(child))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True
