"""A declaration language for settings: a class body is the table of keys.

    class BrokerConfig(Settings):
        num_partitions: Int = setting(1, low=1)

The key is the attribute's name with dots for underscores (or `name=`), the annotation gives Kafka's
type, and `| None` allows the unset value that Kafka calls null.  Values are parsed and printed as
Kafka does (reference: configs 1, 2): trimmed text, `true`/`false` in any case, comma lists.
"""

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, TypeAlias


class ConfigError(ValueError):
    """A setting is wrong; the text is one line naming key, value and what is allowed."""

    def __init__(self, key: str, value: object, problem: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {key}: {problem}")
        self.key = key
        self.value = value
        self.problem = problem


class ConfigType(Enum):
    """Kafka's types of settings; the value is the number DescribeConfigs carries."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Bool: TypeAlias = Annotated[bool, ConfigType.BOOLEAN]
Text: TypeAlias = Annotated[str, ConfigType.STRING]
Int: TypeAlias = Annotated[int, ConfigType.INT]
Short: TypeAlias = Annotated[int, ConfigType.SHORT]
Long: TypeAlias = Annotated[int, ConfigType.LONG]
Double: TypeAlias = Annotated[float, ConfigType.DOUBLE]
TextList: TypeAlias = Annotated[tuple[str, ...], ConfigType.LIST]
ClassName: TypeAlias = Annotated[str, ConfigType.CLASS]
Password: TypeAlias = Annotated[str, ConfigType.PASSWORD]

_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class Dynamic(Enum):
    """How a broker setting may change while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(slots=True, frozen=True)
class Key:
    """One declared setting."""

    name: str
    attribute: str
    type: ConfigType
    default: Any
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    check: Callable[[Any], str | None] | None
    dynamic: Dynamic
    internal: bool
    broker_names: tuple[str, ...]

    def parse(self, text: str | None) -> Any:
        """The value that `text` means.  Raises ConfigError."""
        value = None if text is None else parse_value(self.name, self.type, text)
        self.validate(value)
        return value

    def validate(self, value: Any) -> None:
        """Raise ConfigError unless range, choices and the key's own check allow the value."""
        if value is None:
            if self.default is not None:
                raise ConfigError(self.name, None, "entry must be non null")
            return
        for item in value if isinstance(value, tuple) else (value,):
            if self.choices is not None and item not in self.choices:
                allowed = ", ".join(self.choices)
                raise ConfigError(self.name, item, f"String must be one of: {allowed}")
            if self.low is not None and item < self.low:
                raise ConfigError(self.name, item, f"Value must be at least {self.low}")
            if self.high is not None and item > self.high:
                raise ConfigError(self.name, item, f"Value must be no more than {self.high}")
        if self.check is not None and (problem := self.check(value)) is not None:
            raise ConfigError(self.name, format_value(self.type, value), problem)


def setting(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    check: Callable[[Any], str | None] | None = None,
    dynamic: Dynamic = Dynamic.READ_ONLY,
    internal: bool = False,
    name: str | None = None,
    broker_names: tuple[str, ...] = (),
) -> Any:
    """Declare one setting in the body of a Settings class.

    `check` returns what is wrong with a parsed value, or None.  `broker_names` are, for a topic
    setting, the broker settings that give its default, in the order of precedence.
    """
    return _Declared(default, low, high, choices, check, dynamic, internal, name, broker_names)


@dataclass(slots=True, frozen=True)
class _Declared:
    default: Any
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    check: Callable[[Any], str | None] | None
    dynamic: Dynamic
    internal: bool
    name: str | None
    broker_names: tuple[str, ...]


def parse_value(name: str, kind: ConfigType, text: str) -> Any:
    """Text as Kafka reads it.  Raises ConfigError naming what was expected."""
    if kind is ConfigType.PASSWORD:
        return text
    trimmed = text.strip()
    if kind in (ConfigType.STRING, ConfigType.CLASS):
        return trimmed
    if kind is ConfigType.LIST:
        return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
    if kind is ConfigType.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise ConfigError(name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind is ConfigType.DOUBLE:
        try:
            return float(trimmed)
        except ValueError:
            raise ConfigError(name, text, "Not a number of type DOUBLE") from None
    try:
        if "_" in trimmed:
            raise ValueError(trimmed)
        number = int(trimmed)
    except ValueError:
        raise ConfigError(name, text, f"Not a number of type {kind.name}") from None
    bound = 1 << (_INTEGER_BITS[kind] - 1)
    if not -bound <= number < bound:
        raise ConfigError(name, text, f"Not a number of type {kind.name}")
    return number


def format_value(kind: ConfigType, value: Any) -> str | None:
    """A parsed value as Kafka prints it, None for null."""
    if value is None:
        return None
    if kind is ConfigType.LIST:
        return ",".join(value)
    if kind is ConfigType.BOOLEAN:
        return "true" if value else "false"
    if kind is ConfigType.DOUBLE:
        return java_double(value)
    return str(value)


def java_double(value: float) -> str:
    """A double as Java prints it: plain between 0.001 and 10^7, else with an exponent."""
    if math.isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, exponent = f"{value:.16e}".split("e")
    shortest = repr(float(value))
    if "e" in shortest:
        mantissa, exponent = shortest.split("e")
    else:
        mantissa = mantissa.rstrip("0")
    if "." not in mantissa:
        mantissa += ".0"
    elif mantissa.endswith("."):
        mantissa += "0"
    return f"{mantissa}E{int(exponent)}"


def nearest(name: str, known: typing.Iterable[str]) -> str | None:
    """The known key that `name` was probably meant to be."""
    import difflib

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return matches[0] if matches else None


class Settings:
    """Parsed values of one table of settings; immutable once built."""

    KEYS: ClassVar[dict[str, Key]] = {}
    """Every declared key by its dotted name, sorted."""

    values: Mapping[str, Any]
    """Parsed value by dotted name, for every declared key."""
    originals: Mapping[str, str]
    """What was given, by name, including names that are not declared."""

    def __init_subclass__(cls) -> None:
        keys = dict(cls.KEYS)
        for attribute, annotation in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063
            declared = cls.__dict__.get(attribute)
            if not isinstance(declared, _Declared):
                continue
            name = declared.name or attribute.replace("_", ".")
            key = Key(
                name,
                attribute,
                _kind_of(annotation),
                declared.default,
                declared.low,
                declared.high,
                declared.choices,
                declared.check,
                declared.dynamic,
                declared.internal,
                declared.broker_names,
            )
            keys[name] = key
            delattr(cls, attribute)
        cls.KEYS = dict(sorted(keys.items()))

    def __init__(self, given: Mapping[str, str], defaults: Mapping[str, Any] | None = None) -> None:
        """Parse `given`; `defaults` are parsed values that stand before the declared ones."""
        values: dict[str, Any] = {}
        inherited = defaults or {}
        for name, key in self.KEYS.items():
            text = given.get(name)
            if text is not None:
                values[name] = key.parse(text)
            else:
                values[name] = inherited.get(name, key.default)
            self.__dict__[key.attribute] = values[name]
        self.values = types.MappingProxyType(values)
        self.originals = types.MappingProxyType(dict(given))

    def is_set(self, name: str) -> bool:
        """Whether the key was given rather than left at its default."""
        return name in self.originals


def _kind_of(annotation: Any) -> ConfigType:
    for part in (annotation, *typing.get_args(annotation)):
        for item in getattr(part, "__metadata__", ()):
            if isinstance(item, ConfigType):
                return item
    raise TypeError(f"{annotation!r} is not a setting's type")
