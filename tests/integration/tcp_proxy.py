"""A TCP proxy on 127.0.0.1 that cuts, stalls, and loses answers when told to."""

import contextlib
import socket
import threading
from types import TracebackType


class TcpProxy:
    """Forwards each connection to `target` ("host:port").

    `cut` breaks all connections; `refuse` also refuses new ones until `accept`; `stall` holds all
    bytes in both directions; `lose_answers` forwards requests but drops what comes back.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._flow = threading.Event()
        self._flow.set()
        self.losing_answers = False
        self.refusing = False
        self.forwarded_bytes = 0
        """From clients to the server, so far."""
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        with self._lock:
            self._cut()

    def _cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        self.refusing = True
        self.cut()

    def accept(self) -> None:
        self.refusing = False

    def stall(self) -> None:
        self._flow.clear()

    def resume(self) -> None:
        self._flow.set()

    def lose_answers(self) -> None:
        """Until the next `heal`."""
        self.losing_answers = True

    def heal(self) -> None:
        """Break what lost answers, and let new connections work."""
        with self._lock:  # no connection comes meanwhile, and the old ones bring nothing more
            self._cut()
            self.losing_answers = False

    def close(self) -> None:
        self._closed = True
        self._flow.set()
        self._listener.close()
        self.cut()

    def __enter__(self) -> "TcpProxy":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, server))
            for source, target, answers in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._pump, args=(source, target, answers), daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        try:
            while chunk := source.recv(65536):
                self._flow.wait()
                if answers and self.losing_answers:
                    continue
                if not answers:
                    self.forwarded_bytes += len(chunk)
                target.sendall(chunk)
        except OSError:
            pass
        finally:
            for sock in (source, target):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            if answers:
                for sock in (source, target):
                    sock.close()
