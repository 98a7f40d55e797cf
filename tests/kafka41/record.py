"""Asks Apache Kafka 4.1.2 every case and keeps its answers as facts.

    python -m tests.kafka41.record [--only WORD] [--new] [--port PORT]

`--new`: only cases without a fact.  With `--port` the broker that listens there is asked.
"""

import argparse
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from tests.reference_kafka41 import reference_kafka41

from .cases import CASES
from .facts import SETTINGS, load, run, store

PAUSE_S: Final = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka41.record")
    parser.add_argument("--only", default="")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--port", type=int)
    args = parser.parse_args()
    facts = load()
    with tempfile.TemporaryDirectory(prefix="kafkalike-kafka41-") as folder:
        broker: AbstractContextManager[int] = (
            nullcontext(args.port) if args.port else reference_kafka41(Path(folder), SETTINGS)
        )
        with broker as port:
            for name in CASES:
                if args.only in name and not (args.new and name in facts):
                    facts[name] = run(port, name, PAUSE_S)
                    store(facts)
                    print(name, len(facts[name]), flush=True)


if __name__ == "__main__":
    main()
