"""The journal and `explain` tell why a former member of an ISR leads (ADR 0008)."""

from kafkalike.broker.journal import LogIsShorter, encode, parse
from kafkalike.controller.journal import LastReplicaPassedOver, LeadershipChanged
from kafkalike.tools.admin.explain import sentence
from kafkalike.types import LeaderAndIsr, TopicPartition
from kafkalike.zk.znodes import FormerIsr, PartitionState

T0 = TopicPartition("t", 0)


def test_the_story_of_an_election() -> None:
    alone = PartitionState(LeaderAndIsr(-1, 5, (2,)), 7, FormerIsr(((3, 27),), (31, -1, -1)))
    elected = PartitionState(LeaderAndIsr(3, 6, (3,)), 7)
    records: list[tuple[int, object]] = [
        (1, LogIsShorter(T0, 5, 40, 57)),
        (2, LastReplicaPassedOver("BrokerChange", 7, T0, 3, 2)),
        (3, LeadershipChanged("BrokerChange", 7, T0, alone, elected)),
    ]
    entries = list(parse(encode(2, records)))
    assert [entry["kind"] for entry in entries if entry] == [
        "LogIsShorter",
        "LastReplicaPassedOver",
        "LeadershipChanged",
    ]
    assert entries[2] is not None and entries[2]["old"]["former_isr"] == [3]
    assert [sentence(entry) for entry in entries if entry] == [
        "broker 2: HAS LOST the end of its log: it ends at 40, its high watermark was 57; it is the"
        " whole ISR (leader epoch 5)",
        "controller 2 (epoch 7): takes broker 3, a former member of the ISR, instead of broker 2,"
        " whose log is shorter than it was (BrokerChange)",
        "controller 2 (epoch 7): leader none -> 3, ISR [2] -> [3], leader epoch 5 -> 6"
        " (BrokerChange)",
    ]


def test_many_partitions_that_fall_to_one_share_a_line() -> None:
    """What is found at failover: a state with former members is a column like any other."""
    state = PartitionState(LeaderAndIsr(2, 5, (2,)), 7, FormerIsr(((3, 27),), (31, -1, -1)))
    records: list[tuple[int, object]] = [
        (1, LeadershipChanged("failover", 7, TopicPartition("t", number), None, state))
        for number in range(3)
    ]
    lines = encode(2, records)
    assert lines.count(b"\n") == 1
    assert [entry["new"]["former_isr"] for entry in parse(lines) if entry] == [[3]] * 3
