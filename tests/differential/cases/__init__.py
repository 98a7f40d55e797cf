"""The table of cases, one module a family."""

import importlib
from functools import cache
from typing import Final

from ..case import Case

ON_ONE: Final = (
    "api_versions",
    "transport",
    "metadata",
    "produce",
    "batch_headers",
    "batch_records",
    "sequences",
    "fetch",
    "fetch_sessions",
    "offsets",
    "topics",
    "delete_records",
    "configs",
    "cluster",
    "control",
    "groups",
    "group_offsets",
    "group_limits",
)
"""Asked of a broker that is alone."""

ON_THREE: Final = (
    "replicated",
    "moves",
    "orders",
    "broker_lost",
    "broker_frozen",
    "broker_leaving",
    "group_homes",
)
"""Asked of three brokers; `states.py` says what has happened to one of them."""

FAMILIES: Final = ON_ONE + ON_THREE


@cache
def cases_of(family: str) -> tuple[Case, ...]:
    module = importlib.import_module(f"{__name__}.{family}")
    cases: tuple[Case, ...] = tuple(module.cases())
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    return cases


def all_cases() -> dict[str, Case]:
    return {case.name: case for family in FAMILIES for case in cases_of(family)}
