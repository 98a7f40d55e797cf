"""Writes the codec of one message in one version as flat Python, and compiles it.

What makes the code fast (a general interpreter of declarations takes two to four times as long):

- Nested structs and arrays are inlined as nested loops of one function.
- Neighbouring fields of fixed size go through one precompiled `struct.Struct`; the length of what
  follows them joins in, in flexible versions on the bet that it fits the one byte it nearly always
  does, checked right after.
- Decoded values are unpacked straight into the slots of an object made without `__init__`.
- Everything that depends on the version is decided here, once.

The generated code does not know where it is when something fails.  Then the same generator is asked
for a `traced` function, which does, and the work is done again to find out.
"""

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from kafkalike.errors import UnsupportedVersion
from kafkalike.runtime.ports import Buffer, FileRange

from . import primitives
from .declaration import Field, Struct, fields_of
from .primitives import (
    BYTES,
    RECORDS,
    STRING,
    STRUCT,
    MalformedMessage,
    UnencodableMessage,
    WireType,
)

Decoder = Callable[[Buffer, int], tuple[Any, int]]
Encoder = Callable[[Any], list[Buffer | FileRange]]


def has_records(message: type[Struct], version: int) -> bool:
    """Whether record batches may be somewhere inside the message."""
    return any(
        field.wire is RECORDS or (field.struct is not None and has_records(field.struct, version))
        for field in fields_of(message)
        if field.present(version)
    )


def build_decoder(
    message: type[Struct], version: int, flexible: bool, *, traced: bool = False
) -> Decoder:
    """A function from (data, position) to (message, position after it).

    It raises IndexError, struct.error or MalformedMessage for bad data; a traced one raises nothing
    but MalformedMessage, with the place and the cause.
    """
    return _DecoderSource(message, version, flexible, traced).build()


def build_encoder(
    message: type[Struct], version: int, flexible: bool, *, traced: bool = False
) -> Encoder:
    """A function from a message to the pieces of its encoding, records left apart.

    It raises whatever comes of values that do not fit; a traced one raises UnencodableMessage with
    the place and the cause.  Both raise UnsupportedVersion where the version cannot carry a value.
    """
    return _EncoderSource(message, version, flexible, traced).build()


def minimal_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes one value (of an array: one element) can take."""
    if field.wire.code:
        return field.wire.size
    if field.struct is not None:
        return minimal_struct_size(field.struct, version, flexible)
    return 1 if flexible else 2 if field.wire is STRING else 4


def minimal_struct_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes one struct can take: what bounds the length of an array of it."""
    size = 1 if flexible else 0
    for field in fields_of(cls):
        if field.present(version) and field.tag is None:
            if field.is_array:
                size += 1 if flexible else 4
            else:
                size += minimal_size(field, version, flexible)
    return size


class _Source:
    """Lines of one function, and the objects that its text names."""

    def __init__(self, message: type[Struct], version: int, flexible: bool, traced: bool) -> None:
        self.message = message
        self.version = version
        self.traced = traced
        self.flexible = flexible
        self.title = f"{message.__name__} v{version}"
        self.names: dict[str, Any] = {}
        self._named: dict[int, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.emit(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def name(self, value: Any, prefix: str = "c") -> str:
        """A global name for an object of the generator."""
        if id(value) not in self._named:
            name = f"{prefix}{len(self._named)}"
            self._named[id(value)] = name
            self.names[name] = value
        return self._named[id(value)]

    def literal(self, value: Any) -> str:
        """An expression for a default."""
        if isinstance(value, list):
            return "[]"
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        return self.name(value, "shared")

    def compile(self, head: str) -> Any:
        source = "\n".join((head, *self._lines))
        exec(compile(source, f"<{self.title} {type(self).__name__}>", "exec"), self.names)
        return self.names[head.split("(", maxsplit=1)[0].removeprefix("def ")]

    def present(self, cls: type[Struct]) -> list[Field]:
        return [field for field in fields_of(cls) if field.present(self.version)]


class _DecoderSource(_Source):
    """Variables of the text: `data`, `p` position, `end`; traced also `where` and `need`."""

    def __init__(self, message: type[Struct], version: int, flexible: bool, traced: bool) -> None:
        super().__init__(message, version, flexible, traced)
        self._pending: list[tuple[str, WireType, str]] = []
        self._view = has_records(message, version)
        self.names.update(
            Malformed=MalformedMessage,
            StructError=struct.error,
            read_uvarint=primitives.read_uvarint,
            finish_uvarint=primitives.finish_uvarint,
            finish_length=primitives.finish_length,
            finish_string_length=primitives.finish_string_length,
            unpack_from=struct.unpack_from,
        )

    def build(self) -> Decoder:
        self.emit("data = memoryview(data)" if self._view else "data = bytes(data)")
        self.emit("end = len(data)")
        if self.traced:
            self.emit("where = ''; need = 0")
            with self.block("try:"):
                self._struct(self.message, "m", "")
                self.emit("return m, p")
            self.emit("except (IndexError, StructError):")
            self.emit(
                f"    raise Malformed(f'{self.title}: {{where}}: needs {{need}} bytes, but "
                "{max(end - p, 0)} are left') from None"
            )
            self.emit("except Malformed as error:")
            self.emit(f"    raise Malformed(f'{self.title}: {{where}}: {{error}}') from None")
        else:
            self._struct(self.message, "m", "")
            self.emit("return m, p")
        decoder: Decoder = self.compile("def decode(data, p):")
        return decoder

    def _struct(self, cls: type[Struct], target: str, path: str) -> None:
        self.emit(f"{target} = {self.name(partial(object.__new__, cls), 'new')}()")
        present = self.present(cls)
        for field in fields_of(cls):
            if field not in present or field.tag is not None:
                self._default(field, target)
        for field in present:
            if field.tag is None:
                self._field(field, f"{target}.{field.name}", f"{path}{field.name}")
        if self.flexible:
            self._tags([field for field in present if field.tag is not None], target, path)
        else:
            self._flush()

    def _default(self, field: Field, target: str) -> None:
        value = field.default
        if field.default_is_struct and field.tag is None:
            value_text = f"{self.name(type(value))}()"
        else:
            value_text = self.literal(value)
        self.emit(f"{target}.{field.name} = {value_text}")

    # -- fields of fixed size, gathered until something else comes

    def _fixed(self, target: str, wire: WireType, path: str) -> None:
        self._pending.append((target, wire, path))
        if self.traced:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        targets = ", ".join(target for target, _, _ in self._pending)
        size = sum(wire.size for _, wire, _ in self._pending)
        self._trace(self._pending[0][2], size)
        if [wire.code for _, wire, _ in self._pending] == ["B"]:
            self.emit(f"{targets} = data[p]; p += 1")
        else:
            codes = "".join(wire.code for _, wire, _ in self._pending)
            unpack = self._unpacker(codes)
            self.emit(f"{targets}, = {unpack}(data, p); p += {size}")
        self._pending.clear()

    def _unpacker(self, codes: str) -> str:
        name = f"unpack_{codes.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = struct.Struct(f">{codes}").unpack_from
        return name

    def _trace(self, path: str, need: int = 0) -> None:
        if self.traced:
            self.emit(f"where = f'{path}'; need = {need}")

    # -- lengths

    def _length(self, path: str, classic: WireType, finish: str = "finish_length") -> str:
        """Read a length into a variable; compact ones stay length + 1, with 0 for null."""
        n = self.variable("n")
        if self.flexible:
            self._pending.append((n, WireType("length", "B", 1), path))
            self._flush()
            self.emit(f"if {n} > 127: {n}, p = {finish}(data, p, {n})")
        else:
            self._pending.append((n, classic, path))
            self._flush()
        return n

    def _null_or(self, field: Field, target: str, n: str, what: str) -> Any:
        """A block for what is not null, after one for null (or its refusal)."""
        is_null = f"not {n}" if self.flexible else f"{n} < 0"
        self.emit(f"if {is_null}:")
        if field.nullable_in(self.version):
            self.emit(f"    {target} = None")
        else:
            self.emit(f"    raise Malformed('null, expected {what}')")
        return self.block("else:")

    def _until(self, n: str, what: str) -> str:
        q = self.variable("q")
        self.emit(f"{q} = p + {n}" + (" - 1" if self.flexible else ""))
        length = f"{q} - p"
        self.emit(
            f"if {q} > end: raise Malformed(f'{what} of {{{length}}} bytes, but {{end - p}} are left')"
        )
        return q

    # -- values

    def _field(self, field: Field, target: str, path: str) -> None:
        if field.is_array:
            self._array(field, target, path)
        else:
            self._value(field, target, path)

    def _value(self, field: Field, target: str, path: str) -> None:
        if field.wire.code:
            self._fixed(target, field.wire, path)
        elif field.wire is STRUCT:
            self._inner_struct(field, target, path)
        elif field.wire is STRING:
            self._string(field, target, path)
        else:
            self._bytes(field, target, path)

    def _string(self, field: Field, target: str, path: str) -> None:
        n = self._length(path, WireType("length", "h", 2), "finish_string_length")
        with self._null_or(field, target, n, "a string"):
            q = self._until(n, "a string")
            piece = "data[p:{}].tobytes()" if self._view else "data[p:{}]"
            self.emit(
                f"{target} = {piece.format(q)}.decode('utf-8', {primitives.REPLACE!r}); p = {q}"
            )

    def _bytes(self, field: Field, target: str, path: str) -> None:
        n = self._length(path, WireType("length", "i", 4))
        with self._null_or(field, target, n, field.wire.name):
            q = self._until(n, field.wire.name)
            copy = ".tobytes()" if self._view and field.wire is BYTES else ""
            self.emit(f"{target} = data[p:{q}]{copy}; p = {q}")

    def _inner_struct(self, field: Field, target: str, path: str) -> None:
        assert field.struct is not None
        self._flush()
        inner = self.variable("m")
        if not field.nullable_in(self.version):
            self._struct(field.struct, inner, f"{path}.")
            self.emit(f"{target} = {inner}")
            return
        # A struct that may be null is preceded by a signed byte, below zero for null.
        mark = self.variable("n")
        self._fixed(mark, WireType("mark", "b", 1), path)
        self._flush()
        self.emit(f"if {mark} < 0: {target} = None")
        with self.block("else:"):
            self._struct(field.struct, inner, f"{path}.")
            self.emit(f"{target} = {inner}")

    def _array(self, field: Field, target: str, path: str) -> None:
        n = self._length(path, WireType("length", "i", 4))
        with self._null_or(field, target, n, "an array"):
            if self.flexible:
                self.emit(f"{n} -= 1")
            smallest = max(minimal_size(field, self.version, self.flexible), 1)
            bound = n if smallest == 1 else f"{n} * {smallest}"
            self.emit(
                f"if {bound} > end - p: raise Malformed(f'an array of {{{n}}} elements of at least "
                f"{smallest} bytes, but {{end - p}} are left')"
            )
            if field.wire.code and field.wire.size <= 8 and field.wire.code != "?":
                self._integers(field.wire, target, n)
                return
            items, index = self.variable("items"), self.variable("i")
            self.emit(f"{target} = {items} = []")
            with self.block(f"for {index} in range({n}):"):
                element_path = f"{path}[{{{index}}}]"
                item = self.variable("m")
                if field.struct is not None:
                    self._struct(field.struct, item, f"{element_path}.")
                else:
                    self._value(_element(field), item, element_path)
                    self._flush()
                self.emit(f"{items}.append({item})")

    def _integers(self, wire: WireType, target: str, n: str) -> None:
        table = self.name(primitives.UNPACK_ARRAY[wire.code], "arrays_")
        with self.block(f"if {n} < {primitives.SMALL_ARRAY}:"):
            self.emit(f"{target} = list({table}[{n}](data, p))")
        with self.block("else:"):
            self.emit(f"{target} = list(unpack_from(f'>{{{n}}}{wire.code}', data, p))")
        self.emit(f"p += {n} * {wire.size}")

    def _tags(self, tagged: list[Field], target: str, path: str) -> None:
        """The section at the end of a flexible struct.

        As in Kafka, tags may come in any order and more than once, the last one counts, and the
        declared size of a known tag is not compared with what was read.
        """
        count, tag, size = self.variable("n"), self.variable("tag"), self.variable("size")
        self._pending.append((count, WireType("length", "B", 1), f"{path}tags"))
        self._flush()
        with self.block(f"if {count}:"):
            self.emit(f"if {count} > 127: {count}, p = finish_uvarint(data, p, {count})")
            with self.block(f"for _ in range({count} if {count} <= 0x7FFFFFFF else 0):"):
                self._trace(f"{path}tags", 2)
                self.emit(f"{tag}, p = read_uvarint(data, p)")
                self.emit(f"{size}, p = read_uvarint(data, p)")
                branch = "if"
                for field in tagged:
                    with self.block(f"{branch} {tag} == {field.tag}:"):
                        self._field(field, f"{target}.{field.name}", f"{path}{field.name}")
                        self._flush()
                    branch = "elif"
                self.emit(f"{'else' if tagged else 'if True'}:")
                self.emit(
                    f"    if {size} > end - p: raise Malformed(f'tag {{{tag}}} of {{{size}}} bytes,"
                    " but {end - p} are left')"
                )
                self.emit(f"    p += {size}")


class _EncoderSource(_Source):
    """Variables of the text: `m` the message, `add` takes the next piece; traced also `where`."""

    def __init__(self, message: type[Struct], version: int, flexible: bool, traced: bool) -> None:
        super().__init__(message, version, flexible, traced)
        self._pending: list[tuple[str, str]] = []
        self._add = "add"
        self.names.update(
            Unencodable=UnencodableMessage,
            Unsupported=UnsupportedVersion,
            StructError=struct.error,
            SMALL=primitives.SMALL_VARINTS,
            uvarint=primitives.uvarint,
            long_string_length=primitives.long_string_length,
            records_size=primitives.records_size,
            pack=struct.pack,
            bad_uuid=_bad_uuid,
        )

    def build(self) -> Encoder:
        records = has_records(self.message, self.version)
        self.emit("parts = []; add = parts.append")
        if records:
            self.emit("out = []")
        result = "out if out else [b'']" if records else "[b''.join(parts)]"
        if self.traced:
            self.emit("where = ''")
            with self.block("try:"):
                self._struct(self.message, "m", "")
                self._flush()
            self.emit("except Unsupported: raise")
            self.emit("except (StructError, TypeError, AttributeError, ValueError) as error:")
            self.emit(f"    raise Unencodable(f'{self.title}: {{where}}: {{error}}') from None")
        else:
            self._struct(self.message, "m", "")
            self._flush()
        if records:
            self.emit("if parts: out.append(b''.join(parts))")
        self.emit(f"return {result}")
        encoder: Encoder = self.compile("def encode(m):")
        return encoder

    def _struct(self, cls: type[Struct], source: str, path: str) -> None:
        present = self.present(cls)
        for field in fields_of(cls):
            if field not in present and not field.ignorable:
                self._gate(field, source, path)
        for field in present:
            if field.tag is None:
                self._field(field, f"{source}.{field.name}", f"{path}{field.name}")
        if self.flexible:
            self._tags([field for field in present if field.tag is not None], source, path)

    def _gate(self, field: Field, source: str, path: str) -> None:
        until = " or later" if field.until is None else f" to {field.until}"
        path = re.sub(r"\{\w+\}", "", path)  # the places in arrays are known to traced code only
        with self.block(f"if {source}.{field.name} != {self._default(field)}:"):
            self.emit(
                f"raise Unsupported(f'{self.title}: {path}{field.name} = {{{source}.{field.name}!r}}"
                f" needs version {field.since}{until}')"
            )

    def _default(self, field: Field) -> str:
        return self.literal(field.default)

    # -- values of fixed size, gathered until something else comes

    def _fixed(self, code: str, expression: str, path: str) -> None:
        if self.traced and path:
            self._flush()
            self.emit(f"where = f'{path}'")
        self._pending.append((code, expression))

    def _flush(self, last: tuple[str, str] | None = None) -> None:
        pieces = self._pending if last is None else [*self._pending, last]
        if last is None:
            self._pending = []
        if pieces:
            self.emit(f"{self._add}({self._packed(pieces)})")

    def _packed(self, pieces: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in pieces)
        if not codes.strip("x"):
            return repr(bytes(len(codes)))
        if codes == "B":
            return f"SMALL[{pieces[0][1]}]"
        name = f"pack_{codes.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = struct.Struct(f">{codes}").pack
        return f"{name}({', '.join(expression for code, expression in pieces if code != 'x')})"

    def _length(self, n: str, code: str, long: str = "uvarint") -> None:
        """Write what is pending and then a length, which in compact form is length + 1."""
        if not self.flexible:
            self._pending.append((code, n))
            self._flush()
            return
        with self.block(f"if {n} < 128:"):
            self._flush(("B", n))
        with self.block("else:"):
            self._flush()
            self.emit(f"{self._add}({long}({n}))")
        self._pending = []

    # -- values

    def _field(self, field: Field, value: str, path: str) -> None:
        if field.is_array:
            self._array(field, value, path)
        else:
            self._value(field, value, path)

    def _value(self, field: Field, value: str, path: str) -> None:
        wire = field.wire
        if wire is primitives.UUID:
            checked = f"{value} if len({value}) == 16 else bad_uuid({value})"
            self._fixed(wire.code, checked, path)
        elif wire.code:
            self._fixed(wire.code, value, path)
        elif wire is STRUCT:
            self._inner_struct(field, value, path)
        else:
            self._sized(field, value, path)

    def _sized(self, field: Field, value: str, path: str) -> None:
        """A string, bytes or records: length, then content."""
        if self.traced:
            self._flush()
            self.emit(f"where = f'{path}'")
        plus_one = " + 1" if self.flexible else ""
        n, content = self.variable("n"), self.variable("b")
        self.emit(f"{content} = {value}")
        measure = f"len({content})"
        if field.wire is RECORDS:
            many = f"{content}.__class__ is list or {content}.__class__ is tuple"
            measure = f"(records_size({content}) if {many} else len({content}))"
        prepare = (
            f"{content} = {content}.encode('utf-8', 'replace'); " if field.wire is STRING else ""
        )
        if field.nullable_in(self.version):
            null = "0" if self.flexible else "-1"
            self.emit(f"if {content} is None: {n} = {null}; {content} = b''")
            self.emit(f"else: {prepare}{n} = {measure}{plus_one}")
        else:
            self.emit(f"{prepare}{n} = {measure}{plus_one}")
        if field.wire is STRING:
            self._length(n, "h", "long_string_length")
        else:
            self._length(n, "i")
        if field.wire is not RECORDS:
            self.emit(f"{self._add}({content})")
            return
        with self.block(f"if {n} > {1 if self.flexible else 0}:"):
            self.emit("out.append(b''.join(parts)); parts.clear()")
            self.emit(f"if {many}: out.extend({content})")
            self.emit(f"else: out.append({content})")

    def _inner_struct(self, field: Field, value: str, path: str) -> None:
        assert field.struct is not None
        inner = self.variable("m")
        self.emit(f"{inner} = {value}")
        if not field.nullable_in(self.version):
            self._struct(field.struct, inner, f"{path}.")
            return
        self._flush()
        with self.block(f"if {inner} is None:"):
            self.emit(f"{self._add}(b'\\xff')")
        with self.block("else:"):
            self._pending.append(("b", "1"))
            self._struct(field.struct, inner, f"{path}.")
            self._flush()

    def _array(self, field: Field, value: str, path: str) -> None:
        if self.traced:
            self._flush()
            self.emit(f"where = f'{path}'")
        items, n = self.variable("items"), self.variable("n")
        plus_one = " + 1" if self.flexible else ""
        self.emit(f"{items} = {value}")
        if field.nullable_in(self.version):
            null = "0" if self.flexible else "-1"
            self.emit(f"if {items} is None: {n} = {null}; {items} = ()")
            self.emit(f"else: {n} = len({items}){plus_one}")
        else:
            self.emit(f"{n} = len({items}){plus_one}")
        if field.wire.code and field.wire.size <= 8 and field.wire.code != "?":
            self._integers(field.wire, items, n)
            return
        self._length(n, "i")
        item, index = self.variable("m"), self.variable("i")
        head = f"for {item} in {items}:"
        if self.traced:
            head = f"for {index}, {item} in enumerate({items}):"
        with self.block(head):
            element_path = f"{path}[{{{index}}}]"
            if field.struct is not None:
                self._struct(field.struct, item, f"{element_path}.")
            else:
                self._value(_element(field), item, element_path)
            self._flush()

    def _integers(self, wire: WireType, items: str, n: str) -> None:
        """Count and values of a short array in one go."""
        self._flush()
        tables = primitives.PACK_COMPACT_ARRAY if self.flexible else primitives.PACK_ARRAY
        table = self.name(tables[wire.code], "arrays_")
        with self.block(f"if len({items}) < {primitives.SMALL_ARRAY}:"):
            self.emit(f"{self._add}({table}[len({items})]({n}, *{items}))")
        with self.block("else:"):
            count = f"uvarint({n})" if self.flexible else f"pack('>i', {n})"
            self.emit(f"{self._add}({count})")
            self.emit(f"{self._add}(pack(f'>{{len({items})}}{wire.code}', *{items}))")

    # -- tagged fields

    def _tags(self, tagged: list[Field], source: str, path: str) -> None:
        if not tagged:
            self._pending.append(("x", ""))
            return
        self._flush()
        at_default = " and ".join(self._is_default(field, source) for field in tagged)
        with self.block(f"if {at_default}:"):
            self.emit(f"{self._add}(b'\\0')")
        with self.block("else:"):
            tags, outer = self.variable("tags"), self._add
            self.emit(f"{tags} = []")
            for field in sorted(tagged, key=lambda field: field.tag or 0):
                with self.block(f"if not {self._is_default(field, source)}:"):
                    pieces = self.variable("pieces")
                    self.emit(f"{pieces} = []")
                    self._add = f"{pieces}.append"
                    self._field(field, f"{source}.{field.name}", f"{path}{field.name}")
                    self._flush()
                    self.emit(f"{pieces} = b''.join({pieces})")
                    self.emit(
                        f"{tags}.append(uvarint({field.tag}) + uvarint(len({pieces})) + {pieces})"
                    )
            self._add = outer
            self.emit(f"{self._add}(uvarint(len({tags})) + b''.join({tags}))")

    def _is_default(self, field: Field, source: str) -> str:
        value, default = f"{source}.{field.name}", self._default(field)
        if field.default_is_struct or field.default is None:
            return f"({value} is {default} or {value} == {default})"
        return f"({value} == {default})"


def _element(field: Field) -> Field:
    """One element of an array that holds no structs; it may not be null."""
    return Field(
        field.name, field.wire, None, False, False, None, 0, None, None, 0, field.ignorable
    )


def _bad_uuid(value: Any) -> bytes:
    raise UnencodableMessage(f"an id of {len(value)} bytes, expected 16")
