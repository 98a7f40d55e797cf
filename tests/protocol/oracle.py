"""Kafka's own codec as an oracle: compiles and runs `java/CodecOracle.java`.

The jars come through Maven once and stay in the user's cache, keyed by the files they depend on.
"""

import contextlib
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "java"


class OracleMissing(Exception):
    """Java or Maven is not on this machine."""


@dataclass(frozen=True)
class Question:
    """See CodecOracle.java."""

    operation: str
    message: str
    version: int
    body: bytes
    argument: int = 0
    text: str = ""

    def encode(self) -> bytes:
        name, text = self.message.encode(), self.text.encode()
        packed = struct.pack(
            f">ch{len(name)}shih{len(text)}s",
            self.operation.encode(),
            len(name),
            name,
            self.version,
            self.argument,
            len(text),
            text,
        )
        return struct.pack(">i", len(packed) + len(self.body)) + packed + self.body


@dataclass(frozen=True)
class Answer:
    """`body` is None when Kafka gives nothing; `refusal` is its error when it refuses."""

    body: bytes | None
    refusal: str | None = None


class Oracle:
    def __init__(self, folder: Path) -> None:
        self._class_path = f"{folder / 'classes'}{os.pathsep}{folder / 'libs'}/*"

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """All answers, in order."""
        done = subprocess.run(
            ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", self._class_path, "CodecOracle"],
            input=b"".join(question.encode() for question in questions),
            capture_output=True,
            timeout=600,
            check=True,
        )
        answers, position = [], 0
        while position < len(done.stdout):
            size, status = struct.unpack_from(">iB", done.stdout, position)
            body = done.stdout[position + 5 : position + 4 + size]
            position += 4 + size
            if status == 2:
                answers.append(Answer(None, body.decode()))
            else:
                answers.append(Answer(body if status == 0 else None))
        assert len(answers) == len(questions), done.stderr.decode()
        return answers


def build_oracle() -> Oracle:
    """Fetch and compile on first use.  Raises OracleMissing when that is not possible here."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise OracleMissing(f"{program} is not on the PATH")
    pom, source = SOURCES / "pom.xml", SOURCES / "CodecOracle.java"
    key = hashlib.sha256(pom.read_bytes() + source.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "kafkalike" / f"codec-oracle-{key}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "made"
            maven = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            run([*maven, f"-DoutputDirectory={made / 'libs'}"])
            classes = str(made / "classes")
            run(["javac", "-cp", f"{made / 'libs'}/*", "-d", classes, str(source)])
            with contextlib.suppress(OSError):
                made.rename(folder)  # another run may have been faster
    return Oracle(folder)


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, timeout=900, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout.decode()}{done.stderr.decode()}"
