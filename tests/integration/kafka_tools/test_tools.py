"""Kafka's own command line programs against our brokers: what they print against the original.

The commands build on each other, so they run once, in order; each is then a test of its own.
"""

from collections.abc import Iterator

import pytest

from tests.reference_kafka import ReferenceMissing, jars

from .clusters import ours
from .commands import COMMANDS
from .record import difference, load
from .run import Text, run

pytestmark = [pytest.mark.java, pytest.mark.slow]


NOT_SERVED_YET = (
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "AlterClientQuotas",
    "AlterUserScramCredentials",
    "CreateAcls",
    "CreateDelegationToken",
    "DeleteAcls",
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeDelegationToken",
    "DescribeTransactions",
    "DescribeUserScramCredentials",
    "EndTxn",
    "Envelope",
    "ExpireDelegationToken",
    "ListTransactions",
    "RenewDelegationToken",
    "SaslAuthenticate",
    "SaslHandshake",
    "TxnOffsetCommit",
    "WriteTxnMarkers",
)
"""APIs that `broker-api-versions` may show as the original or as not supported."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Text]]:
    try:
        jars()
    except ReferenceMissing as missing:
        pytest.skip(str(missing))
    with ours(tmp_path_factory.mktemp("tools")) as target:
        yield {command.name: text for command, text in run(target, COMMANDS)}


def without_unserved(text: Text) -> Text:
    starts = tuple(f"\t{name}(" for name in NOT_SERVED_YET)
    return {**text, "out": [line for line in text["out"] if not line.startswith(starts)]}


def test_there_is_a_fact_for_every_command() -> None:
    assert list(load()) == [command.name for command in COMMANDS]


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_it_prints_what_the_original_makes_it_print(name: str, printed: dict[str, Text]) -> None:
    fact, found = (without_unserved(text) for text in (load()[name], printed[name]))
    said = difference(fact, found)
    assert not said, f"{name}\n{said}"
