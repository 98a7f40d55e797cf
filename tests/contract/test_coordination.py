"""The embedded coordination service answers as ZooKeeper does, byte for byte where clients can see.

`coordination_answers.json` holds what ZooKeeper 3.8.4 answered to the cases.  The embedded service
must give the same answers; a real ZooKeeper, where there is one, must still give them too.  After a
change of the cases:  COORDINATION_RECORD=1 pytest tests/contract/test_coordination.py -k zookeeper
"""

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.coordination.servers import (
    Server,
    embedded,
    four_letter_word,
    zookeeper,
)

from .coordination_cases import CASES, MAX_BUFFER, SUPER_DIGEST
from .coordination_random import random_history
from .coordination_wire import World

ANSWERS = pathlib.Path(__file__).with_name("coordination_answers.json")
CHANGED_IN_3_8_4 = {
    "acl_permissions": "exists() did not ask for the read permission",
    "events_respect_acl": "watch events did not ask for the read permission",
    "multi_succeeds": "create2 inside a multi was answered as create",
}

SOMETIMES: dict[str, dict[int, Any]] = {
    "multi_fails": {8: [11, 0, [["error", -8, -8], ["end", -1, -1]]]}
}
"""By case and step: what ZooKeeper answers now and then instead of what was recorded."""


def recorded() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    return answers


def run(name: str, server: Server) -> Any:
    world = World(server.address, f"/{name}")
    try:
        return json.loads(json.dumps(CASES[name](world)))
    finally:
        world.close()


@pytest.fixture(scope="module")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("embedded")
    options = ("--max-buffer", str(MAX_BUFFER), "--super", SUPER_DIGEST)
    with embedded(directory, *options, "--data-dir", str(directory / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    digest = f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"
    directory = tmp_path_factory.mktemp("zookeeper")
    with zookeeper(directory, properties=(digest,), settings="tickTime=2000\n") as server:
        yield server


@pytest.mark.parametrize("name", CASES)
def test_embedded_answers_like_zookeeper(name: str, embedded_server: Server) -> None:
    assert run(name, embedded_server) == recorded()[name]


@pytest.mark.real_zookeeper
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_zookeeper_still_answers_so(name: str, real_server: Server) -> None:
    answer = run(name, real_server)
    if os.environ.get("COORDINATION_RECORD"):
        ANSWERS.write_text(json.dumps({**recorded(), name: answer}, sort_keys=True) + "\n")
        return
    if name in CHANGED_IN_3_8_4 and version_of(real_server) < (3, 8, 4):
        pytest.skip(f"before ZooKeeper 3.8.4 {CHANGED_IN_3_8_4[name]}")
    known = recorded()[name]
    for step, other in SOMETIMES.get(name, {}).items():
        if answer[step] == other:
            answer[step] = known[step]
    assert answer == known


@pytest.mark.real_zookeeper
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("COORDINATION_SEEDS", "20"))))
def test_random_histories_are_answered_alike(
    seed: int, embedded_server: Server, real_server: Server
) -> None:
    if version_of(real_server) < (3, 8, 4):
        pytest.skip(f"before ZooKeeper 3.8.4: {', '.join(CHANGED_IN_3_8_4.values())}")
    answers = []
    for server in (embedded_server, real_server):
        world = World(server.address, f"/random-{seed}")
        try:
            answers.append(random_history(world, seed))
        finally:
            world.close()
    for step, (ours, theirs) in enumerate(zip(*answers, strict=True)):
        assert ours == theirs, f"step {step}"


def version_of(server: Server) -> tuple[int, ...]:
    first = four_letter_word(server, b"srvr").split(b"\n")[0].decode()
    return tuple(int(n) for n in first.split(": ")[1].split("-")[0].split("."))


def test_every_recorded_case_is_still_there() -> None:
    assert recorded().keys() == CASES.keys()
