"""The table of known bugs: every row has its tests, every test that it names exists."""

import ast
from functools import cache

from tests.history import NOT_SERVED, PAGE, ROOT, ROWS, page

NUMBERED = (
    "KIP-101 KIP-279 KAFKA-6361 KAFKA-7164 KAFKA-7128 KIP-320 KAFKA-7747 KAFKA-7786 KAFKA-13141"
    " KAFKA-13207 KAFKA-14704 KAFKA-9807 KAFKA-9835 KAFKA-9196 KAFKA-15583 KIP-966 KAFKA-15021"
    " KIP-380 KAFKA-7235 KAFKA-9839 KIP-903 KAFKA-15221 KIP-841 KAFKA-14140 KIP-497 KAFKA-8836"
    " KAFKA-12686 KAFKA-12751 KAFKA-13091 KAFKA-13254 KAFKA-14144 KAFKA-6082 KAFKA-5502 KAFKA-5879"
    " KIP-570 KAFKA-9539 KAFKA-12835 KAFKA-14616 KIP-516 KAFKA-9672 KAFKA-9212 KAFKA-9478 KAFKA-6193"
    " KAFKA-10548 KAFKA-5634 KAFKA-13194 KAFKA-8351 KAFKA-13727 KAFKA-14055 KAFKA-10471 KAFKA-12520"
    " KAFKA-3968 KAFKA-9892 KAFKA-10778 KAFKA-9144 KAFKA-9777 KAFKA-10080 KAFKA-16352 KAFKA-14884"
    " KAFKA-14920 KIP-664 KAFKA-15784 KAFKA-20716 KAFKA-12890 KAFKA-9752 KAFKA-14422 KAFKA-7286"
    " KAFKA-8069 KAFKA-15468 KAFKA-4229 KAFKA-5473 KAFKA-6517 KAFKA-7165 KAFKA-8532 KAFKA-14887"
)
"""The known bugs of this design that have a number (reference: history)."""
IN_WORDS = (
    "KIP-890 part 1",
    "Jepsen, Bufstream 0.1.0: EndTxn",
    "Jepsen, Bufstream 0.1.0: records",
    "Jepsen, Redpanda 21.10.1",
)


@cache
def functions_of(path: str) -> frozenset[str]:
    """Test functions of a file, whether or not what it needs is installed here."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    )


def test_every_bug_has_one_row() -> None:
    named = [bug for row in ROWS for bug in row.bugs]
    assert sorted(named) == sorted([*NUMBERED.split(), *IN_WORDS])


def test_every_row_has_tests_or_says_what_is_not_served() -> None:
    for row in ROWS:
        assert row.tests or row.note.startswith(NOT_SERVED), row.bugs
        assert all(guard.edits and guard.catches for guard in row.guards), row.bugs


def test_every_test_exists() -> None:
    missing = []
    for test in dict.fromkeys(test for row in ROWS for test in row.tests):
        path, _, name = test.partition("[")[0].partition("::")
        if not (ROOT / path).is_file() or name not in functions_of(path):
            missing.append(test)
    assert missing == []


def test_every_guard_is_in_a_file_that_exists() -> None:
    """Whether its code is still there `python -m tests.history prove` says."""
    for row in ROWS:
        for guard in row.guards:
            assert all((ROOT / edit.path).is_file() for edit in guard.edits), row.bugs


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.history write` makes it."""
    assert PAGE.read_text() == page()
