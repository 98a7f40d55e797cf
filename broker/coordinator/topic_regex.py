r"""Regular expressions that topics are subscribed to, in the language of RE2/J, which Kafka 4 uses.

Matching takes time in proportion to the length of the name, whatever the expression: no expression of
a client can hold up the broker.  As only characters of topic names can match, sets are kept as the
characters of names that are in them.

Syntax: literals, `.`, `[...]` with `[:posix:]` classes, `\d \s \w \p{..}` and their negations, `|`,
`*`, `+`, `?`, `{n,m}`, groups with or without names, flags `(?imsU)`, `^ $ \A \z \b \B`, `\Q..\E`,
escapes in octal, hex and C.  No look-around, no backreferences.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import InvalidRegularExpression

LEGAL: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
"""Characters of topic names."""
MAX_REPEAT: Final = 1000
MAX_STATES: Final = 2000
"""Size of an expression after repetitions are written out.  A limit of ours."""
MAX_DEPTH: Final = 100
"""How deep groups may nest.  A limit of ours."""
MAX_CACHE: Final = 5000

_WORD: Final = frozenset(c for c in LEGAL if c.isalnum() or c == "_")
_DIGITS: Final = frozenset("0123456789")
_NOTHING: Final[frozenset[str]] = frozenset()
_PERL: Final = {"d": _DIGITS, "s": _NOTHING, "w": _WORD}
_LOWER: Final = frozenset(c for c in LEGAL if c.islower())
_UPPER: Final = frozenset(c for c in LEGAL if c.isupper())
_POSIX: Final = {
    "alnum": _LOWER | _UPPER | _DIGITS,
    "alpha": _LOWER | _UPPER,
    "ascii": LEGAL,
    "blank": _NOTHING,
    "cntrl": _NOTHING,
    "digit": _DIGITS,
    "graph": LEGAL,
    "lower": _LOWER,
    "print": LEGAL,
    "punct": frozenset("._-"),
    "space": _NOTHING,
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGITS | frozenset("abcdefABCDEF"),
}
_CATEGORIES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So"
    " Z Zl Zp Zs"
)
_SCRIPTS: Final = (
    "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid"
    " Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret"
    " Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi"
    " Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi"
    " Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin"
    " Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar"
    " New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya"
    " Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese"
    " Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan"
    " Tifinagh Ugaritic Unknown Vai Yi"
)
_C_ESCAPES: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ODD_FOLDS: Final = {"k": "\u212a", "s": "\u017f"}
"""Characters outside of names that count as the same letter."""
_MAX_RUNE: Final = 0x10FFFF
_LONGEST_NUMBER: Final = 8

_BAD_RANGE: Final = "invalid character class range"
_BAD_ESCAPE: Final = "invalid escape sequence"
_NO_ARGUMENT: Final = "missing argument to repetition operator"
_NO_PAREN: Final = "missing closing )"
_NOTHING_OPEN: Final = "regexp/syntax: internal error"
_BAD_NAME: Final = "invalid named capture"
_BAD_COUNT: Final = "invalid repeat count"
_BAD_PERL: Final = "invalid or unsupported Perl syntax"


class _Problem(Exception):
    """What is wrong with an expression."""


# -- the parsed expression ---------------------------------------------------------------------


@dataclass(slots=True)
class _Set:
    chars: frozenset[str]


@dataclass(slots=True)
class _Assertion:
    kind: str


@dataclass(slots=True)
class _All:
    """One after the other; nothing at all when empty."""

    parts: "list[_Node]"


@dataclass(slots=True)
class _Any:
    choices: "list[_Node]"


@dataclass(slots=True)
class _Repeat:
    node: "_Node"
    low: int
    high: int | None


_Node = _Set | _Assertion | _All | _Any | _Repeat


@dataclass(slots=True)
class _Frame:
    """An open group: its finished alternatives, and the one that is being read."""

    outer_flags: "_Flags"
    choices: list[_Node]
    parts: list[_Node]

    def close(self) -> _Node:
        last = _All(self.parts)
        return _Any([*self.choices, last]) if self.choices else last


@dataclass(slots=True, frozen=True)
class _Flags:
    fold: bool = False


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags = _Flags()
        self._names: set[str] = set()

    def parse(self) -> _Node:
        frames = [_Frame(self._flags, [], [])]
        repeated = False
        while self._at < len(self._text):
            frame = frames[-1]
            was_repeat, repeated = repeated, False
            char = self._text[self._at]
            if char == "(":
                self._open(frames)
            elif char == "|":
                self._at += 1
                frame.choices.append(_All(frame.parts))
                frame.parts = []
            elif char == ")":
                self._at += 1
                if len(frames) == 1:
                    raise _Problem(_NOTHING_OPEN)
                frames.pop()
                self._flags = frame.outer_flags
                frames[-1].parts.append(frame.close())
            elif char in "*+?":
                self._at += 1
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
                self._repeat(frame, low, high, was_repeat)
                repeated = True
            elif char == "{" and (limits := self._limits()) is not None:
                self._repeat(frame, *limits, was_repeat)
                repeated = True
            elif char == "[":
                frame.parts.append(_Set(self._class()))
            elif char == "\\":
                self._backslash(frame)
            else:
                self._at += 1
                if char in "^$":
                    frame.parts.append(_Assertion(char))
                else:
                    frame.parts.append(_Set(LEGAL if char == "." else self._literal(char)))
        if len(frames) != 1:
            raise _Problem(_NO_PAREN)
        return frames[0].close()

    def _literal(self, char: str) -> frozenset[str]:
        return self._range(ord(char), ord(char))

    def _range(self, low: int, high: int) -> frozenset[str]:
        if not self._flags.fold:
            return frozenset(c for c in LEGAL if low <= ord(c) <= high)
        return frozenset(c for c in LEGAL if any(low <= ord(v) <= high for v in _variants(c)))

    # -- groups --------------------------------------------------------------------------------

    def _open(self, frames: list[_Frame]) -> None:
        if len(frames) > MAX_DEPTH:
            raise _Problem(f"groups nest deeper than {MAX_DEPTH}")
        outer = self._flags
        if self._text.startswith("(?", self._at):
            named = re.compile(r"\(\?P?<").match(self._text, self._at)
            if named is not None:
                self._name(named.end())
            elif not self._perl_flags():
                return
        else:
            self._at += 1
        frames.append(_Frame(outer, [], []))

    def _name(self, begin: int) -> None:
        end = self._text.find(">", begin)
        name = self._text[begin:end]
        if end < 0 or not re.fullmatch("[A-Za-z0-9_]+", name):
            raise _Problem(_BAD_NAME)
        if name in self._names:
            raise _Problem("duplicate capture group name")
        self._names.add(name)
        self._at = end + 1

    def _perl_flags(self) -> bool:
        """Flags in front of a group (True) or from here on (False)."""
        found = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])").match(self._text, self._at)
        if found is None:
            raise _Problem(_BAD_PERL)
        on, off, end = found.groups()
        outer = self._flags
        if "i" in on or "i" in (off or ""):
            outer = _Flags(fold="i" not in (off or ""))
        self._at = found.end()
        self._flags = outer
        return end == ":"

    # -- repetition ----------------------------------------------------------------------------

    def _limits(self) -> tuple[int, int | None] | None:
        """`{n}`, `{n,}` or `{n,m}`; None when the brace stands for itself."""
        number = "(0|[1-9][0-9]*)"
        found = re.compile(rf"\{{{number}(?:(,){number}?)?\}}").match(self._text, self._at)
        if found is None:
            return None
        if any(len(digits or "") > _LONGEST_NUMBER for digits in (found[1], found[3])):
            raise _Problem(_BAD_COUNT)
        low = int(found[1])
        high = low if found[2] is None else None if found[3] is None else int(found[3])
        if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
            raise _Problem(_BAD_COUNT)
        self._at = found.end()
        return low, high

    def _repeat(self, frame: _Frame, low: int, high: int | None, was_repeat: bool) -> None:
        if self._text.startswith("?", self._at):
            self._at += 1  # as few as can be: the same names match
        if was_repeat:
            raise _Problem("invalid nested repetition operator")
        if not frame.parts:
            raise _Problem(_NO_ARGUMENT)
        frame.parts[-1] = _Repeat(frame.parts[-1], low, high)

    # -- escapes and classes -------------------------------------------------------------------

    def _backslash(self, frame: _Frame) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following in ("A", "b", "B", "z"):
            self._at += 2
            frame.parts.append(_Assertion({"A": "^", "z": "$"}.get(following, following)))
        elif following == "Q":
            begin = self._at + 2
            end = self._text.find("\\E", begin)
            quoted = self._text[begin:] if end < 0 else self._text[begin:end]
            self._at = len(self._text) if end < 0 else end + 2
            frame.parts += [_Set(self._literal(char)) for char in quoted]
        else:
            known = self._unicode_class()
            if known is None:
                known = self._perl_class()
            if known is None:
                code = self._escape()
                known = self._range(code, code)
            frame.parts.append(_Set(known))

    def _perl_class(self) -> frozenset[str] | None:
        if self._text[self._at] != "\\":
            return None
        letter = self._text[self._at + 1 : self._at + 2]
        chars = _PERL.get(letter.lower()) if letter else None
        if chars is None:
            return None
        self._at += 2
        return chars if letter.islower() else LEGAL - chars

    def _unicode_class(self) -> frozenset[str] | None:
        found = re.compile(r"\\([pP])(?:\{([^}]*)\}|([^{]))", re.DOTALL).match(self._text, self._at)
        if found is None:
            if self._text.startswith(("\\p", "\\P"), self._at):
                raise _Problem(_BAD_RANGE)
            return None
        name = found[3] if found[2] is None else found[2]
        negative = found[1] == "P"
        if name.startswith("^"):
            negative, name = not negative, name[1:]
        chars = _named(name)
        if chars is None:
            raise _Problem(_BAD_RANGE)
        if self._flags.fold:
            chars = frozenset(c for c in LEGAL if set(_variants(c)) & chars)
        self._at = found.end()
        return LEGAL - chars if negative else chars

    def _escape(self) -> int:
        """One character behind a backslash."""
        self._at += 1
        if self._at >= len(self._text):
            raise _Problem("trailing backslash at end of expression")
        octal = re.compile("[1-7][0-7]{1,2}|0[0-7]{0,2}").match(self._text, self._at)
        if octal is not None:
            self._at = octal.end()
            return int(octal[0], 8)
        char = self._text[self._at]
        self._at += 1
        if char == "x":
            digits = re.compile(r"\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{2})").match(self._text, self._at)
            if digits is not None:
                code = int(digits[1] or digits[2], 16)
                if code <= _MAX_RUNE:
                    self._at = digits.end()
                    return code
        elif char in _C_ESCAPES:
            return _C_ESCAPES[char]
        elif not (char.isascii() and char.isalnum()):
            return ord(char)
        raise _Problem(_BAD_ESCAPE)

    def _class(self) -> frozenset[str]:
        self._at += 1
        negative = self._text.startswith("^", self._at)
        self._at += negative
        chars: set[str] = set()
        first = True
        while first or not self._text.startswith("]", self._at):
            first = False
            if self._at >= len(self._text):
                raise _Problem("missing closing ]")
            found = self._posix_class()
            if found is None:
                found = self._unicode_class()
            if found is None:
                found = self._perl_class()
            chars |= self._class_range() if found is None else found
        self._at += 1
        return LEGAL - chars if negative else frozenset(chars)

    def _posix_class(self) -> frozenset[str] | None:
        if not self._text.startswith("[:", self._at):
            return None
        end = self._text.find(":]", self._at)
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        chars = _POSIX.get(name.removeprefix("^"))
        if chars is None:
            raise _Problem(_BAD_RANGE)
        if self._flags.fold:
            chars = frozenset(c for c in LEGAL if set(_variants(c)) & chars)
        self._at = end + 2
        return LEGAL - chars if name.startswith("^") else chars

    def _class_range(self) -> frozenset[str]:
        low = high = self._class_char()
        if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
            self._at += 1
            high = self._class_char()
            if high < low:
                raise _Problem(_BAD_RANGE)
        return self._range(low, high)

    def _class_char(self) -> int:
        if self._at >= len(self._text):
            raise _Problem("missing closing ]")
        if self._text[self._at] == "\\":
            return self._escape()
        self._at += 1
        return ord(self._text[self._at - 1])


def _variants(char: str) -> Iterable[str]:
    return {char.lower(), char.upper(), _ODD_FOLDS.get(char.lower(), char)}


def _named(name: str) -> frozenset[str] | None:
    """Characters of names in a Unicode category or script; None when there is none of that name."""
    if name == "Any":
        return LEGAL
    if name in _CATEGORIES.split():
        return frozenset(c for c in LEGAL if unicodedata.category(c).startswith(name))
    if name in _SCRIPTS.split():
        letters = _LOWER | _UPPER
        return {"Latin": letters, "Common": LEGAL - letters}.get(name, _NOTHING)
    return None


# -- the machine -------------------------------------------------------------------------------

_END: Final = ""
"""Read behind the last character."""
_BEGIN, _AFTER_WORD, _AFTER_OTHER = range(3)


class TopicRegex:
    """A compiled expression.  Raises InvalidRegularExpression, whose text says what is wrong."""

    def __init__(self, text: str) -> None:
        self._chars: list[frozenset[str]] = []
        """State -> what it reads; what it reads takes it to the places in `_next`."""
        self._next: list[list[int]] = []
        self._free: list[list[tuple[str, int]]] = []
        """State -> (assertion or "", state) that nothing need be read for."""
        try:
            begin, end = self._compile(_Parser(text).parse(), 0)
        except _Problem as problem:
            raise InvalidRegularExpression(
                f"SubscribedTopicRegex `{text}` is not a valid regular expression: {problem}."
            ) from None
        self._final = end
        self._start = (frozenset((begin,)), _BEGIN)
        self._moves: dict[tuple[frozenset[int], int, str], tuple[frozenset[int], int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        state = self._start
        for char in name:
            state = self._step(state, char)
            if not state[0]:
                return False
        return bool(self._step(state, _END)[0])

    def _step(self, state: tuple[frozenset[int], int], char: str) -> tuple[frozenset[int], int]:
        key = (*state, char)
        found = self._moves.get(key)
        if found is None:
            if len(self._moves) >= MAX_CACHE:
                self._moves.clear()
            found = self._moves[key] = self._move(*state, char)
        return found

    def _move(self, states: frozenset[int], before: int, char: str) -> tuple[frozenset[int], int]:
        reached = self._closure(states, before, char)
        after = _AFTER_WORD if char in _WORD else _AFTER_OTHER
        if char == _END:
            return frozenset(s for s in reached if s == self._final), after
        moved = (target for s in reached if char in self._chars[s] for target in self._next[s])
        return frozenset(moved), after

    def _closure(self, states: frozenset[int], before: int, char: str) -> set[int]:
        boundary = (before == _AFTER_WORD) != (char in _WORD)
        holds = {
            "": True,
            "^": before == _BEGIN,
            "$": char == _END,
            "b": boundary,
            "B": not boundary,
        }
        reached = set(states)
        queue = list(states)
        while queue:
            for condition, target in self._free[queue.pop()]:
                if holds[condition] and target not in reached:
                    reached.add(target)
                    queue.append(target)
        return reached

    # -- compiling -----------------------------------------------------------------------------

    def _state(self, chars: frozenset[str] = _NOTHING) -> int:
        if len(self._chars) >= MAX_STATES:
            raise _Problem(f"it is larger than {MAX_STATES} states")
        self._chars.append(chars)
        self._next.append([])
        self._free.append([])
        return len(self._chars) - 1

    def _compile(self, node: _Node, depth: int) -> tuple[int, int]:
        """(first state, last state) of a node."""
        if depth > 4 * MAX_DEPTH:
            raise _Problem(f"groups nest deeper than {MAX_DEPTH}")
        begin, end = self._state(), self._state()
        if isinstance(node, _Set):
            self._chars[begin] = node.chars
            self._next[begin].append(end)
        elif isinstance(node, _Assertion):
            self._free[begin].append((node.kind, end))
        elif isinstance(node, _All):
            self._chain(begin, node.parts, end, depth)
        elif isinstance(node, _Any):
            for choice in node.choices:
                self._chain(begin, [choice], end, depth)
        else:
            self._chain_repeat(begin, node, end, depth)
        return begin, end

    def _chain(self, begin: int, parts: Iterable[_Node], end: int, depth: int) -> None:
        at = begin
        for part in parts:
            first, last = self._compile(part, depth + 1)
            self._free[at].append(("", first))
            at = last
        self._free[at].append(("", end))

    def _chain_repeat(self, begin: int, node: _Repeat, end: int, depth: int) -> None:
        at = begin
        for _ in range(node.low):
            first, last = self._compile(node.node, depth + 1)
            self._free[at].append(("", first))
            at = last
        if node.high is None:
            first, last = self._compile(node.node, depth + 1)
            self._free[at] += [("", first), ("", end)]
            self._free[last] += [("", first), ("", end)]
            return
        for _ in range(node.high - node.low):
            first, last = self._compile(node.node, depth + 1)
            self._free[at] += [("", first), ("", end)]
            at = last
        self._free[at].append(("", end))
