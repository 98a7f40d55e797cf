"""The client programs: how each is built, started and spoken to, and what its library cannot say.

What has to be built (Java, Go, Node) goes once into a folder of the user's cache that is named after a
hash of the program's files; `KAFKALIKE_CLIENTS_CACHE` puts it elsewhere.  A program whose tools or
packages are not to be had raises ClientMissing with the reason.
"""

import contextlib
import fcntl
import hashlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.reference_kafka import die_with_parent

from .contract import CODECS, Headers, PartitionView, Record

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
FULL: Final = os.environ.get("KAFKALIKE_FULL") == "1"
BUILD_LIMIT_S: Final = 1500.0
START_LIMIT_S: Final = 120.0
ANSWER_LIMIT_S: Final = 180.0 if not FULL else 1800.0
JAVA_VERSIONS: Final = ("3.9.2", "4.4.0")
ZSTD_HEADER: Final = Path("/usr/include/zstd.h")
GO_PROGRAMS: Final = (
    "franz",
    "sarama",
    "segmentio",
    "truncation",
    "franz_member",
    "sarama_member",
)


class ClientMissing(Exception):
    """A program cannot be had on this machine; the text says why."""


class ClientFailed(AssertionError):
    """A program answered with an error, or not at all."""


# --- Building -------------------------------------------------------------------------------------


def _need(*names: str) -> None:
    for name in names:
        if shutil.which(name) is None:
            raise ClientMissing(f"{name} is not on the PATH")


def _run(command: Sequence[str | Path], folder: Path) -> str | None:
    """What a failed command said, or None."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {BUILD_LIMIT_S} s"
    if done.returncode == 0:
        return None
    return f"{command[0]}: " + (done.stdout + done.stderr).decode(errors="replace")[-1500:]


def _fetch(command: Sequence[str | Path], folder: Path) -> None:
    """A step that needs a package registry: without one the program is missing."""
    said = _run(command, folder)
    if said is not None:
        raise ClientMissing(f"its packages cannot be fetched: {said}")


def _compile(command: Sequence[str | Path], folder: Path) -> None:
    """A step that may not fail."""
    said = _run(command, folder)
    assert said is None, said


def _cache() -> Path:
    given = os.environ.get("KAFKALIKE_CLIENTS_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kafkalike"


def _sources(*places: Path) -> list[Path]:
    return sorted(
        path
        for place in places
        for path in ([place] if place.is_file() else place.rglob("*"))
        if path.is_file() and "node_modules" not in path.parts
    )


def _built(name: str, sources: list[Path], make: Callable[[Path], None], extra: str = "") -> Path:
    """The folder that `make` filled, now or in an earlier run on the same sources."""
    total = hashlib.sha256(extra.encode())
    for path in sources:
        total.update(str(path.relative_to(HERE)).encode() + b"\0" + path.read_bytes())
    folder = _cache() / f"client-{name}-{total.hexdigest()[:16]}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be making the same
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                make(made)
                made.rename(folder)
    folder.with_suffix(".lock").unlink(missing_ok=True)
    return folder


def _python(module: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        return [sys.executable, "-m", f"tests.integration.client_matrix.python.{module}"]

    return command


def _kcat() -> list[str]:
    _need("kcat")
    return _python("kcat")()


def _java(version: str, program: str = "Matrix") -> Callable[[], list[str]]:
    def command() -> list[str]:
        _need("java", "javac", "mvn")
        folder = HERE / "java"

        def make(made: Path) -> None:
            maven: list[str | Path] = [
                "mvn",
                "-q",
                "-B",
                "-f",
                folder / "pom.xml",
                f"-Dkafka.version={version}",
            ]
            copy = f"-DoutputDirectory={made / 'libs'}"
            _fetch([*maven, "dependency:copy-dependencies", copy], folder)
            sources = sorted(folder.glob("*.java"))
            _compile(["javac", "-cp", f"{made}/libs/*", "-d", made / "classes", *sources], folder)

        built = _built(f"java-{version}", _sources(folder), make, extra=version)
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return ["java", *options, "-cp", f"{built}/classes:{built}/libs/*", program]

    return command


def _go(program: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        _need("go")
        folder = HERE / "go"

        def make(made: Path) -> None:
            _fetch(["go", "mod", "download"], folder)
            packages = [f"./{name}" for name in GO_PROGRAMS]
            _compile(["go", "build", "-o", f"{made}/", *packages], folder)

        return [str(_built("go", _sources(folder), make) / program)]

    return command


def truncation_program() -> list[str]:
    """The command of franz-go as a reader that tells what is lost; takes servers and topic."""
    return _go("truncation")()


def _node(
    program: str, *, own_node: bool = False, compiled: bool = False, main: str = "main.js"
) -> Callable[[], list[str]]:
    def command() -> list[str]:
        _need("npm", "node")
        folder = HERE / "node" / program

        def make(made: Path) -> None:
            if compiled and not ZSTD_HEADER.exists():
                raise ClientMissing("librdkafka needs libzstd-dev to be built with all codecs")
            if compiled and not FULL:
                raise ClientMissing("building librdkafka takes minutes; KAFKALIKE_FULL=1 does it")
            for path in [*_sources(folder), HERE / "node" / "contract.js"]:
                shutil.copy(path, made / path.name)
            _fetch(["npm", "ci", "--no-audit", "--no-fund"], made)

        built = _built(f"node-{program}", _sources(folder, HERE / "node" / "contract.js"), make)
        node = "node"
        if own_node:
            found = sorted(built.glob("node_modules/node-linux-*/bin/node"))
            if not found:
                raise ClientMissing("the Node that it needs is not packaged for this machine")
            node = str(found[0])
        return [node, "--max-old-space-size=4096", str(built / main)]

    return command


def member_command(library: str) -> list[str]:
    """A program that is a member of a group: `java`, `franz-go` (each also `-cooperative`), `sarama`,
    `kafkajs`.  Takes the words that `tests/integration/groups/member.py` describes."""
    name = library.removesuffix("-cooperative")
    command = {
        "java": _java("3.9.2", "Member"),
        "franz-go": _go("franz_member"),
        "sarama": _go("sarama_member"),
        "kafkajs": _node("kafkajs", main="member.js"),
    }[name]
    return [*command(), library]


# --- What libraries cannot say --------------------------------------------------------------------


def _same(record: Record) -> Record:
    return record


def _grouped_headers(record: Record) -> Record:
    """Headers are an object of the language: those of one name stand together."""
    grouped: dict[str, list[bytes | None]] = {}
    for name, value in record.headers:
        grouped.setdefault(name, []).append(value)
    headers = tuple((name, value) for name, values in grouped.items() for value in values)
    return replace(record, headers=headers)


def _no_null_headers(record: Record) -> Record:
    headers = tuple((name, value or b"") for name, value in record.headers)
    return replace(record, headers=headers)


KCAT_HEADERS: Final[Headers] = (("from", b"kcat"), ("twice", b"a"), ("twice", b"b"))


def _text_headers(record: Record) -> Record:
    """Values of headers are text in UTF-8."""
    headers = tuple(
        (name, (value or b"").decode(errors="replace").encode()) for name, value in record.headers
    )
    return replace(record, headers=headers)


def _no_empty(record: Record) -> Record:
    """What is empty is shown as null."""
    headers = tuple((name, value or None) for name, value in record.headers)
    return replace(record, key=record.key or None, value=record.value or None, headers=headers)


def _kcat_writes(record: Record) -> Record:
    """The same headers for a whole run, the time of now, nothing that is empty but not null."""
    key, value = record.key or None, record.value or None
    return replace(record, key=key, value=value, headers=KCAT_HEADERS, timestamp=-1)


def _kcat_reads(record: Record) -> Record:
    """Headers as one text, values to their first zero byte."""
    pairs = (
        name.encode() + b"=" + (b"NULL" if value is None else value.split(b"\0")[0])
        for name, value in record.headers
    )
    text = b",".join(pairs)
    return replace(record, headers=(("", text),) if text else ())


@dataclass(frozen=True)
class Program:
    """One client of the matrix.

    `writes` is what becomes of a record when this library is asked to write it, `reads` what it shows
    of one.  `administers`: it makes topics and reads settings.  `idempotent`: it is by default.
    """

    name: str
    command: Callable[[], list[str]]
    writes: Callable[[Record], Record] = _same
    reads: Callable[[Record], Record] = _same
    administers: bool = True
    settings: bool = True
    idempotent: bool = False


PROGRAMS: Final = {
    program.name: program
    for program in (
        Program("confluent", _python("confluent")),
        Program("kafka-python", _python("kafka_python"), writes=_no_null_headers, idempotent=True),
        Program("aiokafka", _python("aiokafka_client")),
        Program(
            "kcat", _kcat, writes=_kcat_writes, reads=_kcat_reads, administers=False, settings=False
        ),
        *(Program(f"java-{it}", _java(it), idempotent=True) for it in JAVA_VERSIONS),
        Program("franz-go", _go("franz"), idempotent=True),
        Program("sarama", _go("sarama")),
        Program("kafka-go", _go("segmentio"), reads=_no_empty),
        Program(
            "kafkajs",
            _node("kafkajs"),
            writes=lambda record: _grouped_headers(_no_null_headers(record)),
            reads=_grouped_headers,
        ),
        Program("platformatic", _node("platformatic", own_node=True)),
        Program(
            "rdkafka-js",
            _node("rdkafka", compiled=True),
            writes=_text_headers,
            reads=_no_null_headers,
            settings=False,
        ),
    )
}


# --- Running --------------------------------------------------------------------------------------


@dataclass
class RunningProgram:
    """A started program.  Its methods are the commands of the contract and raise ClientFailed."""

    program: Program
    _process: "subprocess.Popen[bytes]"
    _said: Path
    library: str = ""
    version: str = ""
    codecs: tuple[str, ...] = CODECS
    seconds: float = 0.0
    _left: bytearray = field(default_factory=bytearray)

    @property
    def name(self) -> str:
        return self.program.name

    def _line(self, limit_s: float, asked: str) -> list[str]:
        deadline = time.monotonic() + limit_s
        output = self._process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while b"\n" not in self._left:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ClientFailed(f"{self.name}: no answer to {asked} within {limit_s} s")
                data = os.read(output.fileno(), 65536)
                if not data:
                    code = self._process.wait()
                    raise ClientFailed(f"{self.name}: ended ({code}) at {asked}: {self.stderr()}")
                self._left += data
        line, _, left = bytes(self._left).partition(b"\n")
        self._left[:] = left
        return line.decode().split("\t")

    def stderr(self) -> str:
        return self._said.read_text(errors="replace")[-800:]

    def greet(self) -> None:
        words = self._line(START_LIMIT_S, "its start")
        if words[0] != "ready":
            raise ClientFailed(f"{self.name}: {words}")
        self.library, self.version = words[1], words[2]
        self.codecs = tuple(words[3].split(","))

    def _ask(self, *words: object) -> list[str]:
        asked = "\t".join(map(str, words))
        assert self._process.stdin is not None
        begun = time.monotonic()
        self._process.stdin.write(asked.encode() + b"\n")
        self._process.stdin.flush()
        status, *answer = self._line(ANSWER_LIMIT_S, asked)
        self.seconds += time.monotonic() - begun
        if status != "ok":
            raise ClientFailed(f"{self.name}: {asked}: {answer[0][:600]}; {self.stderr()}")
        return answer

    def create(self, topic: str, partitions: int, replicas: int, **config: str) -> None:
        pairs = [f"{name.replace('_', '.')}={value}" for name, value in config.items()]
        self._ask("create", topic, partitions, replicas, *pairs)

    def topics(self) -> list[str]:
        return self._ask("list")

    def describe(self, topic: str) -> list[PartitionView]:
        return [PartitionView.parse(text) for text in self._ask("describe", topic)]

    def setting(self, topic: str, name: str) -> str:
        return self._ask("setting", topic, name)[0]

    def produce(self, topic: str, codec: str, path: Path) -> int:
        return int(self._ask("produce", topic, codec, path)[0])

    def consume(self, topic: str, path: Path, since: int | None = None) -> int:
        return int(self._ask("consume", topic, "-" if since is None else since, path)[0])

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def running(
    program: Program, command: Sequence[str], bootstrap: str, folder: Path
) -> Iterator[RunningProgram]:
    """Start it now, stop it at the end; `greet` first.

    The kernel ends the process with the thread that started it.
    """
    said = folder / f"{program.name}.err"
    with said.open("ab") as errors:
        process = subprocess.Popen(
            [*command, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
    started = RunningProgram(program, process, said)
    try:
        yield started
    finally:
        started.close()
