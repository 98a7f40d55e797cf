"""Where a local cluster keeps things: its directory, and the ports that stay the same between starts.

DIR/cluster.json           what the first start chose (brokers, ports)
DIR/lock                   held while a supervisor runs
DIR/temporary              there in a directory that is thrown away at the end
DIR/coordination/          the embedded coordination service
DIR/broker-ID/             data/, server.properties, broker.log
DIR/cluster.log            what the coordination service logs; in a single process everybody
DIR/snapshots/NAME/        copies made by the snapshot verb
"""

import contextlib
import json
import logging
import os
import pathlib
import shutil
import socket
import stat
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.runtime.ports import Disk, StorageError

from .. import cli
from ..listeners import who_listens

FILE_NAME: Final = "cluster.json"
FORMAT: Final = 1
LOCK: Final = "lock"
TEMPORARY: Final = "temporary"
TEMPORARY_PREFIX: Final = "kafkalike-"
CLUSTER_LOG: Final = "cluster.log"
LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
HOST: Final = "127.0.0.1"
_LAST_LINES: Final = 200


@dataclass(slots=True)
class Layout:
    """What has to be the same at the next start.  Ports by purpose: `broker-1`, `zookeeper`..."""

    brokers: int
    ports: dict[str, int] = field(default_factory=dict)


def read_layout(directory: pathlib.Path) -> Layout | None:
    """What an earlier start wrote, None when there was none.  Raises CommandError."""
    path = directory / FILE_NAME
    try:
        data: Any = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise cli.CommandError(f"{path}: {error}") from error
    try:
        if data["format"] != FORMAT:
            raise cli.CommandError(f"{path}: format {data['format']}, expected {FORMAT}")
        return Layout(int(data["brokers"]), {str(k): int(v) for k, v in data["ports"].items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise cli.CommandError(f"{path}: not as written by kafkalike up: {error!r}") from error


def write_layout(directory: pathlib.Path, layout: Layout) -> None:
    path = directory / FILE_NAME
    temporary = path.with_suffix(".tmp")
    data = {"format": FORMAT, "brokers": layout.brokers, "ports": layout.ports}
    temporary.write_text(json.dumps(data, indent=2) + "\n")
    temporary.replace(path)


def mark_temporary(directory: pathlib.Path, *, temporary: bool) -> None:
    """Say whether the directory may be removed once nobody holds its lock; the caller holds it.

    A directory that was left behind and is used again by name is somebody's from then on.
    """
    if temporary:
        (directory / TEMPORARY).touch()
    else:
        (directory / TEMPORARY).unlink(missing_ok=True)


def remove_abandoned(disk: Disk, parent: pathlib.Path) -> list[pathlib.Path]:
    """Remove temporary directories whose supervisor is dead, however it died; which those were.

    Only what carries the mark of `mark_temporary`, which is made under the lock: whoever gets the
    lock of such a directory knows that its maker is gone.  Blocks; what cannot be removed stays.
    """
    removed: list[pathlib.Path] = []
    for directory in parent.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError, StorageError):
            facts = directory.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
                continue
            if not (directory / TEMPORARY).is_file():
                continue
            lock = disk.lock(str(directory / LOCK))
            try:
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                lock.release()
            removed.append(directory)
    return removed


class Reservations:
    """Ports kept for the brokers of a cluster, also while a broker is down.

    A socket is bound to each and never listens.  The broker binds the same port (SO_REUSEADDR);
    nobody gets it by chance, neither as the port of an outgoing connection nor by asking for any.
    """

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}

    def take(self, purpose: str, port: int, *, otherwise_any: bool = False) -> int:
        """Reserve `port` (0: any); a taken one is replaced when `otherwise_any`.

        Raises CommandError for a port that somebody listens on.
        """
        try:
            self._sockets[purpose] = sock = _bind(port)
        except OSError as error:
            if not otherwise_any:
                raise cli.CommandError(
                    f"port {port} for {purpose}: {error.strerror}{who_listens(port)}; --port takes"
                    " another, --port 0 those that are free"
                ) from error
            self._sockets[purpose] = sock = _bind(0)
        return int(sock.getsockname()[1])

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()


def _bind(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((HOST, port))
    except OSError:
        sock.close()
        raise
    return sock


def open_log(directory: pathlib.Path, level: str) -> logging.Handler:
    """Send what this process logs to a file from now on."""
    handler = logging.FileHandler(directory / CLUSTER_LOG)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logger = logging.getLogger("kafkalike")
    logger.setLevel(level)
    logger.addHandler(handler)
    return handler


def close_log(handler: logging.Handler) -> None:
    """The reverse of `open_log`."""
    logging.getLogger("kafkalike").removeHandler(handler)
    handler.close()


def last_line(path: pathlib.Path) -> str:
    """The last thing a process printed, for the message about its end: an error if there is one."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = path.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
    for line in reversed(lines):
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    for line in reversed(lines):
        if "] CRITICAL " in line or "] ERROR " in line:
            return line
    return lines[-1] if lines else f"see {path}"
