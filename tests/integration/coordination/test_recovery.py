"""The embedded service as a process: killed, restarted, on a disk that is full."""

import pathlib
import shutil
import threading
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from .servers import Server, embedded, four_letter_word, start_embedded

PATIENCE_S = 30.0


def client_of(server: Server, timeout_s: float = 10.0) -> KazooClient:
    client = KazooClient(server.hosts, timeout=timeout_s)
    client.start(PATIENCE_S)
    return client


class Writer:
    """Writes one node after the other, pipelined, and keeps what was acknowledged."""

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self.acknowledged: list[str] = []
        self.session_id = 0
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client = KazooClient(self._server.hosts, timeout=20.0)
        client.start(PATIENCE_S)
        self.session_id = client.client_id[0]
        client.create(f"/e-{self.name}", b"", ephemeral=True)
        number = 0
        while not self._stop.is_set():
            batch = []
            for _ in range(20):
                path = f"/{self.name}-{number}"
                batch.append((path, client.create_async(path, path.encode())))
                number += 1
            for path, result in batch:
                try:
                    result.get(PATIENCE_S)
                except KazooException:
                    self._stop.wait(0.05)
                else:
                    self.acknowledged.append(path)
        client.retry(client.get, "/")  # connected, so that the session can be closed
        client.stop()
        client.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def test_nothing_acknowledged_is_lost_by_kills(tmp_path: pathlib.Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"), "--snapshot-every", "700")
    server = start_embedded(tmp_path, *data)
    writers = [Writer(server, name) for name in ("a", "b", "c")]
    try:
        for _ in range(4):
            goal = sum(len(w.acknowledged) for w in writers) + 300
            deadline = time.monotonic() + PATIENCE_S
            while sum(len(w.acknowledged) for w in writers) < goal:
                assert time.monotonic() < deadline, "the writers do not get on"
                time.sleep(0.05)
            server.kill()
            server = start_embedded(tmp_path, *data, port=server.port)
        sessions = [w.session_id for w in writers]
    finally:
        for writer in writers:
            writer.stop()
    client = client_of(server)
    try:
        present = set(client.get_children("/"))
        for writer in writers:
            assert len(writer.acknowledged) > 50
            missing = [p for p in writer.acknowledged if p[1:] not in present]
            assert missing == []
            assert client.get(writer.acknowledged[-1])[0] == writer.acknowledged[-1].encode()
        # The sessions outlived the kills and were closed in order: no ephemerals are left.
        assert len(set(sessions)) == 3
        assert [name for name in present if name.startswith("e-")] == []
    finally:
        client.stop()
        client.close()
        server.stop()


def test_a_session_and_its_ephemerals_outlive_a_kill(tmp_path: pathlib.Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    server = start_embedded(tmp_path, *data)
    client = client_of(server, timeout_s=20.0)
    try:
        session = client.client_id[0]
        client.create("/e", b"mine", ephemeral=True)
        server.kill()
        server = start_embedded(tmp_path, *data, port=server.port)
        assert client.retry(client.get, "/e")[1].ephemeralOwner == session
        assert client.client_id[0] == session
    finally:
        client.stop()
        client.close()
        server.stop()


def test_a_full_disk_stops_the_service_with_its_reason(tmp_path: pathlib.Path) -> None:
    """A limit on the size of files stands in for a full device."""
    if shutil.which("prlimit") is None:
        pytest.skip("needs prlimit (util-linux)")
    data = ("--data-dir", str(tmp_path / "data"))
    server = start_embedded(tmp_path, *data, prefix=("prlimit", f"--fsize={256 * 1024}"))
    client = KazooClient(server.hosts, timeout=10.0)
    client.start(PATIENCE_S)
    acknowledged = []
    with pytest.raises(KazooException):
        for number in range(1000):
            client.create(f"/n{number}", b"x" * 1000)
            acknowledged.append(f"n{number}")
    assert 100 < len(acknowledged) < 300
    client.stop()
    client.close()
    assert server.process.wait(PATIENCE_S) == 3
    assert "File too large" in server.log()
    assert "coordination service stops, its disk failed" in server.log()
    with embedded(tmp_path, *data) as again:
        reader = client_of(again)
        present = set(reader.get_children("/"))
        assert present.issuperset(acknowledged)
        reader.stop()
        reader.close()


def test_it_starts_fast_and_stops_cleanly(tmp_path: pathlib.Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    server = start_embedded(tmp_path, *data)
    assert four_letter_word(server, b"ruok") == b"imok"
    assert server.stop() == 0
    with pytest.raises(RuntimeError, match="failed"):
        (tmp_path / "data" / "log-0000000000000001").write_bytes(b"not a log, nothing of the kind")
        start_embedded(tmp_path, *data)


def test_a_directory_has_one_server(tmp_path: pathlib.Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    with (
        embedded(tmp_path / "first", *data),
        pytest.raises(RuntimeError, match="lock"),
    ):
        start_embedded(tmp_path / "second", *data)
