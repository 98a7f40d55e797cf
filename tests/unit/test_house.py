"""The rules of the house: import doors, synchronous rooms, no reactor at import, one top-level name.

Every product file is parsed; see docs/architecture.md for the rules that these tests state.
"""

import ast
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("kafkalike", "zk", "controller", "broker", "tools")
FLOOR = {"kafkalike": 1, "zk": 2, "controller": 3, "broker": 4, "tools": 5}
KAFKALIKE_ORDER = {
    "types": 0,
    "errors": 0,
    "properties": 0,
    "settings": 0,
    "config_keys": 1,
    "config": 2,
    "metrics": 0,
    "runtime": 0,
    "protocol": 1,
    "messages": 2,
    "records": 2,
    "net": 3,
    "testing": 9,
}
BROKER_ORDER = {
    "log": 1,
    "cluster": 1,
    "auth": 1,
    "replica": 2,
    "coordinator": 3,
    "handlers": 4,
    "server": 5,
    "node": 6,
}
DEFERREDS = ("twisted.internet.defer", "twisted.python.failure")
TWISTED_ALLOWED = (
    "kafkalike/runtime/",
    "kafkalike/net/",
    "broker/server/",
    "zk/server/connection.py",
    "zk/server/server.py",
    "tools/",
    "kafkalike/testing/",
)
OUTSIDE_MODULES = ("time", "random", "threading", "socket", "select", "subprocess", "signal")
OUTSIDE_ALLOWED = ("kafkalike/runtime/", "zk/kazoo_client.py", "tools/", "kafkalike/testing/")


def product_files() -> list[pathlib.Path]:
    found: list[pathlib.Path] = []
    for part in PARTS:
        for folder, folders, names in os.walk(ROOT / part, followlinks=False):
            folders[:] = sorted(f for f in folders if not os.path.islink(os.path.join(folder, f)))
            found.extend(pathlib.Path(folder) / n for n in sorted(names) if n.endswith(".py"))
    return found


FILES = product_files()


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Line and absolute module name of every import, relative ones resolved within their part."""
    package = name_of(path).removesuffix(".py").split("/")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.lineno, node.module or ""
                if node.module == "kafkalike":
                    yield from ((node.lineno, f"kafkalike.{a.name}") for a in node.names)
                continue
            base = package[: len(package) - node.level + 1]
            assert base, f"{name_of(path)}:{node.lineno} imports from above its part"
            prefix = [] if base[0] == "kafkalike" else ["kafkalike"]
            module = ".".join([*prefix, *base, *([node.module] if node.module else [])])
            if node.module:
                yield node.lineno, module
            else:
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def part_of(module: str) -> str | None:
    names = module.split(".")
    if names[0] != "kafkalike":
        return None
    return names[1] if len(names) > 1 and names[1] in PARTS else "kafkalike"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_down(path: pathlib.Path) -> None:
    name = name_of(path)
    own_part = name.split("/", maxsplit=1)[0]
    own_floor = FLOOR["tools"] if name.startswith("kafkalike/testing/") else FLOOR[own_part]
    for line, module in imports_of(path):
        first = module.split(".")[0]
        assert first not in PARTS or first == "kafkalike", (
            f"{name}:{line} imports {module}: say kafkalike.{module}"
        )
        part = part_of(module)
        if part is None:
            continue
        assert FLOOR[part] <= own_floor, f"{name}:{line} imports {module} from a floor above"
        assert not module.startswith("kafkalike.testing") or "testing" in name
        if part == "controller" and own_part == "broker" and name != "broker/node.py":
            doors = ("kafkalike.controller.api", "kafkalike.controller.assignment")
            assert module.startswith(doors), (
                f"{name}:{line} imports {module}: only controller.api is a door"
            )


def _order(name: str, part: str, table: dict[str, int]) -> int | None:
    inside = name.removeprefix(part + "/").split("/", maxsplit=1)[0].removesuffix(".py")
    return table.get(inside)


@pytest.mark.parametrize(
    ("part", "prefix", "table"),
    [("kafkalike", "kafkalike.", KAFKALIKE_ORDER), ("broker", "kafkalike.broker.", BROKER_ORDER)],
    ids=["kafkalike", "broker"],
)
def test_rooms_of_a_part_have_an_order(part: str, prefix: str, table: dict[str, int]) -> None:
    wrong = []
    for path in FILES:
        name = name_of(path)
        own = _order(name, part, table) if name.startswith(part + "/") else None
        if own is None:
            continue
        for line, module in imports_of(path):
            if module.startswith(prefix):
                room = module.removeprefix(prefix).split(".")[0]
                other = table.get(room)
                if other is not None and other > own and not _registered(name, module):
                    wrong.append(f"{name}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def _registered(name: str, module: str) -> bool:
    """handlers/request.py is what server and handlers share; server stands on it."""
    return module == "kafkalike.broker.handlers.request"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_outside_world_enters_by_its_doors(path: pathlib.Path) -> None:
    name = name_of(path)
    for line, module in imports_of(path):
        first = module.split(".")[0]
        if first == "kazoo":
            assert name == "zk/kazoo_client.py", f"{name}:{line} imports {module}"
        if first == "twisted" and not module.startswith(DEFERREDS):
            assert name.startswith(TWISTED_ALLOWED), f"{name}:{line} imports {module}"
        if module == "twisted.internet.reactor":
            assert name == "kafkalike/runtime/reactor.py", f"{name}:{line} imports the reactor"
        if first in OUTSIDE_MODULES:
            assert name.startswith(OUTSIDE_ALLOWED), f"{name}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_says_what_it_is(path: pathlib.Path) -> None:
    text = path.read_text()
    if text:
        assert ast.get_docstring(ast.parse(text)), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_state_at_module_level(path: pathlib.Path) -> None:
    for node in ast.parse(path.read_text()).body:
        assert not isinstance(node, ast.Global)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            assert called not in {"dict", "list", "set", "defaultdict", "deque"}, (
                f"{name_of(path)}:{node.lineno} keeps state in the module"
            )


def test_node_loads_no_reactor() -> None:
    code = (
        "import sys, kafkalike.broker.node\n"
        "assert 'twisted.internet.reactor' not in sys.modules, 'reactor was loaded'\n"
        "assert 'kazoo' not in sys.modules, 'kazoo was loaded'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


def test_links_complete_the_name() -> None:
    for part in PARTS[1:]:
        link = ROOT / "kafkalike" / part
        assert link.is_symlink()
        assert os.readlink(link) == f"../{part}"


@pytest.mark.slow
def test_wheel_has_one_top_level_name(tmp_path: pathlib.Path) -> None:
    """The wheel installs `kafkalike` alone and its console script runs."""
    python = sys.executable
    source = tmp_path / "source"
    subprocess.run(
        ["git", "checkout-index", "--all", f"--prefix={source}/"], check=True, cwd=ROOT, timeout=60
    )
    subprocess.run(
        [
            python,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(tmp_path),
            str(source),
        ],
        check=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "site"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel)],
        check=True,
        timeout=300,
    )
    names = {p.name for p in target.iterdir() if not p.name.endswith(".dist-info")}
    assert names - {"bin"} == {"kafkalike"}
    assert not any(p.is_symlink() for p in (target / "kafkalike").iterdir())
    help_text = subprocess.run(
        [python, "-m", "kafkalike.tools.main", "--help"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(target)},
    ).stdout
    assert "broker" in help_text
