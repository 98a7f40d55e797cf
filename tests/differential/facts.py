"""The answers of Apache Kafka 3.9.2, kept beside the cases: facts/<family>.json, by case name.

A long answer that several cases share stands once, in the list `shared`, and as `{"=": place}` in
each of them.  `texts` are messages for people.  A short one is kept as it is; of a longer one only
its digest.
"""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .normal import Json
from .run import Outcome

FOLDER: Final = Path(__file__).parent / "facts"
LONGEST_TEXT: Final = 60
LONG_ANSWER: Final = 200


@dataclass(slots=True, frozen=True)
class Fact:
    answers: list[Json]
    texts: list[str]


def load(family: str) -> dict[str, Fact]:
    path = FOLDER / f"{family}.json"
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    shared = content["shared"]

    def whole(answer: Json) -> Json:
        return shared[answer["="]] if isinstance(answer, dict) and "=" in answer else answer

    return {
        name: Fact([whole(answer) for answer in fact["answers"]], fact.get("texts", []))
        for name, fact in content["cases"].items()
    }


def store(family: str, facts: dict[str, Fact]) -> None:
    """One line a case, so that changes can be read."""
    counts = Counter(_text(answer) for fact in facts.values() for answer in fact.answers)
    often = [text for text, count in counts.items() if count > 1 and len(text) > LONG_ANSWER]
    places = {text: place for place, text in enumerate(often)}
    lines = []
    for name, fact in facts.items():
        answers = [
            {"=": places[text]} if (text := _text(answer)) in places else answer
            for answer in fact.answers
        ]
        content: dict[str, Json] = {"answers": answers}
        if fact.texts:
            content["texts"] = fact.texts
        lines.append(f"{json.dumps(name)}:{_text(content)}")
    FOLDER.mkdir(exist_ok=True)
    shared, cases = ",\n".join(often), ",\n".join(lines)
    (FOLDER / f"{family}.json").write_text(f'{{"shared":[\n{shared}\n],"cases":{{\n{cases}\n}}}}\n')


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def fact_of(outcome: Outcome) -> Fact:
    """What is kept of an outcome, as it comes back from JSON."""
    answers = json.loads(json.dumps(outcome.answers))
    return Fact(answers, [brief_text(text) for text in outcome.texts])


def brief_text(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
