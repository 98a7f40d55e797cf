"""Processes of a local cluster, forked from one that has everything imported already.

A forked broker starts in milliseconds and shares the pages of the code with its siblings.  Forking
must happen where no reactor and no thread exists, so a small process of its own (the nursery) is
forked first; it imports what its children need while its maker imports other things, and makes
children on request.

Nothing outlives a killed supervisor: the nursery notices that its maker is gone, ends all children and
removes what was temporary; should the nursery be killed too, the kernel ends its children.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

MAX_MESSAGE_BYTES: Final = 1 << 16
_PR_SET_PDEATHSIG: Final = 1


class ChildChannel:
    """The socket between one child and its supervisor, either end; whole JSON messages, non-blocking.

    `send` drops what finds the socket full or closed: both sides talk seldom, and a side that does not
    listen is about to be killed.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Raises ValueError for a message that is too large."""
        data = json.dumps(message).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(data)} bytes, at most {MAX_MESSAGE_BYTES}")
        with contextlib.suppress(ConnectionError, BlockingIOError):
            self._socket.send(data)

    def receive(self) -> list[dict[str, Any]]:
        """What has come since the last call.  Raises EOFError when the other side has closed."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                data = self._socket.recv(MAX_MESSAGE_BYTES)
            except BlockingIOError:
                return found
            except ConnectionError:
                data = b""
            if not data:
                if found:
                    return found
                raise EOFError("the other process has ended")
            found.append(json.loads(data))

    def close(self) -> None:
        self._socket.close()


class Nursery:
    """The supervisor's side of the process that makes the others.

    `events` tells of children: `spawned` (name, pid), `exited` (name, pid, code).  A child runs
    `module:function(argument, channel)` with its end of a `ChildChannel`; the int that it returns is
    the exit code (negative in `exited`: ended by that signal).
    """

    def __init__(self, common: Sequence[str], preload: Sequence[str]) -> None:
        """Import `common` here, fork, and have the nursery import `preload` on its own.

        To be called before any reactor or thread exists.
        """
        for module in common:
            importlib.import_module(module)
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.collect()
        gc.freeze()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                mine.close()
                _run_nursery(theirs, preload)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self._socket = mine
        self._channel = ChildChannel(mine)

    def fileno(self) -> int:
        return self._socket.fileno()

    def spawn(
        self, name: str, function: str, argument: dict[str, Any], output: str
    ) -> ChildChannel:
        """Ask for a child; `output` is the file that its stdout and stderr are appended to."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = {"name": name, "function": function, "argument": argument, "output": output}
            data = json.dumps(message).encode()
            if len(data) > MAX_MESSAGE_BYTES:
                mine.close()
                limit = MAX_MESSAGE_BYTES
                raise ValueError(f"{name}: {len(data)} bytes of arguments, at most {limit}")
            socket.send_fds(self._socket, [data], [theirs.fileno()])
        return ChildChannel(mine)

    def remove_at_end(self, directory: str) -> None:
        """Remove this directory when all children are gone, even if the supervisor is killed."""
        self._socket.send(json.dumps({"remove": directory}).encode())

    def events(self) -> list[dict[str, Any]]:
        """What has happened since the last call; never waits.  Raises EOFError when it is gone."""
        return self._channel.receive()

    def close(self) -> None:
        """End the nursery and with it every child that still runs; waits until it is gone."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def die_with_parent(expected_parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != expected_parent:
        os._exit(1)


class _Gone(Exception):
    """The maker has closed its end, or is dead."""


def _run_nursery(channel: socket.socket, preload: Sequence[str]) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for module in preload:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    _NurseryLoop(channel).run()


class _NurseryLoop:
    """Forks on request and reports ends, until the maker is gone."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names: dict[int, str] = {}
        self._remove: list[str] = []

    def run(self) -> None:
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            while True:
                readable, _, _ = select.select([self._channel.fileno(), self._wake_read], [], [])
                if self._wake_read in readable:
                    os.read(self._wake_read, 4096)
                    self._reap()
                if self._channel.fileno() in readable:
                    self._obey()
        except _Gone:
            self._end_all()
            for directory in self._remove:
                shutil.rmtree(directory, ignore_errors=True)

    def _obey(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._channel, MAX_MESSAGE_BYTES, 1)
        except ConnectionError:
            raise _Gone from None
        if not data:
            raise _Gone
        message = json.loads(data)
        if "remove" in message:
            self._remove.append(message["remove"])
            return
        nursery = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._channel.close()
            os._exit(_run_child(fds[0], message, nursery))
        os.close(fds[0])
        self._names[pid] = message["name"]
        self._say({"event": "spawned", "name": message["name"], "pid": pid})

    def _reap(self) -> None:
        while self._names:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            name = self._names.pop(pid)
            self._say({"event": "exited", "name": name, "pid": pid, "code": code})

    def _end_all(self) -> None:
        for pid in sorted(self._names):
            os.kill(pid, signal.SIGKILL)
        for pid in sorted(self._names):
            os.waitpid(pid, 0)

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(json.dumps(message).encode())
        except ConnectionError:
            raise _Gone from None


def _run_child(channel: int, message: dict[str, Any], nursery: int) -> int:
    """In the new process: become what was asked for; never raises."""
    try:
        die_with_parent(nursery)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        output = os.open(message["output"], flags, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        module, _, function = message["function"].partition(":")
        target = getattr(importlib.import_module(module), function)
        code = target(message["argument"], ChildChannel(socket.socket(fileno=channel)))
        return int(code or 0)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
