"""Java properties files: server.properties, meta.properties.

Comments start with `#` or `!`, a backslash at the end joins lines, `\\uXXXX` and the usual escapes
are understood, key and value are split at the first unescaped `=`, `:` or blank.
"""

from collections.abc import Mapping
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS: Final = " \t\f"


class PropertiesError(ValueError):
    """The text is no properties file; the message names the line."""


def parse_properties(text: str) -> dict[str, str]:
    """Key to value; a key given twice keeps its last value.  Raises PropertiesError."""
    found: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        line = line.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while _ends_with_odd_backslashes(line):
            _, following = next(lines, (0, ""))
            line = line[:-1] + following.lstrip(_BLANKS)
        key, value = _split(line)
        try:
            found[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise PropertiesError(f"line {number}: {error}") from error
    return found


def format_properties(values: Mapping[str, str], comment: str = "") -> str:
    """The text that `parse_properties` and Java read back as `values`."""
    lines = [f"#{line}" for line in comment.splitlines()]
    lines.extend(f"{_escape(k, key=True)}={_escape(v, key=False)}" for k, v in values.items())
    return "\n".join(lines) + "\n"


def _ends_with_odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in "=:" or character in _BLANKS:
            break
        position += 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                raise ValueError(f"\\u wants four hexadecimal digits, found {digits!r}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    joined = "".join(out)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for index, character in enumerate(text):
        if character == "\\" or character in "=:#!":
            out.append("\\" + character)
        elif character == " " and (key or index == 0):
            out.append("\\ ")
        elif character in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[character])
        elif 0x20 <= ord(character) <= 0x7E:
            out.append(character)
        else:
            units = character.encode("utf-16-be")
            for start in range(0, len(units), 2):
                out.append(f"\\u{int.from_bytes(units[start : start + 2], 'big'):04X}")
    return "".join(out)
