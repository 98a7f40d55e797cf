"""The simulator misses guards that are taken out: the quickest to find, and that all still apply."""

import pathlib
import shutil

import pytest

from tests.simulation import mutate
from tests.simulation.mutations.catalogue import MUTATIONS, Mutation

QUICK = ("reads-beyond-high-watermark", "any-replica-leads", "sequences-unchecked")
"""Found within a few seeds."""
QUICK_SEEDS = 12


def test_names_are_told_apart() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_mutation_fits_the_code_as_it_stands(mutation: Mutation, tmp_path: pathlib.Path) -> None:
    assert mutation.edits
    for edit in mutation.edits:
        target = tmp_path / edit.file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(mutate.ROOT / edit.file, target)
    mutate.apply(mutation, tmp_path)


def test_the_table_knows_only_mutations_that_there_are() -> None:
    names = {mutation.name for mutation in MUTATIONS}
    assert set(mutate.read_table()) <= names


def test_at_least_25_removed_guards_were_found() -> None:
    found = [row for row in mutate.read_table().values() if row.seed >= 0]
    assert len(found) >= 25
    assert all(row.tried <= 2000 for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_missing_guard_is_noticed(name: str) -> None:
    mutation = next(one for one in MUTATIONS if one.name == name)
    with mutate.copied(mutation) as root:
        for outcome in mutate.hunt(root, mutation.family, 1, 1 + QUICK_SEEDS, 300):
            if outcome.checks:
                return
    raise AssertionError(f"{name} went unnoticed in {QUICK_SEEDS} seeds")
