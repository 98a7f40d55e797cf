"""A pytest plugin for kazoo's own test suite: its ZooKeeper cluster becomes the embedded service.

Takes the place of `kazoo.testing.common`, which starts Java servers and needs TLS libraries.  Run as

    pytest -p kazoo_cluster --pyargs kazoo.tests      (this folder on PYTHONPATH)
"""

import gc
import os
import pathlib
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

import pytest

from tests.integration.coordination.servers import Server, start_embedded
from tests.ports import free_port

SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
os.environ.setdefault("ZOOKEEPER_VERSION", "3.8.4")


class EmbeddedServer:
    """What the suite expects of one managed ZooKeeper."""

    def __init__(self) -> None:
        self._port = free_port()
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="kazoo-suite-"))
        self._server: Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    secure_address = address

    @property
    def client_port(self) -> int:
        return self._port

    @property
    def running(self) -> bool:
        return self._server is not None

    def run(self) -> None:
        if self._server is None:
            options = (
                *("--super", SUPER_DIGEST, "--max-buffer", str(0xFFFFF)),
                *("--data-dir", str(self._directory / "data")),
            )
            self._server = start_embedded(self._directory, *options, port=self._port)

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def reset(self) -> None:
        self.stop()
        shutil.rmtree(self._directory / "data", ignore_errors=True)

    def destroy(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


class EmbeddedCluster:
    """A "cluster" of one."""

    def __init__(self, **_: Any) -> None:
        self._servers = [EmbeddedServer()]

    def __getitem__(self, index: int) -> EmbeddedServer:
        return self._servers[index]

    def __iter__(self) -> Iterator[EmbeddedServer]:
        return iter(self._servers)

    def start(self) -> None:
        for server in self._servers:
            server.run()

    def stop(self) -> None:
        for server in self._servers:
            server.stop()

    def terminate(self) -> None:
        for server in self._servers:
            server.destroy()

    def reset(self) -> None:
        for server in self._servers:
            server.reset()

    def get_logs(self) -> list[str]:
        return []


def _count(type_name: str) -> int:
    """`objgraph.count`: how many objects of that type there are."""
    return sum(type(thing).__name__ == type_name for thing in gc.get_objects())


_objgraph = types.ModuleType("objgraph")
_objgraph.count = _count  # type: ignore[attr-defined]
sys.modules.setdefault("objgraph", _objgraph)
SKIPPED = {
    "TestReconfig": "changing the members of an ensemble: there is one server",
    "TestSSLClient": "TLS between client and server is not offered",
    "TestReadOnlyMode": "read-only mode of a server that lost its ensemble: there is one server",
    "test_update_host_list": "needs a second server to move to",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name, reason in SKIPPED.items():
            if name in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"embedded: {reason}"))


_common = types.ModuleType("kazoo.testing.common")
_common.ZookeeperCluster = EmbeddedCluster  # type: ignore[attr-defined]
sys.modules["kazoo.testing.common"] = _common
