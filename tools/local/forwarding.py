"""A transport that stands before another one: what gates and faults on links share."""

from typing import Any

from kafkalike.runtime.ports import Transport


class ForwardingTransport:
    """Passes on whatever is asked of it; a subclass comes between where it has to.

    `_transport` is set when the connection is there.  `_paused` is what the protocol wants, whatever
    the subclass does meanwhile.
    """

    def __init__(self) -> None:
        self._transport: Transport
        self._paused = False

    @property
    def peer_host(self) -> str:
        return self._transport.peer_host

    @property
    def peer_port(self) -> int:
        return self._transport.peer_port

    @property
    def local_host(self) -> str:
        return self._transport.local_host

    @property
    def local_port(self) -> int:
        return self._transport.local_port

    def write(self, parts: Any) -> None:
        self._transport.write(parts)

    def pause(self) -> None:
        self._paused = True
        self._transport.pause()

    def resume(self) -> None:
        self._paused = False
        self._transport.resume()

    def limit_frames(self, max_frame_bytes: int) -> None:
        self._transport.limit_frames(max_frame_bytes)

    def unsent_bytes(self) -> int:
        return self._transport.unsent_bytes()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
