"""The helper process: CPU-heavy work on files, away from the loop.

A job is named `package.module:function` and takes and gives a dictionary that JSON can carry: paths,
ranges, numbers, never record bytes.  The helper does one job after another.  It starts with the first
job, ends with this process, and is started again when it died; jobs it had then fail with WorkerDied.
Publishing a result is the caller's business (write beside, then rename), so a job that is lost half-way
leaves nothing but a file to be removed.
"""

import json
import logging
import os
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred, fail

from .disk import RealDisk
from .ports import Clock, StorageError, Threads, Transport
from .transport import FrameTransport, SharedInput, SharedOutput

MAX_MESSAGE_BYTES: Final = 16 << 20
MAX_WAITING: Final = 1000
NICENESS: Final = 5
REAP_S: Final = 0.1
REAP_TRIES: Final = 50
_PREFIX: Final = struct.Struct(">i")

Job: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class JobFailed(Exception):
    """A job raised an error; the text holds the helper's traceback."""


class WorkerDied(Exception):
    """The helper process ended before the job was done."""


def find_job(name: str) -> Job:
    """The function behind `package.module:function`; ValueError when the name is none of ours."""
    module, separator, function = name.partition(":")
    if not separator or not module.startswith("kafkalike."):
        raise ValueError(f"job {name!r} is not of the form kafkalike.module:function")
    job: Job = getattr(import_module(module), function)
    return job


class WorkerProcess:
    """The Worker port over a child process."""

    def __init__(
        self, reactor: Any, clock: Clock, threads: Threads, logger: logging.Logger | None = None
    ) -> None:
        self._reactor = reactor
        self._clock = clock
        self._threads = threads
        self._logger = logger or logging.getLogger("kafkalike.worker")
        self._shared = SharedInput()
        self._output = SharedOutput()
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: Transport | None = None
        self._waiting: dict[int, Deferred[dict[str, Any]]] = {}
        self._next_id = 0
        self._stopped = False

    def run(self, job: str, argument: dict[str, Any]) -> "Deferred[dict[str, Any]]":
        """Do a job in the helper.

        Fails with StorageError when the job met one, JobFailed for any other error in it, WorkerDied
        when the helper ended, RuntimeError when too many jobs wait or after `stop`.
        """
        if self._stopped:
            return fail(RuntimeError("the helper process is stopped"))
        if len(self._waiting) >= MAX_WAITING:
            return fail(RuntimeError(f"{MAX_WAITING} jobs wait for the helper process"))
        if self._transport is None:
            try:
                self._start()
            except OSError as error:
                return fail(WorkerDied(f"the helper process could not be started: {error}"))
        assert self._transport is not None
        self._next_id += 1
        result: Deferred[dict[str, Any]] = Deferred()
        self._waiting[self._next_id] = result
        message = json.dumps({"id": self._next_id, "job": job, "argument": argument}).encode()
        self._transport.write((_PREFIX.pack(len(message)) + message,))
        return result

    @property
    def pid(self) -> int | None:
        """Process id of the helper while it runs."""
        return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        """End the helper at once; waiting jobs fail with WorkerDied."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()
        if self._transport is not None:
            self._transport.abort()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafkalike.runtime.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._logger.info("helper process started pid=%d", self._process.pid)
        FrameTransport(
            ours,
            self,
            reactor=self._reactor,
            clock=self._clock,
            threads=self._threads,
            shared=self._shared,
            output=self._output,
            max_frame_bytes=MAX_MESSAGE_BYTES,
            peer=("helper process", 0),
            logger=self._logger,
        ).start()

    # What the transport calls.

    def connected(self, transport: Transport) -> None:
        self._transport = transport

    def frame_received(self, frame: memoryview) -> None:
        answer = json.loads(bytes(frame))
        result = self._waiting.pop(answer["id"])
        if "result" in answer:
            result.callback(answer["result"])
        elif answer["storage"]:
            result.errback(StorageError(answer["error"]))
        else:
            result.errback(JobFailed(answer["error"]))

    def disconnected(self, reason: str) -> None:
        process, self._process, self._transport = self._process, None, None
        waiting, self._waiting = self._waiting, {}
        if process is not None:
            if not self._stopped:
                self._logger.error("helper process ended pid=%d", process.pid)
                process.kill()
            self._reap(process, REAP_TRIES)
        for result in waiting.values():
            result.errback(WorkerDied("the helper process ended before the job was done"))

    def _reap(self, process: "subprocess.Popen[bytes]", tries: int) -> None:
        if process.poll() is None and tries:
            self._clock.call_later(REAP_S, self._reap, process, tries - 1)


def describe(argument: dict[str, Any]) -> dict[str, Any]:
    """A job that tells about the helper: its process id, the argument, the size of the file `path`."""
    answer: dict[str, Any] = {"pid": os.getpid(), "argument": argument}
    if "path" in argument:
        answer["size"] = RealDisk().size(argument["path"])
    return answer


def serve(channel: socket.socket) -> None:
    """The helper's life: read a job, do it, answer; until the other side is gone."""
    with channel, channel.makefile("rwb") as stream:
        while len(prefix := stream.read(4)) == 4:
            message = json.loads(stream.read(_PREFIX.unpack(prefix)[0]))
            answer: dict[str, Any] = {"id": message["id"]}
            try:
                answer["result"] = find_job(message["job"])(message["argument"])
                encoded = json.dumps(answer).encode()
            except StorageError as error:
                encoded = _failure(message["id"], str(error), storage=True)
            except Exception:
                encoded = _failure(message["id"], traceback.format_exc(), storage=False)
            stream.write(_PREFIX.pack(len(encoded)) + encoded)
            stream.flush()


def _failure(job_id: int, error: str, *, storage: bool) -> bytes:
    return json.dumps({"id": job_id, "error": error, "storage": storage}).encode()


def main() -> None:
    """Entry of the helper process; its one argument is the descriptor of its socket."""
    os.nice(NICENESS)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
