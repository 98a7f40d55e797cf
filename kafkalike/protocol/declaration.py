"""Declared structs: what a class body says about fields, kept in a form the generator can read.

`struct` explains the language; this is its lower half, which knows nothing of codecs.
"""

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from .primitives import BOOL, BYTES, STRING, STRUCT, WireType


class _Missing:
    """Stands for "not given" where None is a value."""

    def __repr__(self) -> str:
        return "<default>"


MISSING: Final = _Missing()


@dataclass(slots=True, frozen=True)
class _Declaration:
    """What `field(...)` was told."""

    default: Any
    default_factory: Callable[[], Any] | None
    since: int
    until: int | None
    tag: int | None
    nullable_since: int | None
    ignorable: bool


def field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    nullable_since: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field that is more than a type and a default.

    It exists in versions `since` to `until` (both included; None = all later ones).  With `tag` it
    travels in the tagged section, only when it differs from its default.  `nullable_since`: null is
    allowed from that version on, otherwise wherever the annotation says `| None`.  `ignorable`: an
    older version drops the value in silence; without it, encoding a value other than the default
    in a version that cannot carry it raises UnsupportedVersion.
    """
    return _Declaration(default, default_factory, since, until, tag, nullable_since, ignorable)


@dataclass(slots=True, frozen=True)
class Field:
    """One resolved field of a struct, as the code generator and the documents see it.

    `wire` is the type of the value or, in an array, of its elements; `struct` the class behind it
    when that is STRUCT.  `default` is the value itself; a list stands for "a new empty list".
    """

    name: str
    wire: WireType
    struct: "type[Struct] | None"
    is_array: bool
    nullable: bool
    default: Any
    since: int
    until: int | None
    tag: int | None
    nullable_since: int
    ignorable: bool

    def present(self, version: int) -> bool:
        """Whether the field exists in a version, tagged or not."""
        return self.since <= version and (self.until is None or version <= self.until)

    def nullable_in(self, version: int) -> bool:
        """Whether null may be written in that version."""
        return self.nullable and version >= self.nullable_since

    @property
    def default_is_struct(self) -> bool:
        return self.wire is STRUCT and not self.is_array and self.default is not None


@dataclass_transform(kw_only_default=True, eq_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Turns a class body of annotated defaults into a class with slots, `__init__` and `==`."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "StructMeta":
        annotations = {
            field_name: annotation
            for field_name, annotation in namespace.get("__annotations__", {}).items()
            if get_origin(annotation) is not ClassVar and not field_name.startswith("_")
        }
        declared: dict[str, _Declaration] = {}
        for field_name in annotations:
            if field_name not in namespace:
                raise TypeError(f"{name}.{field_name}: a field needs a default")
            if any(hasattr(base, field_name) for base in bases):
                raise TypeError(f"{name}.{field_name}: the name is taken by the base class")
            value = namespace.pop(field_name)
            if not isinstance(value, _Declaration):
                value = _Declaration(value, None, 0, None, None, None, False)
            if value.default is MISSING and value.default_factory is None:
                raise TypeError(f"{name}.{field_name}: a field needs a default")
            declared[field_name] = value
        namespace.setdefault("__slots__", tuple(annotations))
        # The class of a shared default adds no fields and keeps the methods of its base.
        if "__setattr__" not in namespace:
            namespace["_declared"] = declared
            namespace["_annotated"] = annotations
        cls = super().__new__(mcls, name, bases, namespace, **options)
        if "__setattr__" not in namespace:
            _add_methods(cls, declared)
        return cls


def _add_methods(cls: type, declared: dict[str, _Declaration]) -> None:
    """Write `__init__` and `__eq__` out as flat code, as a dataclass does."""
    values: dict[str, Any] = {"MISSING": MISSING, "cls": cls}
    parameters, body = [], []
    for name, declaration in declared.items():
        factory = _factory(declaration)
        if factory is None:
            values[f"default_{name}"] = declaration.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"    self.{name} = {name}")
        else:
            values[f"new_{name}"] = factory
            parameters.append(f"{name}=MISSING")
            body.append(f"    self.{name} = new_{name}() if {name} is MISSING else {name}")
    signature = f"self, *, {', '.join(parameters)}" if parameters else "self"
    equal = " and ".join(f"self.{name} == other.{name}" for name in declared) or "True"
    source = "\n".join(
        (
            f"def __init__({signature}):",
            *(body or ["    pass"]),
            "def __eq__(self, other):",
            f"    return {equal} if isinstance(other, cls) else NotImplemented",
        )
    )
    exec(compile(source, f"<{cls.__qualname__}>", "exec"), values)
    for method in ("__init__", "__eq__"):
        values[method].__qualname__ = f"{cls.__qualname__}.{method}"
        setattr(cls, method, values[method])


def _factory(declaration: _Declaration) -> Callable[[], Any] | None:
    """What makes the default of one field, or None when the default itself will do."""
    if declaration.default_factory is not None:
        factory = declaration.default_factory
        if declaration.tag is not None and isinstance(factory, StructMeta):
            shared = shared_default(cast("type[Struct]", factory))
            return lambda: shared
        return factory
    return list if isinstance(declaration.default, list) else None


class Struct(metaclass=StructMeta):
    """A part of a message: fields only, no codec of its own."""

    _declared: ClassVar[dict[str, _Declaration]]
    _annotated: ClassVar[dict[str, Any]]
    _fields: ClassVar[tuple[Field, ...]]
    _shared: ClassVar["Struct"]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._declared)
        return f"{type(self).__qualname__}({values})"


def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """The resolved fields of a struct or message, in wire order."""
    if "_fields" not in struct.__dict__:
        struct._fields = tuple(
            _resolve(struct, name, declaration) for name, declaration in struct._declared.items()
        )
    return struct._fields


def _resolve(struct: type[Struct], name: str, declaration: _Declaration) -> Field:
    annotation = struct._annotated[name]
    if isinstance(annotation, str):
        # A class body cannot see the classes of the body around it: shared structs are quoted.
        annotation = eval(annotation, vars(sys.modules[struct.__module__]))
    nullable = False
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not types.NoneType)
        nullable = True
    is_array = get_origin(annotation) is list
    if is_array:
        (annotation,) = get_args(annotation)
    wire, inner = _wire_type(annotation, f"{struct.__qualname__}.{name}")
    default = declaration.default
    if declaration.default_factory is not None:
        default = cast(Any, _factory(declaration))()
    return Field(
        name,
        wire,
        inner,
        is_array,
        nullable,
        default,
        declaration.since,
        declaration.until,
        declaration.tag,
        declaration.nullable_since or declaration.since,
        declaration.ignorable,
    )


def _wire_type(annotation: Any, where: str) -> tuple[WireType, type[Struct] | None]:
    plain = {bool: BOOL, str: STRING, bytes: BYTES}
    if annotation in plain:
        return plain[annotation], None
    if get_origin(annotation) is Annotated:
        return cast(WireType, annotation.__metadata__[0]), None
    if isinstance(annotation, StructMeta):
        return STRUCT, cast("type[Struct]", annotation)
    raise TypeError(f"{where}: {annotation!r} is no wire type")


def shared_default(struct: type[Struct]) -> Struct:
    """The one immutable instance with all defaults that tagged fields of this type start from.

    A Fetch answer has three such fields for every partition and hardly ever uses one: sharing
    saves making them, and the encoder passes them over by identity.  Assigning to an attribute of
    the shared instance raises AttributeError: assign a new struct to the field instead.
    """
    if "_shared" in struct.__dict__:
        return struct._shared
    if any(isinstance(declaration.default, list) for declaration in struct._declared.values()):
        raise TypeError(f"{struct.__qualname__}: lists cannot be shared")

    def refuse(self: Struct, name: str, value: object) -> None:
        raise AttributeError(
            f"{struct.__qualname__}.{name}: this is the shared default; assign a new"
            f" {struct.__name__} to the field instead"
        )

    def duplicate(self: Struct, memo: object = None) -> Struct:
        return struct(**{name: getattr(self, name) for name in struct._declared})

    frozen = StructMeta(
        struct.__name__,
        (struct,),
        {
            "__slots__": (),
            "__setattr__": refuse,
            "__copy__": duplicate,
            "__deepcopy__": duplicate,
            "__repr__": lambda self: repr(duplicate(self)),
            "__module__": struct.__module__,
            "__hash__": None,
        },
    )
    instance = object.__new__(cast("type[Struct]", frozen))
    for name, declaration in struct._declared.items():
        object.__setattr__(instance, name, declaration.default)
    struct._shared = instance
    return instance
