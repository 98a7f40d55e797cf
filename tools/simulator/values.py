"""What may stand in `args` of a fault and `options` of a workload: by name, which values make sense."""

import math
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

LONGEST_MS: Final = 86_400_000
"""No time in a scenario is longer than a day."""


class ScenarioError(ValueError):
    """A scenario says something that makes no sense; the text names it."""


@dataclass(slots=True, frozen=True)
class Whole:
    """A whole number within bounds, both included."""

    low: int = 0
    high: int = LONGEST_MS

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def accepts(self, value: Any) -> bool:
        return type(value) is int and self.low <= value <= self.high


@dataclass(slots=True, frozen=True)
class Number:
    """A number within bounds, both included."""

    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def accepts(self, value: Any) -> bool:
        is_number = type(value) in (int, float) and math.isfinite(value)
        return is_number and self.low <= value <= self.high


@dataclass(slots=True, frozen=True)
class YesNo:
    expected = "true or false"

    def accepts(self, value: Any) -> bool:
        return type(value) is bool


@dataclass(slots=True, frozen=True)
class Text:
    """Not empty; beginning with `start`."""

    start: str = ""

    @property
    def expected(self) -> str:
        return f"a text that begins with {self.start!r}" if self.start else "a text"

    def accepts(self, value: Any) -> bool:
        return type(value) is str and value != "" and value.startswith(self.start)


@dataclass(slots=True, frozen=True)
class ListOf:
    """Some of `choices`, or any texts when there are none; at least `low`."""

    choices: tuple[Any, ...] = ()
    low: int = 1

    @property
    def expected(self) -> str:
        which = f"some of {list(self.choices)}" if self.choices else "texts"
        return f"a list of {which}" + (", not empty" if self.low else "")

    def accepts(self, value: Any) -> bool:
        return (
            type(value) in (list, tuple)
            and len(value) >= self.low
            and all(self._accepts_one(one) for one in value)
        )

    def _accepts_one(self, one: Any) -> bool:
        if self.choices:
            return type(one) in {type(choice) for choice in self.choices} and one in self.choices
        return type(one) is str


Value: TypeAlias = Whole | Number | YesNo | Text | ListOf
CHANCE: Final = Number(0, 1)
TIME_MS: Final = Whole()
SOME_TIME_MS: Final = Whole(1)
YES_NO: Final = YesNo()


def check_values(where: str, given: Mapping[str, Any], known: "Collection[str]") -> None:
    """Raises ScenarioError for a name that is not `known`, and, where `known` maps names to values, for
    a value that makes no sense."""
    refuse_unknown(where, given, known)
    if isinstance(known, Mapping):
        for name, value in given.items():
            expect(f"{where}.{name}", value, known[name])


def expect(where: str, value: Any, kind: Value) -> None:
    """Raises ScenarioError."""
    if not kind.accepts(value):
        raise ScenarioError(f"{where}: expected {kind.expected}, found {value!r}")


def refuse_unknown(where: str, data: "Collection[str]", known: "Collection[str]") -> None:
    """Raises ScenarioError naming the first key that is none of `known`, and the nearest that is."""
    for name in data:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1)
            meant = f"; {near[0]!r} is the nearest" if near else ""
            raise ScenarioError(f"{where}: unknown key {name!r}, known are {sorted(known)}{meant}")


def writable(text: str) -> str:
    """The text with an escape for each half of a character, which no file or terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def refuse_twice(where: str, names: "Collection[str]") -> None:
    """Raises ScenarioError naming the first that is there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ScenarioError(f"{where}: {name!r} is there twice")
        seen.add(name)


def describe_error(error: BaseException) -> str:
    """An exception in one line, with the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    try:
        text = " ".join(str(error).split())
    except Exception:  # its own text fails
        text = ""
    text = writable(text)
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"
