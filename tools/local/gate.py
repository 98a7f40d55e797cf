"""A broker's surroundings behind a gate: how one broker of many in a process is frozen or killed.

Everything that makes a broker do something (timers, frames, connections, results of threads) passes the
gate.  While it is shut, that waits, as for a process that got SIGSTOP; once the broker is dead it is
dropped, its connections are reset and its files closed, as the kernel does for a killed process.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar
from weakref import WeakSet

from twisted.internet.defer import Deferred

from kafkalike.runtime.ports import (
    Clock,
    Disk,
    DiskLock,
    File,
    FrameProtocol,
    ListeningPort,
    Network,
    Runtime,
    StorageError,
    Threads,
    Timer,
    Transport,
)

from .forwarding import ForwardingTransport

T = TypeVar("T")


class Gate:
    """Open, shut, or dead for good."""

    def __init__(self, runtime: Runtime) -> None:
        self.is_open = True
        self.is_dead = False
        self._waiting: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._real = runtime
        self.network = _GatedNetwork(runtime.network, self)
        self.disk: Any = _TrackedDisk(runtime.disk)
        self.runtime = replace(
            runtime,
            clock=_GatedClock(runtime.clock, self),
            network=self.network,
            disk=self.disk,
            threads=_GatedThreads(runtime.threads, self),
        )

    def run(self, callback: Callable[..., object], *args: object) -> None:
        """Now, when the gate opens, or never."""
        if self.is_open and not self._waiting:
            callback(*args)
        elif not self.is_dead:
            self._waiting.append((callback, args))

    def shut(self) -> None:
        self.is_open = False
        self.network.hold()

    def open(self) -> None:
        self.is_open = True
        self.network.release()
        self._real.clock.call_later(0.0, self._flow)

    def _flow(self) -> None:
        while self._waiting and self.is_open:
            callback, args = self._waiting.popleft()
            callback(*args)

    def kill(self) -> None:
        self.is_open = False
        self.is_dead = True
        self._waiting.clear()
        self.network.kill()
        self.disk.let_go()


class _GatedTimer:
    __slots__ = ("_args", "_callback", "timer")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self.timer: Timer

    def fire(self) -> None:
        if self._callback is not None:
            self._callback(*self._args)

    def cancel(self) -> None:
        self._callback = None
        self.timer.cancel()


class _GatedClock:
    def __init__(self, clock: Clock, gate: Gate) -> None:
        self._clock = clock
        self._gate = gate
        self.now_ms = clock.now_ms
        self.monotonic = clock.monotonic

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        gated = _GatedTimer(callback, args)
        gated.timer = self._clock.call_later(delay_s, self._gate.run, gated.fire)
        return gated

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._clock.call_soon(self._gate.run, callback, *args)


class _GatedThreads:
    def __init__(self, threads: Threads, gate: Gate) -> None:
        self._threads = threads
        self._gate = gate

    def run(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        return _gated(self._threads.run(function, *args), self._gate)


def _gated(source: "Deferred[T]", gate: Gate) -> "Deferred[T]":
    """Fires like `source`, through the gate."""
    result: Deferred[T] = Deferred(lambda _: source.cancel())

    def settle(value: Any) -> None:
        if not result.called:
            result.callback(value)  # a Failure takes the error path by itself

    source.addBoth(lambda value: gate.run(settle, value))
    return result


class _Guard(ForwardingTransport):
    """One connection: protocol towards the network, transport towards the broker."""

    def __init__(self, protocol: FrameProtocol, network: "_GatedNetwork") -> None:
        super().__init__()
        self._protocol = protocol
        self._network = network

    def connected(self, transport: Transport) -> None:
        self._transport = transport
        self._network.guards[self] = None
        if self._network.gate.is_dead:
            transport.abort()
            return
        if not self._network.gate.is_open:
            transport.pause()
        self._network.gate.run(self._protocol.connected, self)

    def frame_received(self, frame: memoryview) -> None:
        gate = self._network.gate
        if gate.is_open:
            self._protocol.frame_received(frame)
        else:
            gate.run(self._protocol.frame_received, memoryview(bytearray(frame)))

    def disconnected(self, reason: str) -> None:
        self._network.guards.pop(self, None)
        self._network.gate.run(self._protocol.disconnected, reason)

    def hold(self) -> None:
        self._transport.pause()

    def let_go(self) -> None:
        if not self._paused:
            self._transport.resume()

    def resume(self) -> None:
        self._paused = False
        if self._network.gate.is_open:
            self._transport.resume()


class _GatedPort:
    """A listening port whose owner may be frozen."""

    def __init__(self, port: ListeningPort, gate: Gate) -> None:
        self.port_ = port
        self.host = port.host
        self.port = port.port
        self._gate = gate
        self._paused = False

    def pause(self) -> None:
        self._paused = True
        self.port_.pause()

    def resume(self) -> None:
        self._paused = False
        if self._gate.is_open:
            self.port_.resume()

    def hold(self) -> None:
        self.port_.pause()

    def let_go(self) -> None:
        if not self._paused:
            self.port_.resume()

    def stop(self) -> "Deferred[None]":
        return self.port_.stop()


class _GatedNetwork:
    def __init__(self, network: Network, gate: Gate) -> None:
        self.gate = gate
        self.guards: dict[_Guard, None] = {}
        self._network = network
        self._ports: list[_GatedPort] = []

    def listen(
        self, host: str, port: int, accept: Callable[[str], FrameProtocol | None], **options: Any
    ) -> ListeningPort:
        def guarded(peer_host: str) -> FrameProtocol | None:
            protocol = accept(peer_host)
            return None if protocol is None else _Guard(protocol, self)

        listening = _GatedPort(self._network.listen(host, port, guarded, **options), self.gate)
        self._ports.append(listening)
        return listening

    def connect(
        self, host: str, port: int, protocol: FrameProtocol, **options: Any
    ) -> "Deferred[None]":
        guard = _Guard(protocol, self)
        return _gated(self._network.connect(host, port, guard, **options), self.gate)

    def hold(self) -> None:
        for port in self._ports:
            port.hold()
        for guard in self.guards:
            guard.hold()

    def release(self) -> None:
        for port in self._ports:
            port.let_go()
        for guard in self.guards:
            guard.let_go()

    def kill(self) -> None:
        for port in self._ports:
            port.stop()
        for guard in list(self.guards):
            guard.abort()


class _TrackedDisk:
    """A Disk that knows which files and locks are open."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: WeakSet[Any] = WeakSet()
        self._locks: list[DiskLock] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str, *, create: bool = False) -> Any:
        file = _TrackedFile(self._disk.open(path, create=create))
        self._files.add(file)
        return file

    def lock(self, path: str) -> DiskLock:
        lock = self._disk.lock(path)
        self._locks.append(lock)
        return lock

    def let_go(self) -> None:
        """Close everything, as the end of a process does."""
        for file in list(self._files):
            file.let_go()
        for lock in self._locks:
            with contextlib.suppress(StorageError, OSError):
                lock.release()


_FILE_METHODS: Final = (
    "size",
    "append",
    "pread",
    "pwrite",
    "truncate",
    "sync",
    "is_cached",
    "fileno",
    "retain",
    "release",
)


class _TrackedFile:
    """A File that can be referred to weakly and is closed once."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._closed = False
        self.path = file.path
        for name in _FILE_METHODS:
            setattr(self, name, getattr(file, name))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._file.close()

    def let_go(self) -> None:
        self.close()
