"""docs/testing-with-kafkalike.md names every verb, and the pages show the examples as they are."""

import inspect
import pathlib
import re

import pytest

from kafkalike.testing import Cluster
from kafkalike.tools.local.verbs import Verbs

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs/testing-with-kafkalike.md").read_text()
PAGES = sorted((ROOT / "docs/testing").glob("*.md"))


def verbs() -> list[str]:
    return [
        name
        for name, _ in inspect.getmembers(Verbs, inspect.iscoroutinefunction)
        if not name.startswith("_")
    ]


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_is_in_the_guide_and_in_python(verb: str) -> None:
    assert f"`{verb}`" in GUIDE
    python = {"stop": "stop_broker", "start": "start_broker"}.get(verb, verb)
    assert hasattr(Cluster, python)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_show_the_examples_as_they_are(page: pathlib.Path) -> None:
    text = page.read_text()
    (name,) = re.findall(r"^`examples/(.+)`:$", text, re.MULTILINE)
    shown = text.partition(f"`examples/{name}`:\n\n")[2]
    lines = [line[4:] if line.startswith("    ") else line for line in shown.splitlines()]
    assert "\n".join(lines).rstrip() == (ROOT / "examples" / name).read_text().rstrip()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert (ROOT / "docs" / target).is_file()
