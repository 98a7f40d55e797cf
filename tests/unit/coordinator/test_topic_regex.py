"""Regular expressions of topics: matching beside Python's, refusal as by the original, no explosion."""

import random
import re
import time

import pytest

from kafkalike.broker.coordinator.topic_regex import MAX_STATES, TopicRegex
from kafkalike.errors import InvalidRegularExpression


def make(chance: random.Random, depth: int = 0) -> str:
    kind = chance.randrange(8)
    if depth > 3 or kind < 2:
        return chance.choice("abc.")
    if kind == 2:
        return make(chance, depth + 1) + make(chance, depth + 1)
    if kind == 3:
        return f"(?:{make(chance, depth + 1)}|{make(chance, depth + 1)})"
    if kind == 4:
        times = chance.choice(["*", "+", "?", "{1,2}", "{0,1}", "{2}", "{2,}", "*?", "+?"])
        return f"(?:{make(chance, depth + 1)}){times}"
    if kind == 5:
        return chance.choice(["[a-b]", "[^c]", r"\w", r"\W", r"\b", r"\B", "^", "$", r"\A"])
    return f"({make(chance, depth + 1)})"


def test_matches_as_python_does() -> None:
    chance = random.Random(1)
    for _ in range(1500):
        text = make(chance)
        ours, theirs = TopicRegex(text), re.compile(text)
        for _ in range(12):
            name = "".join(chance.choice("abc-") for _ in range(chance.randrange(1, 6)))
            assert ours.matches(name) == bool(theirs.fullmatch(name)), (text, name)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("(?i)aB", "ab AB aB", "a abc"),
        ("(?i:a)b", "ab Ab", "aB"),
        ("a(?i)b", "ab aB", "Ab"),
        ("(?i)[x-z]", "x X Z", "a"),
        ("(?i)a(?-i)b", "ab Ab", "aB"),
        ("[[:upper:]]+", "A AB", "a 1"),
        ("[[:^upper:]]+", "a-b.1", "A"),
        (r"\p{Lu}\pN", "A1", "a1 AA"),
        (r"\P{L}", "1 . -", "a"),
        (r"\p{Latin}+\p{Common}", "ab1 a.", "ab 1"),
        (r"\Qa.b\Ec", "a.bc", "axbc"),
        (r"\x41\101\x{42}", "AAB", "AB"),
        ("[]a]", "a", "b"),
        ("a{2,3}", "aa aaa", "a aaaa"),
        ("a{,3}", "", "a aaa"),
        ("(?P<n>a)(?<m>b)", "ab", "a"),
        (r"a\z", "a", "ab"),
        (r"a\bb|a\b-b", "a-b", "ab"),
        ("a|", "a", "b"),
    ],
)
def test_what_it_means(text: str, matching: str, others: str) -> None:
    regex = TopicRegex(text)
    assert [name for name in (matching + " " + others).split() if regex.matches(name)] == (
        matching.split()
    )


REFUSED = ("(a", "a)", "[a", "a**", "*a", "a|*", "a{2,1}", "a{1001}", "\\", r"\8", "(?=a)", "(?P<n")
ALSO_REFUSED = ("(?<n>a)(?<n>b)", "[b-a]", r"\p{Foo}", "[[:foo:]]", r"\C", "(?i", r"[\Q]")


@pytest.mark.parametrize("text", [*REFUSED, *ALSO_REFUSED, "a{" + "9" * 5000 + "}"])
def test_refuses(text: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="is not a valid regular expression"):
        TopicRegex(text)


DEEP = ("(" * 5000, "(a" * 5000 + ")" * 5000, "a(?i)*" * 1000, "(" * 101 + ")" * 101)
LARGE = ("((a{1000}){1000}){1000}", "[" * 9000, "(a*)" * 3000, "a?" * 5000, "|" * 9000)


@pytest.mark.parametrize("text", [*DEEP, *LARGE])
def test_size_is_bounded(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidRegularExpression):
        TopicRegex(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["(a*)*b", "(a|a)*b", "(.*)(.*)(.*)(.*)b", "(a?){100}a{100}"])
def test_matching_takes_no_exponential_time(text: str) -> None:
    regex = TopicRegex(text)
    began = time.process_time()
    assert not regex.matches("a" * 248 + "c")
    assert time.process_time() - began < 2


def test_largest_expression_is_taken() -> None:
    count = MAX_STATES // 2 - 10
    assert TopicRegex(f"a{{{count}}}").matches("a" * count)
