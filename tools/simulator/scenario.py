"""What happens in one run: the cluster, its topics, what clients do, and which faults strike when.

`Scenario.generate(seed)` draws one from a seed; `load` and `save` keep one as JSON, the form that
`kafkalike sim --scenario FILE` takes and `--minimize` writes.
"""

import json
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Final

from .process import SimRandom
from .values import ScenarioError, refuse_twice, refuse_unknown

USUAL_BROKERS: Final = 3
_FACTORS: Final = ("default.replication.factor", "offsets.topic.replication.factor")


@dataclass(slots=True, frozen=True)
class ClusterSpec:
    """How many brokers (ids from 0), and server.properties for all of them."""

    brokers: int = 3
    properties: dict[str, str] = field(default_factory=dict)

    def own_properties(self) -> dict[str, str]:
        """`properties`, and the factors that fewer than three brokers can serve."""
        most = {} if self.brokers >= USUAL_BROKERS else dict.fromkeys(_FACTORS, str(self.brokers))
        return most | self.properties


@dataclass(slots=True, frozen=True)
class TopicSpec:
    """A topic that exists before workloads start."""

    name: str
    partitions: int = 1
    replication_factor: int = 3
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class WorkloadSpec:
    """`kind` is a name in `workloads.WORKLOADS`; `options` are its own."""

    kind: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """How a ScenarioError names it."""
        return f"workload {self.name!r} ({self.kind})"


@dataclass(slots=True, frozen=True)
class Fault:
    """One thing that goes wrong, `at_ms` after the workloads started, for `duration_ms` if it lasts.

    `kind` is a name in `faults.FAULTS`; `target` names whom it strikes (`"broker-1"`, `"leader"`,
    `"controller"`, `"broker-0>broker-2"` for a direction, or "").
    """

    at_ms: int
    kind: str
    target: str = ""
    duration_ms: int = 0
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [self.kind, self.target]
        if self.duration_ms:
            words.append(f"for {self.duration_ms} ms")
        words += [f"{name}={value}" for name, value in self.args.items()]
        return f"at {self.at_ms} ms: " + " ".join(word for word in words if word)


@dataclass(slots=True, frozen=True)
class Scenario:
    """`duration_ms`: how long workloads and faults go on; healing and the last reads come after."""

    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    topics: tuple[TopicSpec, ...] = ()
    workloads: tuple[WorkloadSpec, ...] = ()
    faults: tuple[Fault, ...] = ()
    duration_ms: int = 20_000

    @classmethod
    def generate(cls, seed: int, family: str = "") -> "Scenario":
        """The general scenario of a seed, or one of a family (`families.FAMILIES`)."""
        from .drawing import draw_scenario
        from .families import FAMILIES, draw_family

        if family and family not in FAMILIES:
            raise ScenarioError(f"family {family!r}, known are {sorted(FAMILIES)}")
        if family:
            return draw_family(family, SimRandom(f"scenario/{family}/{seed}"))
        return draw_scenario(SimRandom(f"scenario/{seed}"))

    def with_faults(self, faults: "tuple[Fault, ...]") -> "Scenario":
        return replace(self, faults=faults)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Scenario":
        """Raises ScenarioError."""
        try:
            data = json.loads(text, object_pairs_hook=_object)
            json.dumps(data, ensure_ascii=False).encode()
        except ScenarioError:
            raise
        except UnicodeEncodeError as error:
            raise ScenarioError("a text has half of a character (a lone surrogate)") from error
        except ValueError as error:
            raise ScenarioError(f"not JSON: {error}") from error
        except RecursionError as error:
            raise ScenarioError("not a scenario: nested too deeply") from error
        return _build(data)

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    @classmethod
    def load(cls, path: str) -> "Scenario":
        """Raises ScenarioError, OSError."""
        with open(path, encoding="utf-8") as file:
            try:
                return cls.from_json(file.read())
            except ScenarioError as error:
                raise ScenarioError(f"{path}: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    refuse_twice("key", [name for name, _ in pairs])
    return dict(pairs)


def _build(data: Any) -> Scenario:
    _expect_object("scenario", data)
    known = {"cluster", "topics", "workloads", "faults", "duration_ms"}
    refuse_unknown("scenario", data, known)
    return Scenario(
        cluster=_make(ClusterSpec, "cluster", data.get("cluster", {})),
        topics=_make_all(TopicSpec, "topics", data.get("topics", [])),
        workloads=_make_all(WorkloadSpec, "workloads", data.get("workloads", [])),
        faults=_make_all(Fault, "faults", data.get("faults", [])),
        duration_ms=_positive("duration_ms", data.get("duration_ms", 20_000)),
    )


def _make_all(kind: Any, where: str, data: Any) -> "tuple[Any, ...]":
    if not isinstance(data, list):
        raise ScenarioError(f"{where}: expected a list, found {data!r}")
    return tuple(_make(kind, f"{where}[{i}]", item) for i, item in enumerate(data))


def _make(kind: Any, where: str, data: Any) -> Any:
    _expect_object(where, data)
    refuse_unknown(where, data, set(kind.__dataclass_fields__))
    for name, value in data.items():
        _check_type(f"{where}.{name}", value, str(kind.__dataclass_fields__[name].type))
    for each in fields(kind):
        if each.default is MISSING and each.default_factory is MISSING and each.name not in data:
            raise ScenarioError(f"{where}: key {each.name!r} is missing")
    return kind(**data)


_JSON_TYPES = {"int": int, "str": str, "dict[str, str]": dict, "dict[str, Any]": dict}


def _check_type(where: str, value: Any, annotation: str) -> None:
    name = annotation.removeprefix("<class '").removesuffix("'>").replace("typing.", "")
    expected = _JSON_TYPES[name]
    if not isinstance(value, expected) or isinstance(value, bool):
        raise ScenarioError(f"{where}: expected {name}, found {value!r}")


def _expect_object(where: str, data: Any) -> None:
    if not isinstance(data, dict):
        raise ScenarioError(f"{where}: expected an object, found {data!r}")


def _positive(where: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ScenarioError(f"{where}: expected a positive number, found {value!r}")
    return value
