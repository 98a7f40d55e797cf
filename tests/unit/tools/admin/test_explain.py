"""`kafkalike-admin explain` and `losses`: stories and sums out of journals of several brokers."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalike.broker.journal import (
    JOURNAL,
    LOSSES,
    BrokerStarted,
    BrokerStopped,
    encode,
    file_names,
)
from kafkalike.broker.replica.values import Loss, StateChange
from kafkalike.controller.journal import (
    AssignmentChanged,
    BrokerSeen,
    Elected,
    LeadershipChanged,
    PartitionMoved,
    ReplicaMoved,
    Resigned,
    TopicForgotten,
)
from kafkalike.controller.status import PartitionStatus, ReplicaStatus
from kafkalike.tools import cli
from kafkalike.tools.admin import main
from kafkalike.tools.admin.explain import parse_partition
from kafkalike.tools.admin.journals import parse_time, time_text
from kafkalike.types import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kafkalike.zk.znodes import PartitionState

T0 = 1_717_245_000_000
"""2024-06-01 12:30:00 UTC."""
ORDERS = TopicPartition("big-orders", 3)
OTHER = TopicPartition("other", 0)


def state(leader: int, epoch: int, isr: tuple[int, ...], version: int) -> PartitionState:
    return PartitionState(LeaderAndIsr(leader, epoch, isr, partition_epoch=version), 8)


def change(kind: str, leader: int, epoch: int, ends: tuple[int, int], at: int) -> StateChange:
    return StateChange(kind, ORDERS, 8, leader, epoch, 0, (leader,), *ends, T0 + at)


def write(folder: Path, broker: int, *records: tuple[int, object], stem: str = JOURNAL) -> Path:
    path = folder / f"broker-{broker}" / "data"
    path.mkdir(parents=True, exist_ok=True)
    data = encode(broker, [(T0 + at, record) for at, record in records])
    with (path / file_names(stem)[1]).open("ab") as file:
        file.write(data)
    return path


def unclean_story(folder: Path) -> None:
    """Broker 1 leads and dies; 2, which lacks records, is elected; 1 comes back and drops them."""
    write(
        folder,
        1,
        (0, BrokerStarted(40, clean=True)),
        (10, change("leader", 1, 0, (0, 0), 10)),
        (9000, BrokerStarted(99, clean=False)),
        (9100, change("follower", 2, 1, (100, 130), 9100)),
        (9110, change("truncating", 2, 1, (100, 130), 9110)),
        (9111, change("truncated", 2, 1, (80, 80), 9111)),
    )
    loss = Loss(ORDERS, 0, 1, 80, 100, 4096, (7,), T0 + 9110, 130)
    write(folder, 1, (9110, loss), stem=LOSSES)
    write(
        folder,
        2,
        (1, Elected("election", 2, 8, 7)),
        (
            2,
            AssignmentChanged(
                "failover", 8, ORDERS, ReplicaAssignment(()), ReplicaAssignment((1, 2))
            ),
        ),
        (3, LeadershipChanged("failover", 8, ORDERS, None, state(1, 0, (1, 2), 0))),
        (3, LeadershipChanged("failover", 8, OTHER, None, state(1, 0, (1, 2), 0))),
        (
            4,
            ReplicaMoved(
                "failover", 8, ORDERS, 1, ReplicaStatus.NON_EXISTENT, ReplicaStatus.OFFLINE
            ),
        ),
        (5000, BrokerSeen("BrokerChange", 8, 1, 40, -1)),
        (5001, BrokerSeen("BrokerChange", 8, 9, 41, -1)),
        (
            5002,
            PartitionMoved(
                "BrokerChange", 8, ORDERS, PartitionStatus.ONLINE, PartitionStatus.OFFLINE
            ),
        ),
        (
            6000,
            LeadershipChanged(
                "ReplicaLeaderElection",
                8,
                ORDERS,
                state(-1, 0, (1,), 1),
                state(2, 1, (2,), 2),
                unclean=True,
            ),
        ),
        (6010, change("leader", 2, 1, (80, 80), 6010)),
    )


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_story_of_an_unclean_election(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unclean_story(tmp_path)
    code, out, err = run(capsys, "explain", "big-orders-3", "--dir", str(tmp_path))
    assert (code, err) == (0, "")
    story, _, end = out.partition("\n\n")
    assert story.splitlines() == [
        "2024-06-01 12:30:00.000  broker 1: started (epoch 40)",
        "2024-06-01 12:30:00.001  broker 2 is controller, epoch 8",
        "2024-06-01 12:30:00.002  controller 2 (epoch 8): finds its replicas to be [1,2] (failover)",
        "2024-06-01 12:30:00.003  controller 2 (epoch 8): finds it with leader 1, leader epoch 0,"
        " ISR [1,2], partition epoch 0 (failover)",
        "2024-06-01 12:30:00.010  broker 1: leads in epoch 0; high watermark 0, log end 0",
        "2024-06-01 12:30:05.000  controller 2 (epoch 8): broker 1 is gone",
        "2024-06-01 12:30:05.002  controller 2 (epoch 8): partition ONLINE -> OFFLINE (BrokerChange)",
        "2024-06-01 12:30:06.000  controller 2 (epoch 8): leader none -> 2, ISR [1] -> [2],"
        " leader epoch 0 -> 1, partition epoch 1 -> 2 (ReplicaLeaderElection);"
        " UNCLEAN election: the new leader may lack acknowledged records",
        "2024-06-01 12:30:06.010  broker 2: leads in epoch 1; high watermark 80, log end 80",
        "2024-06-01 12:30:09.000  broker 1: started after an unclean stop (epoch 99)",
        "2024-06-01 12:30:09.100  broker 1: follows 2 in epoch 1; high watermark 100, log end 130",
        "2024-06-01 12:30:09.110  broker 1: is about to remove the end of its log;"
        " high watermark 100, log end 130",
        "2024-06-01 12:30:09.110  broker 1: LOSES offsets 80 to 99 (20, 4096 bytes) below its high"
        " watermark, written in epochs up to 0, dropped for epoch 1",
        "2024-06-01 12:30:09.111  broker 1: has removed the end of its log;"
        " high watermark 80, log end 80",
    ]
    assert end.startswith(
        "State at the end of the journals: leader 2, leader epoch 1, ISR [2], partition epoch 2,"
        " replicas [1,2]\n"
    )


def test_at_a_time_the_story_ends_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unclean_story(tmp_path)
    words = ("explain", "big-orders-3", "--dir", str(tmp_path), "--at", "2024-06-01T12:30:05")
    code, out, _ = run(capsys, *words)
    assert code == 0 and out.count("\n") >= 6
    assert "UNCLEAN" not in out
    assert "State at 2024-06-01 12:30:05.000: leader 1, leader epoch 0, ISR [1,2]" in out


def test_json_has_entries_texts_and_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unclean_story(tmp_path)
    words = ("explain", "big-orders-3", "--dir", str(tmp_path), "--output", "json", "--all")
    code, out, _ = run(capsys, *words)
    value = json.loads(out)
    assert code == 0
    assert any(e["kind"] == "ReplicaMoved" for e in value["events"]), "--all"
    assert value["state"]["leadership"]["leader"] == 2
    assert [b["broker"] for b in value["state"]["brokers"]] == [1, 2]
    assert value["state"]["brokers"][0]["log_end_offset"] == 80
    assert len(value["files"]) == 3 and value["unreadable_lines"] == 0


def test_torn_lines_are_counted_and_the_older_file_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, 1, (50, change("follower", 2, 1, (5, 5), 50)))
    older, present = file_names(JOURNAL)
    with (folder / present).open("ab") as file:
        file.write(b'{"time_ms":17172')
    # The clock went back by a minute between the two: the order of the files counts.
    (folder / older).write_bytes(encode(1, [(T0 + 60_000, change("leader", 1, 0, (0, 0), 60_000))]))
    code, out, err = run(capsys, "explain", "big-orders-3", "--dir", str(folder))
    lines = out.splitlines()
    assert code == 0 and "1 lines could not be read" in err
    assert "leads in epoch 0" in lines[0] and "follows 2 in epoch 1" in lines[1]


def test_a_deleted_topic_has_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unclean_story(tmp_path)
    write(
        tmp_path,
        2,
        (9500, TopicForgotten("TopicDeletion", 8, "big-orders", bytes(16))),
        (9600, Resigned("stop", 2, 8)),
        (9601, BrokerStopped()),
    )
    code, out, _ = run(capsys, "explain", "big-orders-3", "--dir", str(tmp_path))
    assert code == 0
    assert "topic big-orders is gone (TopicDeletion)" in out
    assert "broker 2 is no longer controller of epoch 8 (stop)" in out
    assert "State at the end of the journals: no controller's record of it" in out


def test_the_state_after_an_orderly_stop_is_what_the_logs_were_closed_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not what the last change of leadership, long ago, found."""
    unclean_story(tmp_path)
    write(
        tmp_path,
        1,
        (9700, BrokerStopped()),
        (9701, change("closed", 2, 1, (5000, 5000), 9701)),
    )
    code, out, _ = run(capsys, "explain", "big-orders-3", "--dir", str(tmp_path))
    assert code == 0
    assert "broker 1: closes its replica in order; high watermark 5000, log end 5000" in out
    assert "Every broker that held it was stopped in order" not in out
    write(
        tmp_path,
        2,
        (9800, BrokerStopped()),
        (9801, change("closed", 2, 1, (5000, 5000), 9801)),
    )
    _, out, _ = run(capsys, "explain", "big-orders-3", "--dir", str(tmp_path))
    assert "Every broker that held it was stopped in order: nobody serves it." in out
    assert out.splitlines()[-1].split()[:6] == ["2", "closed", "2", "1", "5000", "5000"]
    write(tmp_path, 2, (9900, BrokerStarted(120, clean=True)))
    _, out, _ = run(capsys, "explain", "big-orders-3", "--dir", str(tmp_path), "--output", "json")
    assert [b["stopped_ms"] for b in json.loads(out)["state"]["brokers"]] == [T0 + 9700, None]


def test_what_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "explain", "t-0", "--dir", str(tmp_path / "no"))[0] == cli.FAILED
    code, _, err = run(capsys, "explain", "t-0", "--dir", str(tmp_path))
    assert code == cli.FAILED and "no journal" in err
    unclean_story(tmp_path)
    code, _, err = run(capsys, "explain", "t-0", "--dir", str(tmp_path))
    assert code == cli.FAILED and "say nothing of t-0" in err
    words = ("explain", "big-orders-3", "--dir", str(tmp_path), "--at", "yesterday")
    assert run(capsys, *words)[0] == cli.USAGE
    assert run(capsys, "explain", "orders", "--dir", str(tmp_path))[0] == cli.USAGE


def test_partitions_and_times_as_words() -> None:
    assert parse_partition("a-b-12") == TopicPartition("a-b", 12)
    for text in ("a", "-1", "a-", "a-x", ""):
        with pytest.raises(cli.UsageError):
            parse_partition(text)
    assert parse_time("--at", "2024-06-01T12:30:00") == T0
    assert parse_time("--at", "2024-06-01T14:30:00.250+02:00") == T0 + 250
    assert parse_time("--at", str(T0)) == T0
    assert time_text(T0 + 7) == "2024-06-01 12:30:00.007"


# -- losses ----------------------------------------------------------------------------------------


def rows_of(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> list[dict[str, Any]]:
    code, out, _ = run(capsys, "losses", "--dir", str(folder), "--output", "json", *more)
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(out)["losses"]
    return rows


def test_certain_losses_and_what_may_be_lost_beyond(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unclean_story(tmp_path)
    certain, possible = rows_of(capsys, tmp_path)
    assert (certain["certain"], certain["first_offset"], certain["end_offset"]) == (True, 80, 100)
    assert certain["producer_ids"] == [7] and certain["bytes"] == 4096
    assert (possible["certain"], possible["first_offset"], possible["end_offset"]) == (
        False,
        100,
        130,
    )
    assert rows_of(capsys, tmp_path, "--topic", "other") == []
    code, out, _ = run(capsys, "losses", "--dir", str(tmp_path))
    assert code == 0
    assert out.splitlines()[1].split() == [
        "2024-06-01",
        "12:30:09.110",
        *("1", "big-orders", "3", "80-99", "20", "4096", "0", "1", "7", "yes"),
    ]


def test_a_truncation_after_a_clean_election_is_no_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        tmp_path,
        1,
        (10, change("leader", 1, 0, (80, 100), 10)),
        (9100, change("follower", 2, 1, (80, 100), 9100)),
        (9110, change("truncating", 2, 1, (80, 100), 9110)),
        (9111, change("truncated", 2, 1, (80, 80), 9111)),
    )
    write(
        tmp_path,
        2,
        (6000, LeadershipChanged("x", 8, ORDERS, state(1, 0, (1, 2), 1), state(2, 1, (2,), 2))),
    )
    assert rows_of(capsys, tmp_path) == []
    assert run(capsys, "losses", "--dir", str(tmp_path))[1] == "no losses\n"


def test_an_unclean_election_of_long_ago_does_not_count_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unclean_story(tmp_path)
    write(
        tmp_path,
        1,
        (20_000, change("leader", 1, 2, (80, 90), 20_000)),
        (21_000, change("follower", 2, 3, (80, 90), 21_000)),
        (21_010, change("truncating", 2, 3, (80, 90), 21_010)),
        (21_011, change("truncated", 2, 3, (80, 80), 21_011)),
    )
    assert len(rows_of(capsys, tmp_path)) == 2, "only those of the first time"


def test_no_ledger_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "losses", "--dir", str(tmp_path))
    assert code == cli.FAILED and "no ledger" in err
