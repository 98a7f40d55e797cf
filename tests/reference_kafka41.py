"""Apache Kafka 4.1.2 in KRaft mode as one process: what the newer group protocol is compared with.

The jars come through Maven once and stay in the user's cache.  The process dies with the one that
started it.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.ports import free_port
from tests.reference_kafka import die_with_parent
from tests.reference_kafka import jars as fetch_jars

POM: Final = Path(__file__).with_name("reference_kafka41.pom.xml")
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
START_LIMIT_S: Final = 180.0
TOOL_LIMIT_S: Final = 120.0


def jars() -> Path:
    """The folder with the jars, fetched on first use.  Raises ReferenceMissing."""
    return fetch_jars(POM)


@contextlib.contextmanager
def reference_kafka41(folder: Path, settings: Mapping[str, str]) -> Iterator[int]:
    """Broker and controller in one; the port of the broker.  Raises ReferenceMissing."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    path = folder / "server.properties"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str((folder / "data").resolve()),
        **settings,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", "-cp", f"{jars()}/*"]
    words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(path)]
    subprocess.run([*java, *words], capture_output=True, timeout=TOOL_LIMIT_S, check=True)
    with (folder / "out").open("ab") as out:
        process = subprocess.Popen(
            [*java, "-Xmx512M", "kafka.Kafka", str(path)],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not _serves(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no broker: {(folder / 'out').read_text()[-2000:]}")
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def _serves(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False
