"""What the wire commands work out before they ask anybody: flows, throttles, flags, summaries."""

import argparse
from typing import Any

import pytest

from kafkalike.messages.metadata import MetadataResponse
from kafkalike.tools import cli
from kafkalike.tools.admin import main
from kafkalike.tools.admin.cluster import summarize
from kafkalike.tools.admin.documents import Move
from kafkalike.tools.admin.leaders import chosen_partitions
from kafkalike.tools.admin.reassign import plan_flows
from kafkalike.tools.admin.throttles import replica_list
from kafkalike.types import ReplicaAssignment, TopicPartition

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


def test_flows_of_new_moves_and_of_those_under_way() -> None:
    moves = [Move(P0, (2, 3), ("any",) * 2), Move(P1, (4, 1), ("any",) * 2)]
    ongoing = {
        P1: ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,)),
        P2: ReplicaAssignment((5, 6), adding=(5,), removing=(6,)),
    }
    flows = plan_flows(moves, {P0: (1, 2), P1: (3, 1, 2)}, ongoing)
    assert (flows[P0].sources, flows[P0].destinations) == ([1, 2], [3])
    assert (flows[P1].sources, flows[P1].destinations) == ([1, 2], [3, 4])
    assert (flows[P2].sources, flows[P2].destinations) == ([6], [5]), "its throttle changes too"
    assert replica_list({p: f.sources for p, f in flows.items()}, "t") == "0:1,0:2,1:1,1:2,2:6"
    assert replica_list({p: f.destinations for p, f in flows.items()}, "u") == ""


def arguments(**given: object) -> argparse.Namespace:
    values: dict[str, Any] = {
        "topic": None,
        "partition": None,
        "path_to_json_file": None,
        "all_topic_partitions": False,
    }
    return argparse.Namespace(**(values | given))


def test_partitions_to_elect_leaders_of() -> None:
    assert chosen_partitions(arguments(all_topic_partitions=True)) is None
    assert chosen_partitions(arguments(topic="t", partition=2)) == [P2]
    for wrong in (
        arguments(),
        arguments(topic="t"),
        arguments(partition=1),
        arguments(topic="t", partition=1, all_topic_partitions=True),
        arguments(topic="t", partition=-1),
        arguments(partition=1, all_topic_partitions=True),
    ):
        with pytest.raises(cli.UsageError):
            chosen_partitions(wrong)


def test_summary_of_a_cluster_in_trouble() -> None:
    topic = MetadataResponse.MetadataResponseTopic
    broker = MetadataResponse.MetadataResponseBroker

    def partition(leader: int, replicas: list[int], isr: list[int]) -> Any:
        return topic.MetadataResponsePartition(
            leader_id=leader, replica_nodes=replicas, isr_nodes=isr
        )

    metadata = MetadataResponse(
        cluster_id="c",
        controller_id=2,
        brokers=[broker(node_id=2, host="h", port=2), broker(node_id=1, host="h", port=1)],
        topics=[
            topic(name="a", partitions=[partition(1, [1, 2], [1, 2]), partition(2, [2, 3], [2])]),
            topic(name="b", partitions=[partition(-1, [3], [3])]),
        ],
    )
    value = summarize(metadata)
    assert (value["topics"], value["partitions"]) == (2, 3)
    assert (value["under_replicated"], value["unavailable"]) == (1, 1)
    assert value["missing_brokers"] == [3]
    assert [(b["id"], b["leaders"], b["replicas"], b["in_sync"]) for b in value["brokers"]] == [
        (1, 1, 1, 1),
        (2, 1, 2, 2),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["reassign", "generate", "--broker-list", "1"],
        ["reassign", "execute", "--reassignment-json-file", "f", "--throttle", "0"],
        ["reassign", "verify"],
        ["leaders", "elect", "--all-topic-partitions"],
        ["leaders", "elect", "--election-type", "any", "--all-topic-partitions"],
        ["logdirs", "describe", "--broker-list", "one"],
        ["verify", "--settle-ms", "-1"],
        ["verify"],
        ["verify", "--dir", "/tmp", "--zookeeper", "h:1"],
        ["cluster"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    needs_address = words[0] != "verify"
    more = ["--bootstrap-server", "127.0.0.1:1"] if needs_address and len(words) > 1 else []
    assert main.main([*words, *more]) == cli.USAGE
    assert capsys.readouterr().err
