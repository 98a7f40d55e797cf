"""docs/dependencies.md has a word about every package that setup.cfg asks for, and each has a range."""

import configparser
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def requirements() -> list[str]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lists = [setup["options"]["install_requires"], setup["options.extras_require"]["test"]]
    return [line for text in lists for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize("requirement", requirements())
def test_every_dependency_is_explained_and_bounded(requirement: str) -> None:
    found = re.fullmatch(
        r"([a-z0-9-]+)(\[[a-z0-9,]+\])? +(==[0-9.]+|>=[0-9.]+,<[0-9]+)", requirement
    )
    assert found is not None, "expected name >=from,<below"
    page = (ROOT / "docs/dependencies.md").read_text()
    assert re.search(rf"(?<![\w-]){re.escape(found[1])}(?![\w-])", page)
