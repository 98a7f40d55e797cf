"""The checker on evidence made by hand: none is blamed wrongly, and every rule fires."""

import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import crc32c
import pytest

from tests.chaos.checker import Evidence, Leadership, check, journal_leaders
from tests.chaos.histories import History, lines_of, parse_value, value_of
from tests.chaos.logs import BadLog, Replica, offsets_in
from tests.integration.brokers import ROOT

Sent = tuple[str, int]
"""(producer, sequence)"""


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def batch(base: int, epoch: int, values: list[bytes], producer_id: int = 7) -> bytes:
    records = b""
    for delta, value in enumerate(values):
        body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value
        body += varint(0)
        records += varint(len(body)) + body
    checked = struct.pack(">hiqqqhii", 0, len(values) - 1, 0, 0, producer_id, 0, base, len(values))
    checked += records
    head = struct.pack(">qiibI", base, len(checked) + 9, epoch, 2, crc32c.crc32c(checked))
    return head + checked


def log_of(batches: Iterable[tuple[int, list[Sent]]], partition: int = 0) -> bytes:
    """Batches (epoch, records) one behind the other."""
    data, offset = b"", 0
    for epoch, sent in batches:
        data += batch(offset, epoch, [value_of(name, partition, seq) for name, seq in sent])
        offset += len(sent)
    return data


GOOD = [(0, [("a", 0), ("b", 0)]), (0, [("a", 1)]), (2, [("b", 1), ("a", 2)])]
"""Offsets 0 to 4."""


class Scene:
    """Evidence that is in order; tests spoil it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.evidence = Evidence(
            "t",
            idempotent={"a"},
            high_watermarks={0: 5},
            leaderships=[Leadership(0, 0, 1, "journal"), Leadership(0, 2, 2, "journal")],
        )
        for broker in (1, 2, 3):
            self.replica(broker, log_of(GOOD))
        self.acks("a", [(0, 0), (1, 2), (2, 4)])
        self.acks("b", [(0, 1), (1, 3)])
        reader = self.history("reader", [])
        for offset, (name, seq) in enumerate(s for _, sent in GOOD for s in sent):
            reader.add("R", 0, offset, f"{name}|0|{seq}")
        self.evidence.reader = folder / "reader"
        self.observer = self.history("observer", [])
        self.evidence.observer = folder / "observer"
        self.observer.add("M", 1, 0, 1, 0, "1,2,3")
        self.observer.add("Z", 0, 2, 2, "2,3", 5)
        self.observer.add("C", 1, 1)

    def replica(self, broker: int, data: bytes, epochs: str = "0 0\n2 3\n") -> None:
        folder = self.folder / f"broker-{broker}" / "t-0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{0:020d}.log").write_bytes(data)
        (folder / "leader-epoch-checkpoint").write_text(f"0\n{epochs.count(chr(10))}\n{epochs}")
        self.evidence.replicas.setdefault(0, {})[broker] = Replica.read(folder)

    def every_replica(self, data: bytes, epochs: str = "0 0\n2 3\n") -> None:
        for broker in (1, 2, 3):
            self.replica(broker, data, epochs)

    def history(self, name: str, lines: list[tuple[object, ...]]) -> History:
        (self.folder / name).unlink(missing_ok=True)
        history = History(self.folder / name)
        for kind, *fields in lines:
            history.add(str(kind), *fields)
        return history

    def acks(self, name: str, pairs: list[tuple[int, int]], end: str = "E") -> None:
        """(sequence, offset) each."""
        lines: list[tuple[object, ...]] = [("A", 0, offset, seq) for seq, offset in pairs]
        self.history(name, [*lines, (end,)])
        self.evidence.producers[name] = self.folder / name

    def rules(self) -> set[str]:
        return {finding.rule for finding in check(self.evidence).findings}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_is_in_order_is_not_blamed(scene: Scene) -> None:
    outcomes = check(scene.evidence)
    assert outcomes.findings == []
    assert (outcomes.records, outcomes.acknowledged, outcomes.reads) == (5, 5, 5)
    assert outcomes.unacknowledged == 0
    assert outcomes.epochs == 2


def test_a_record_nobody_heard_of_is_in_order_too(scene: Scene) -> None:
    scene.acks("a", [(0, 0), (1, 2)])
    outcomes = check(scene.evidence)
    assert outcomes.findings == [] and outcomes.unacknowledged == 1


def test_what_lies_above_the_high_watermark_may_differ(scene: Scene) -> None:
    scene.replica(2, log_of([*GOOD, (2, [("a", 3)])]))
    scene.replica(3, log_of([*GOOD, (2, [("b", 2)])])[:-3])
    assert scene.rules() == set()


def test_replicas_may_have_other_segments(scene: Scene) -> None:
    data = log_of(GOOD)
    cut = len(log_of(GOOD[:2]))
    scene.replica(2, data[:cut])
    folder = scene.folder / "broker-2" / "t-0"
    (folder / f"{3:020d}.log").write_bytes(data[cut:])
    scene.evidence.replicas[0][2] = Replica.read(folder)
    assert scene.rules() == set()


def lose_the_end(scene: Scene) -> None:
    scene.every_replica(log_of(GOOD[:2]))
    scene.evidence.high_watermarks[0] = 3


def lose_one_replica(scene: Scene) -> None:
    scene.replica(2, log_of(GOOD[:2]))


def hole_in_the_first_replica(scene: Scene) -> None:
    data = log_of(GOOD)
    scene.replica(1, data[: len(log_of(GOOD[:1]))] + data[len(log_of(GOOD[:2])) :])


def other_record(scene: Scene) -> None:
    scene.acks("b", [(0, 1), (1, 4)])


def two_at_one_offset(scene: Scene) -> None:
    scene.acks("a", [(0, 0), (1, 2), (2, 4), (3, 4)])


def twice(scene: Scene) -> None:
    scene.every_replica(log_of([*GOOD, (2, [("a", 2)])]))
    scene.evidence.high_watermarks[0] = 6
    scene.evidence.reader = None


def out_of_order(scene: Scene) -> None:
    scene.every_replica(log_of([*GOOD, (2, [("a", 4), ("a", 3)])]))
    scene.evidence.high_watermarks[0] = 7
    scene.evidence.reader = None


def acknowledged_out_of_order(scene: Scene) -> None:
    swapped = [(0, [("a", 0), ("b", 1)]), (0, [("a", 1)]), (2, [("b", 0), ("a", 2)])]
    scene.every_replica(log_of(swapped))
    scene.acks("b", [(0, 3), (1, 1)])
    scene.evidence.reader = None


def bytes_nobody_sent(scene: Scene) -> None:
    scene.every_replica(log_of(GOOD) + batch(5, 2, [b"who?"]))
    scene.evidence.high_watermarks[0] = 6
    scene.evidence.reader = None


def damaged(scene: Scene) -> None:
    data = bytearray(log_of(GOOD))
    data[-1] ^= 1
    scene.replica(3, bytes(data))


def missing_offset(scene: Scene) -> None:
    scene.every_replica(log_of(GOOD) + batch(6, 2, [value_of("a", 0, 3)]))
    scene.evidence.high_watermarks[0] = 7
    scene.evidence.reader = None


def other_epoch_on_one_replica(scene: Scene) -> None:
    other = [*GOOD[:2], (1, GOOD[2][1])]
    scene.replica(3, log_of(other), "0 0\n1 3\n")


def duplicate_that_is_nowhere(scene: Scene) -> None:
    scene.acks("a", [(0, 0), (1, 2), (2, 4), (3, -1)])


def unknown_watermark(scene: Scene) -> None:
    scene.evidence.high_watermarks.clear()


def falling_epochs(scene: Scene) -> None:
    scene.every_replica(log_of([*GOOD, (1, [("a", 3)])]))
    scene.evidence.high_watermarks[0] = 6
    scene.evidence.reader = None


def epoch_file_without_an_epoch(scene: Scene) -> None:
    scene.replica(1, log_of(GOOD), "0 0\n")


def epoch_file_too_late(scene: Scene) -> None:
    scene.replica(1, log_of(GOOD), "0 0\n2 4\n")


def two_leaders(scene: Scene) -> None:
    scene.evidence.leaderships.append(Leadership(0, 2, 3, "another journal"))


def metadata_against_journal(scene: Scene) -> None:
    scene.observer.add("M", 3, 0, 1, 2, "1,2")


def epoch_went_back(scene: Scene) -> None:
    scene.observer.add("Z", 0, 1, 0, "1,2,3", 6)


def two_controllers(scene: Scene) -> None:
    scene.observer.add("C", 2, 1)


def controller_epoch_went_back(scene: Scene) -> None:
    scene.observer.add("C", 2, 0)


def watermark_fell(scene: Scene) -> None:
    scene.observer.add("H", 1, 0, 0, 4, "0.0")
    answered_s = list(lines_of(scene.folder / "observer"))[-1][1]
    scene.observer.add("H", 2, 0, 2, 3, f"{answered_s + 0.1:.3f}")


def reader_at_the_end_refused(scene: Scene) -> None:
    scene.observer.add("W", 0, 4, "broker_1_epoch_2")


def consumer_refused(scene: Scene) -> None:
    with (scene.folder / "reader").open("a") as file:
        file.write("O 9.0 0 Broker: Offset out of range\n")


def read_what_is_gone(scene: Scene) -> None:
    scene.history("reader", [("R", 0, 0, "a|0|0"), ("R", 0, 1, "a|0|9")])


def read_twice(scene: Scene) -> None:
    scene.history("reader", [("R", 0, 0, "a|0|0"), ("R", 0, 0, "a|0|0")])


def reader_stopped_early(scene: Scene) -> None:
    scene.history("reader", [("R", 0, 0, "a|0|0"), ("R", 0, 1, "b|0|0")])


def skipped_one(scene: Scene) -> None:
    scene.history("reader", [("R", 0, 0, "a|0|0"), ("R", 0, 2, "a|0|1")])


def producer_broke(scene: Scene) -> None:
    scene.acks("a", [(0, 0), (1, 2)], end="X")


def producer_vanished(scene: Scene) -> None:
    scene.history("b", [("A", 0, 1, 0)])


SPOILED: list[tuple[Callable[[Scene], None], set[str]]] = [
    (lose_the_end, {"lost", "read"}),
    (reader_stopped_early, {"read"}),
    (lose_one_replica, {"lost"}),
    (hole_in_the_first_replica, {"invented"}),
    (other_record, {"lost"}),
    (two_at_one_offset, {"lost", "reordered"}),
    (twice, {"duplicate"}),
    (out_of_order, {"reordered"}),
    (acknowledged_out_of_order, {"reordered"}),
    (bytes_nobody_sent, {"invented"}),
    (damaged, {"invented"}),
    (missing_offset, {"invented"}),
    (other_epoch_on_one_replica, {"differ"}),
    (duplicate_that_is_nowhere, {"lost", "reordered"}),
    (unknown_watermark, {"differ", "lost", "read"}),
    (falling_epochs, {"epochs"}),
    (epoch_file_without_an_epoch, {"epochs"}),
    (epoch_file_too_late, {"epochs"}),
    (two_leaders, {"leaders"}),
    (metadata_against_journal, {"leaders"}),
    (epoch_went_back, {"leaders"}),
    (two_controllers, {"leaders"}),
    (controller_epoch_went_back, {"leaders"}),
    (watermark_fell, {"watermark"}),
    (reader_at_the_end_refused, {"watermark"}),
    (consumer_refused, {"watermark"}),
    (read_what_is_gone, {"read"}),
    (read_twice, {"read"}),
    (skipped_one, {"read"}),
    (producer_broke, {"producer"}),
    (producer_vanished, {"producer"}),
]


@pytest.mark.parametrize(("spoil", "rules"), SPOILED, ids=[s.__name__ for s, _ in SPOILED])
def test_every_rule_fires(scene: Scene, spoil: Callable[[Scene], None], rules: set[str]) -> None:
    spoil(scene)
    assert scene.rules() == rules


def test_a_lower_answer_that_overtook_a_higher_one_is_no_step_back(scene: Scene) -> None:
    scene.observer.add("H", 1, 0, 0, 4, "0.0")
    scene.observer.add("H", 2, 0, 0, 3, "0.0")
    assert scene.rules() == set()


def test_a_duplicate_without_offset_is_looked_for(scene: Scene) -> None:
    scene.acks("a", [(0, 0), (1, -1), (2, 4)])
    outcomes = check(scene.evidence)
    assert outcomes.findings == [] and outcomes.acknowledged == 5


def test_a_plain_producer_may_write_twice(scene: Scene) -> None:
    scene.every_replica(log_of([*GOOD, (2, [("b", 1)])]))
    scene.evidence.high_watermarks[0] = 6
    scene.evidence.reader = None
    assert scene.rules() == set()


def test_a_library_that_stands_still_is_told_as_the_clients_own(scene: Scene) -> None:
    scene.history("b", [("A", 0, 1, 0), ("A", 0, 3, 1), ("C", 150)])
    outcomes = check(scene.evidence)
    assert outcomes.findings == []
    assert outcomes.remarks == ["b never came back from a close of at most 150 s"]
    scene.history("b", [("A", 0, 1, 0), ("A", 0, 2, 1), ("C", 150)])
    assert scene.rules() == {"lost"}, "what it was told counts all the same"


STUCK = """
import sys, threading
from tests.chaos import producers

class Stuck:
    def send(self, partition, sequence, value): pass
    def poll(self): pass
    def problem(self): return None
    def close(self, limit_s): threading.Event().wait()

producers.END_LIMIT_S = producers.STANDS_STILL_S = 0.2
producers.make = lambda *_: Stuck()
producers.main(sys.argv[1:])
"""


def test_a_producer_ends_though_its_library_does_not(tmp_path: Path) -> None:
    history = tmp_path / "h"
    words = ["confluent", "b", "--bootstrap", "x:1", "--topic", "t", "--partitions", "1"]
    words += ["--rate", "100", "--history", str(history)]
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline_s = time.monotonic() + 60
        while not history.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "in close" in err
    assert [kind for kind, _, _ in lines_of(history)] == ["C"]


AGAIN = """
import signal, sys
from tests.chaos.ending import Ending

ending, again = Ending(), 10

def trace(frame, event, argument):
    global again
    if again:
        again -= 1
        signal.raise_signal(signal.SIGTERM)
    return trace

sys.settrace(trace)
signal.raise_signal(signal.SIGTERM)
sys.settrace(None)
ending.wait()
assert ending.is_set() and again < 10
"""
"""A signal at every line of the handler."""


def test_a_process_is_told_to_end_while_it_is_being_told_so() -> None:
    subprocess.run([sys.executable, "-c", AGAIN], cwd=ROOT, check=True, timeout=60)


def test_many_findings_of_a_rule_are_counted(scene: Scene) -> None:
    scene.acks("a", [(seq, 10 + seq) for seq in range(20)])
    texts = [f.text for f in check(scene.evidence).findings if f.rule == "lost"]
    assert len(texts) == 6 and texts[-1] == "... and 15 more"


def test_values_say_whose_they_are() -> None:
    value = value_of("a-1", 2, 33)
    assert parse_value(value) == ("a-1", 2, 33)
    for changed in (value[:-1], value + b"x", b"", value[:-1] + b"\0", b"nobody"):
        assert parse_value(changed) is None


def test_a_line_cut_by_a_kill_is_skipped(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    history.add("A", 0, 1, 2)
    with (tmp_path / "h").open("a") as file:
        file.write("A 1.0 0 2")
    assert [(kind, fields) for kind, _, fields in lines_of(tmp_path / "h")] == [
        ("A", ["0", "1", "2"])
    ]


def test_a_log_is_read_up_to_a_torn_end(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(log_of(GOOD)[:-1])
    batches = list(Replica.read(tmp_path).batches())
    assert [(b.base_offset, b.last_offset, b.leader_epoch) for b in batches] == [
        (0, 1, 0),
        (2, 2, 0),
    ]
    (tmp_path / "0.log").write_bytes(b"\0" * 100)
    with pytest.raises(BadLog):
        list(Replica.read(tmp_path).batches())


def test_checkpoints_and_journals_are_read(tmp_path: Path) -> None:
    assert offsets_in(tmp_path / "none") == {}
    (tmp_path / "c").write_text("0\n2\nt 0 5\na topic 12 7\n")
    assert offsets_in(tmp_path / "c") == {("t", 0): 5, ("a topic", 12): 7}
    change = {"kind": "StateChange", "topic": "t", "partition": 1, "leader": 2, "broker": 3}
    entries = [
        None,
        {"kind": "BrokerStarted", "broker": 3},
        change | {"change": "follower", "leader_epoch": 4},
        change | {"change": "isr", "leader_epoch": 5},
        change | {"change": "leader", "leader_epoch": 6, "topic": "other"},
    ]
    assert list(journal_leaders(entries, "t")) == [Leadership(1, 4, 2, "journal of broker 3")]


def test_what_a_producer_sends_again_in_a_new_life_is_no_duplicate(scene: Scene) -> None:
    again = [value_of("a", 0, 1), value_of("a", 0, 2)]
    scene.evidence.high_watermarks[0] = 7
    scene.evidence.reader = None
    for life, blamed in ((7, {"duplicate", "reordered"}), (8, set())):
        scene.every_replica(log_of(GOOD) + batch(5, 2, again, producer_id=life))
        assert scene.rules() == blamed
