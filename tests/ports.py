"""Ports for servers of the tests."""

import socket
from typing import Final

_given: Final[set[int]] = set()


def free_port() -> int:
    """One of 127.0.0.1 on which nobody listens, and which this process was not given before.

    The kernel may name a port again that nobody has bound yet.
    """
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port
