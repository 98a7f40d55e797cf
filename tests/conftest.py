"""How the tests are shared out when several processes of pytest run them (`make test` uses two).

What starts processes of its own, a ZooKeeper, brokers, Java, runs one test after the other in one
of them: such tests mostly wait, and their time limits allow for a busy machine only so far.  The
others are free to run beside them.
"""

import pathlib

import pytest

HERE = pathlib.Path(__file__).parent
FREE = [HERE / name for name in ("protocol", "simulation", "transcripts", "unit")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(folder in item.path.parents for folder in FREE):
            item.add_marker(pytest.mark.xdist_group("processes"))
