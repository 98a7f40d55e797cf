"""A cluster's persistent znodes as JSON, out of and into any ZooKeeper, with brokers stopped.

The format is that of `zk/server/export.py`.  Ephemeral nodes and `/zookeeper` are left out.  A new
service gives new nodes version 0 and its own zxids.  What was stored of the old ones is taken away: the
remark on former members of an ISR (ADR 0008), without which Kafka's rules hold.
"""

import base64
import binascii
import json
import pathlib
from collections.abc import Callable
from typing import Any, Final

from kafkalike.runtime.ports import Runtime
from kafkalike.zk import paths
from kafkalike.zk.client import NodeExists, NoNode
from kafkalike.zk.payload import encode
from kafkalike.zk.server.export import FORMAT
from kafkalike.zk.server.server import CoordinationServer
from kafkalike.zk.wire import OPEN_ACL, Acl
from kafkalike.zk.znodes import FORMER_ISR, MIN_ISR_ZXIDS

from .. import cli
from .zk_session import WireSession

ZOOKEEPERS_OWN: Final = "/zookeeper"


def export_over_wire(session: WireSession) -> dict[str, Any]:
    """Everything below the session's chroot.  Raises CommandError while brokers are registered."""
    refuse_brokers(session)
    nodes: list[dict[str, Any]] = []
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        try:
            data, stat = session.get(path)
            acl = session.acl(path)
            names = session.children(path)
        except NoNode:
            continue  # an ephemeral node that has just ended
        if stat.ephemeral_owner:
            continue
        nodes.append(
            {
                "path": path,
                "data": None if data is None else base64.b64encode(data).decode(),
                "acl": [list(entry) for entry in acl],
                "version": stat.version,
                "creates": stat.cversion,
                "aversion": stat.aversion,
            }
        )
        below = "" if path == "/" else path
        waiting += [f"{below}/{name}" for name in reversed(names)]
        if path == "/" and "zookeeper" in names and not session.chroot:
            waiting.remove(ZOOKEEPERS_OWN)
    return {"format": FORMAT, "nodes": nodes}


def count_below_root(dump: dict[str, Any]) -> int:
    """How many znodes an export moves; the root is there everywhere."""
    return sum(entry["path"] != "/" for entry in dump["nodes"])


def import_over_wire(session: WireSession, dump: dict[str, Any]) -> int:
    """Create everything; how many znodes.  Raises CommandError when there are some already."""
    if session.chroot:
        _make_chroot(session)
    there = [name for name in session.children("/") if session.chroot or name != "zookeeper"]
    if there:
        raise cli.CommandError(
            f"the target is not empty, it has /{there[0]}: choose another path or remove what is there"
        )
    count = 0
    for path, data, acl in checked_nodes(dump):
        if path != "/":
            session.create(path, data, acl)
            count += 1
    return count


def _make_chroot(session: WireSession) -> None:
    whole, session.chroot = session.chroot, ""
    parts = whole.strip("/").split("/")
    for length in range(1, len(parts) + 1):
        try:
            session.create("/" + "/".join(parts[:length]), None)
        except NodeExists:
            continue
    session.chroot = whole


def refuse_brokers(session: WireSession) -> None:
    """Raises CommandError while brokers are registered."""
    try:
        brokers = session.children(paths.BROKER_IDS)
    except NoNode:
        return
    if brokers:
        raise cli.CommandError(f"brokers are running: {', '.join(brokers)}; stop them first")


def checked_nodes(dump: Any) -> list[tuple[str, bytes | None, tuple[Acl, ...]]]:
    """(path, data, acl) of every node.  Raises CommandError for what is no export."""
    if not isinstance(dump, dict) or dump.get("format") != FORMAT:
        raise cli.CommandError(f"this is no export of format {FORMAT}")
    found: list[tuple[str, bytes | None, tuple[Acl, ...]]] = []
    for position, entry in enumerate(dump.get("nodes", ())):
        try:
            text = entry["data"]
            data = None if text is None else base64.b64decode(text, validate=True)
            acl = tuple(Acl(int(p), str(scheme), str(who)) for p, scheme, who in entry["acl"])
            found.append((str(entry["path"]), without_zxids(data), acl or OPEN_ACL))
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise cli.CommandError(f"nodes[{position}]: {error!r}") from error
    return found


def without_zxids(data: bytes | None) -> bytes | None:
    """The payload without keys whose values are zxids of the service that it comes from."""
    if data is None or FORMER_ISR.encode() not in data:
        return data
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(value, dict) or FORMER_ISR not in value:
        return data
    for key in (FORMER_ISR, MIN_ISR_ZXIDS):
        value.pop(key, None)
    return encode(value)


class _NoPort:
    """In the place of a listening port: nobody is to connect."""

    def __init__(self) -> None:
        self.port = 0

    def getHost(self) -> "_NoPort":
        return self

    def stopListening(self) -> None:
        """There is nothing to stop."""


async def on_directory(
    runtime: Runtime, directory: pathlib.Path, work: Callable[[CoordinationServer], Any]
) -> Any:
    """Run `work` on the embedded service of a directory, which nobody else runs, without a port."""
    server = CoordinationServer(
        listen=lambda *args, **more: _NoPort(),
        clock=runtime.clock,
        random=runtime.random,
        threads=runtime.threads,
        disk=runtime.disk,
        data_dir=str(directory.resolve()),
    )
    await server.start()
    try:
        return await work(server)
    finally:
        await server.stop()


def read_dump(path: pathlib.Path) -> Any:
    try:
        return json.loads(cli.read_text("import", path))
    except ValueError as error:
        raise cli.CommandError(f"{path} is not JSON: {error}") from error


def write_dump(path: pathlib.Path, dump: dict[str, Any]) -> None:
    """Appear complete or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(dump, indent=1) + "\n")
    temporary.replace(path)
