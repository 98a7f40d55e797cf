"""Damage to the end of a log, as a power cut leaves it."""

import pathlib
from typing import Any, Final

from .. import cli

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


def corrupt_log_tail(
    data: pathlib.Path, topic: str, partition: int, count: int, how: str
) -> dict[str, Any]:
    """Cut `count` bytes off the newest segment with records, or flip them.  Raises CommandError."""
    if count < 1:
        raise cli.CommandError(f"bytes: expected 1 or more, found {count}")
    folder = data / f"{topic}-{partition}"
    segments = [path for path in sorted(folder.glob("*.log")) if path.stat().st_size]
    if not segments:
        raise cli.CommandError(f"{folder}: there are no records to damage")
    path = segments[-1]
    size = path.stat().st_size
    count = min(count, size)
    with path.open("r+b") as file:
        if how == "truncate":
            file.truncate(size - count)
        else:
            file.seek(size - count)
            tail = file.read(count)
            file.seek(size - count)
            file.write(bytes(byte ^ 0xFF for byte in tail))
    (data / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    return {"file": str(path), "size_before": size, "size_after": path.stat().st_size}
