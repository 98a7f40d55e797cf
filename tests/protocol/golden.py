"""Golden frames as text: what it is, who sent it, the bytes, and what Kafka reads in them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden_frames"
WIDTH = 100


@dataclass(frozen=True)
class Golden:
    """A whole frame without its length prefix; `meaning` is the body as Kafka's JSON."""

    message: str
    version: int
    client: str
    frame: bytes
    meaning: Any


def read_golden(path: Path) -> list[Golden]:
    goldens = []
    for block in path.read_text().split("\n\n"):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            name, _, value = line.partition(" ")
            fields[name] = fields.get(name, "") + value.strip()
        if fields:
            goldens.append(
                Golden(
                    fields["message"],
                    int(fields["version"]),
                    fields["client"],
                    bytes.fromhex(fields["frame"]),
                    json.loads(fields["means"]),
                )
            )
    return goldens


def write_golden(path: Path, goldens: Sequence[Golden]) -> None:
    blocks = [
        "# Frames that real clients and Kafka 3.9.2 exchanged, recorded by record.py; the meaning is"
        "\n# Kafka's own reading of the body."
    ]
    for golden in goldens:
        text = golden.frame.hex()
        lines = [text[start : start + WIDTH] for start in range(0, len(text), WIDTH)]
        blocks.append(
            "\n".join(
                (
                    f"message {golden.message}",
                    f"version {golden.version}",
                    f"client {golden.client}",
                    *(f"frame {line}" for line in lines),
                    f"means {json.dumps(golden.meaning, ensure_ascii=False)}",
                )
            )
        )
    path.write_text("\n\n".join(blocks) + "\n")
