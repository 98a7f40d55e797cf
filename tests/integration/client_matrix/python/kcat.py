"""kcat: a command line program, run anew for every command.

It gives all records of one run the same headers and no timestamps, makes no topics and reads no
settings; it prints headers as text.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, BinaryIO, Final

from tests.integration.client_matrix.contract import CODECS, PartitionView, Record, serve

LIMIT_S: Final = 300.0
END: Final = "<~end-of-record-1f6b2c~>"
MIDDLE: Final = "<~key-ends-here-9d04e7~>"
FORMAT: Final = r"%p %o %T %K %S %h\n%k%s"


def run(*arguments: str, given: Iterable[bytes] = ()) -> bytes:
    with subprocess.Popen(
        ["kcat", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        for data in given:
            process.stdin.write(data)
        out, said = process.communicate(timeout=LIMIT_S)
    if process.returncode != 0:
        raise RuntimeError(said.decode(errors="replace"))
    return out


def _message(record: Record) -> bytes:
    return b"".join((record.key or b"", MIDDLE.encode(), record.value or b"", END.encode()))


class Kcat:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        raise NotImplementedError("kcat makes no topics")

    def setting(self, topic: str, name: str) -> str:
        raise NotImplementedError("kcat reads no settings")

    def _metadata(self, *arguments: str) -> list[Any]:
        out = run("-L", "-J", "-b", self._bootstrap, "-m", "30", *arguments)
        found: list[Any] = json.loads(out)["topics"]
        return found

    def topics(self) -> Iterable[str]:
        return (it["topic"] for it in self._metadata())

    def describe(self, topic: str) -> Iterable[PartitionView]:
        (found,) = self._metadata("-t", topic)
        for it in found["partitions"]:
            replicas, isr = (tuple(r["id"] for r in it[name]) for name in ("replicas", "isrs"))
            yield PartitionView(it["partition"], it["leader"], replicas, isr)

    def produce(self, topic: str, codec: str, records: Iterator[Record]) -> int:
        count = 0
        for (partition, headers), group in groupby(records, lambda it: (it.partition, it.headers)):
            arguments = ["-P", "-b", self._bootstrap, "-t", topic, "-p", str(partition), "-Z"]
            arguments += ["-z", codec, "-X", "acks=all", "-X", "linger.ms=5"]
            arguments += ["-D", END, "-K", MIDDLE, "-m", "60"]
            for name, value in headers:
                arguments += ["-H", f"{name}={(value or b'').decode()}"]

            messages = list(group)
            count += len(messages)
            run(*arguments, given=map(_message, messages))
        return count

    def consume(self, topic: str, since: int | None) -> Iterator[Record]:
        start = "beginning" if since is None else f"s@{since}"
        arguments = ["-C", "-b", self._bootstrap, "-t", topic, "-o", start, "-e", "-q"]
        arguments += ["-m", "60", "-f", FORMAT]
        with subprocess.Popen(
            ["kcat", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            while head := process.stdout.readline():
                yield self._record(head, process.stdout)
            said = process.stderr.read()
        if process.returncode != 0:
            raise RuntimeError(said.decode(errors="replace"))

    @staticmethod
    def _record(head: bytes, rest: Any) -> Record:
        partition, offset, timestamp, key_size, value_size, headers = head[:-1].split(b" ", 5)
        source: BinaryIO = rest
        key = source.read(int(key_size)) if int(key_size) >= 0 else None
        value = source.read(int(value_size)) if int(value_size) >= 0 else None
        text = (("", headers),) if headers else ()
        return Record(int(partition), key, value, text, int(timestamp), int(offset))


if __name__ == "__main__":
    version = run("-V").decode().split("Version ")[1].split(" ")[0]
    serve("kcat", version, Kcat, CODECS)
