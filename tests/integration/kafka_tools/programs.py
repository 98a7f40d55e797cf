"""Kafka's command line programs, run one after the other in one Java virtual machine."""

import base64
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.reference_kafka import LOG4J, TOOLS, die_with_parent, jars

SOURCE: Final = Path(__file__).with_name("Tools.java")
LIMIT_S: Final = 60.0
CLASSES: Final = {
    **TOOLS,
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
}


@dataclass(slots=True, frozen=True)
class Printed:
    """What a program left; status -1: it did not end in time."""

    status: int
    out: str
    err: str


class Programs:
    """A context manager; `run` takes a short name of a program (see CLASSES)."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kafkalike-programs-")
        log4j = Path(self._folder.name) / "log4j.properties"
        log4j.write_text(LOG4J.format(level="ERROR", target="System.err"))
        self._java = ["java", "-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._java += [f"-Dlog4j.configuration=file:{log4j}", "-Duser.timezone=UTC"]
        self._process = subprocess.Popen(
            [*self._java, str(SOURCE), str(jars())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )

    def run(
        self, name: str, arguments: Sequence[str], given: str = "", limit_s: float = LIMIT_S
    ) -> Printed:
        words = [str(int(limit_s * 1000)), CLASSES[name], _encoded(given)]
        words += [_encoded(argument) for argument in arguments]
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        status, out, err = self._process.stdout.readline().split()
        return Printed(int(status), _decoded(out), _decoded(err))

    def run_alone(
        self, name: str, arguments: Sequence[str], given: str = "", limit_s: float = LIMIT_S
    ) -> Printed:
        """The same in a virtual machine of its own."""
        done = subprocess.run(
            [*self._java, "-cp", f"{jars()}/*", CLASSES[name], *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        return Printed(done.returncode, done.stdout, done.stderr)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"


def _decoded(word: str) -> str:
    return "" if word == "-" else base64.b64decode(word).decode(errors="replace")
