"""Processes of a local cluster, forked from one that has everything imported already.

A forked broker starts in milliseconds and shares the pages of the code with its siblings.  Forking
must happen where no reactor and no thread exists, so a small process of its own (the nursery) is
forked first and makes all others on request.  The kernel ends the nursery with its maker and every
child with the nursery: nothing outlives a killed supervisor.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

MAX_MESSAGE_BYTES: Final = 1 << 16
_PR_SET_PDEATHSIG: Final = 1

Report = Callable[[dict[str, Any]], None]
"""Tell the supervisor something; keys `event` and `name` are reserved."""


class Nursery:
    """The supervisor's side.  Events: `spawned` (pid), `exited` (pid, code), and what children say.

    A child runs `module:function(argument, report)`; its int result is the exit code (negative in
    `exited`: ended by that signal).
    """

    def __init__(self, preload: list[str]) -> None:
        """Import `preload` here, then fork; call it before any reactor or thread exists."""
        for module in preload:
            importlib.import_module(module)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.collect()
        gc.freeze()
        maker = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self.socket.close()
            code = 1
            try:
                _run_nursery(theirs, maker)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self.socket.setblocking(False)

    def spawn(self, name: str, function: str, argument: dict[str, Any], output: str | None) -> None:
        """Ask for a child; `output` is the file that its stdout and stderr are appended to."""
        message = {"name": name, "function": function, "argument": argument, "output": output}
        data = json.dumps(message).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"{name}: {len(data)} bytes of arguments, at most {MAX_MESSAGE_BYTES}")
        self.socket.send(data)

    def events(self) -> list[dict[str, Any]]:
        """What has happened since the last call; never waits.  Raises EOFError when it is gone."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                data = self.socket.recv(MAX_MESSAGE_BYTES)
            except BlockingIOError:
                return found
            if not data:
                if found:
                    return found
                raise EOFError("the process that makes the others has ended")
            found.append(json.loads(data))

    def close(self) -> None:
        """End the nursery and with it every child that still runs."""
        self.socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def die_with_parent(expected_parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != expected_parent:
        os._exit(1)


def _run_nursery(channel: socket.socket, maker: int) -> None:
    die_with_parent(maker)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    names: dict[int, str] = {}
    while True:
        readable, _, _ = select.select([channel.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            _reap(channel, names)
        if channel.fileno() in readable:
            data = channel.recv(MAX_MESSAGE_BYTES)
            if not data:
                _end_all(names)
                return
            message = json.loads(data)
            nursery = os.getpid()
            pid = os.fork()
            if pid == 0:
                os.close(wake_read)
                os.close(wake_write)
                os._exit(_run_child(channel, message, nursery))
            names[pid] = message["name"]
            _say(channel, {"event": "spawned", "name": message["name"], "pid": pid})


def _end_all(names: dict[int, str]) -> None:
    for pid in sorted(names):
        os.kill(pid, signal.SIGKILL)
    for pid in sorted(names):
        os.waitpid(pid, 0)


def _reap(channel: socket.socket, names: dict[int, str]) -> None:
    while names:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        _say(channel, {"event": "exited", "name": names.pop(pid), "pid": pid, "code": code})


def _say(channel: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(ConnectionError):
        channel.send(json.dumps(message).encode())


def _run_child(channel: socket.socket, message: dict[str, Any], nursery: int) -> int:
    """In the new process: become what was asked for; never raises."""
    try:
        die_with_parent(nursery)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if message["output"]:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            output = os.open(message["output"], flags, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
        module, _, function = message["function"].partition(":")
        target = getattr(importlib.import_module(module), function)
        name = message["name"]

        def report(news: dict[str, Any]) -> None:
            _say(channel, news | {"name": name})

        code = target(message["argument"], report)
        return int(code or 0)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
