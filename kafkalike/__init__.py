"""kafkalike: a Kafka-compatible, replicated broker cluster on Twisted and ZooKeeper.

The parts `broker`, `controller`, `zk` and `tools` are folders at the top of the repository; relative
links inside this package complete the name.  Archives that drop links still work from a checkout:
then the parent folder is searched as well.
"""

import pathlib

__version__ = "0.1.0"

_HERE = pathlib.Path(__file__).resolve().parent
if not (_HERE / "broker").is_dir():
    __path__.append(str(_HERE.parent))
