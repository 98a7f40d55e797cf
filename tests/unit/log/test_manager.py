"""Directories, creation and deletion, checkpoints, clean and unclean ends, failing directories."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.log.log import Log
from kafkalike.broker.log.manager import LogManager, StartupError
from kafkalike.config import BrokerConfig, LogConfig
from kafkalike.errors import (
    InconsistentTopicId,
    InvalidTopicException,
    KafkaStorageError,
    MessageTooLarge,
)
from kafkalike.runtime.ports import StorageError
from kafkalike.tools.simulator.disk import MemoryDisk
from kafkalike.types import TopicPartition
from tests.fakes import (
    FakeClock,
    FakeRandom,
    InlineThreads,
    ManualThreads,
    failure_of,
    result_of,
)

from .support import NOW, CrashAt, append, batch, values_of

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)
ID = bytes(range(16))
ID2 = bytes(range(1, 17))
DIRS = ("/d1", "/d2")


class Broker:
    """Log managers on one disk, one after the other."""

    def __init__(self, *dirs: str, threads: Any = None, **topic: str) -> None:
        self.clock = FakeClock(NOW)
        self.disk = MemoryDisk(self.clock.now_ms)
        self.dirs = dirs or ("/d1",)
        self.threads = threads or InlineThreads()
        self.topic = {name.replace("_", "."): value for name, value in topic.items()}
        self.failed: list[str] = []
        self.logs = self.new()

    def new(self, **settings: str) -> LogManager:
        config = BrokerConfig.parse(
            {
                "broker.id": "1",
                "zookeeper.connect": "z:1",
                "listeners": "PLAINTEXT://localhost:1",
                "log.dirs": ",".join(self.dirs),
                **settings,
            }
        )
        base = LogConfig.from_broker(config)
        return LogManager(
            config,
            clock=self.clock,
            random=FakeRandom(3),
            disk=self.disk,
            threads=self.threads,
            log_config=lambda topic: base.with_overrides(self.topic),
            on_dir_failure=self.failed.append,
        )

    def start(self, **settings: str) -> "Broker":
        self.logs = self.new(**settings)
        result_of(Deferred.fromCoroutine(self.logs.startup()))
        return self

    def stop(self) -> None:
        result_of(Deferred.fromCoroutine(self.logs.shutdown()))

    def kill(self) -> None:
        self.disk.kill()

    def create(self, tp: TopicPartition = A0, topic_id: bytes | None = ID) -> Log:
        return self.logs.get_or_create(tp, topic_id, is_new=True)

    def log(self, tp: TopicPartition = A0) -> Log:
        log = self.logs.get_log(tp)
        assert log is not None
        return log

    def read(self, path: str) -> bytes:
        return self.disk.read_file(path)


@pytest.fixture
def broker() -> Broker:
    return Broker().start()


def test_a_new_log_has_kafkas_files(broker: Broker) -> None:
    broker.create()
    assert broker.disk.list("/d1/a-0") == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        "partition.metadata",
    ]
    assert (
        broker.read("/d1/a-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    )
    assert broker.create() is broker.log()


def test_files_of_a_new_log_may_come_after_its_first_records() -> None:
    threads = ManualThreads()
    broker = Broker(threads=threads)
    starting = Deferred.fromCoroutine(broker.logs.startup())
    threads.run_all()
    result_of(starting)
    log = broker.create()
    assert broker.disk.list("/d1/a-0") == []
    append(log, "a")
    assert broker.read("/d1/a-0/partition.metadata").startswith(b"version: 0")
    threads.run_all()
    append(log, "b")
    assert values_of(log) == ["a", "b"]
    assert broker.disk.size(f"/d1/a-0/{0:020d}.index") == 10_485_760


def test_a_log_deleted_before_its_files_exist_leaves_nothing(broker: Broker) -> None:
    threads = ManualThreads()
    broker = Broker(threads=threads)
    starting = Deferred.fromCoroutine(broker.logs.startup())
    threads.run_all()
    result_of(starting)
    broker.create()
    broker.logs.delete(A0)
    threads.run_all()
    broker.clock.advance(61)
    threads.run_all()
    assert broker.failed == []
    assert [n for n in broker.disk.list("/d1") if n.startswith("a-")] == []


def test_a_clean_stop_and_start(broker: Broker) -> None:
    log = broker.create()
    append(log, "a", "b")
    log.update_high_watermark(2)
    broker.stop()
    assert broker.read("/d1/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    assert broker.read("/d1/recovery-point-offset-checkpoint") == b"0\n1\na 0 2\n"
    assert broker.read("/d1/replication-offset-checkpoint") == b"0\n1\na 0 2\n"
    assert broker.disk.size(f"/d1/a-0/{0:020d}.index") == 0
    broker.disk.crash()
    broker.start()
    assert broker.disk.open_files == 0
    assert not broker.disk.exists("/d1/.kafka_cleanshutdown")
    assert values_of(broker.log()) == ["a", "b"]
    assert broker.log().high_watermark == 2
    assert broker.logs.checkpointed_high_watermark(A0) == 2
    assert broker.log().topic_id == ID


def test_a_killed_broker_recovers_what_it_wrote(broker: Broker) -> None:
    append(broker.create(), "a", "b")
    broker.kill()
    broker.start()
    assert values_of(broker.log()) == ["a", "b"]
    assert broker.log().high_watermark == 0
    # Killed again before anything was checkpointed: the mark must not come back.
    broker.kill()
    file = broker.disk.open(f"/d1/a-0/{0:020d}.log")
    file.append(b"torn")
    broker.kill()
    assert values_of(broker.start().log()) == ["a", "b"]


def test_a_crash_while_loading_counts_as_unclean(broker: Broker) -> None:
    """KAFKA-10471: the mark goes before anything is loaded."""
    append(broker.create(), "a")
    broker.stop()

    def before(operation: str, path: str) -> None:
        if operation == "list" and path == "/d1/a-0":
            raise StorageError("stop here")

    broker.disk.before = before
    with pytest.raises(StartupError):
        broker.start()
    broker.disk.before = None
    broker.disk.crash()
    assert not broker.disk.exists("/d1/.kafka_cleanshutdown")


def test_the_mark_is_the_last_thing_written() -> None:
    """Wherever a stop is cut short, either the mark is missing or everything is in order."""
    at = 0
    while True:
        broker = Broker().start()
        append(broker.create(), "a", "b", producer=(1, 0, 0))
        append(broker.create(B0), "c")
        broker.disk.before = CrashAt(at, KeyboardInterrupt)
        try:
            broker.stop()
            finished = True
        except KeyboardInterrupt:
            finished = False
        broker.disk.before = None
        broker.disk.crash()
        if broker.disk.exists("/d1/.kafka_cleanshutdown"):
            broker.start()
            assert values_of(broker.log()) == ["a", "b"]
            assert values_of(broker.log(B0)) == ["c"]
            assert broker.log().active_producers()[0].last_sequence == 1
        if finished:
            break
        at += 1
    assert at > 15


def test_a_second_process_is_refused(broker: Broker) -> None:
    second = broker.new()
    error = failure_of(Deferred.fromCoroutine(second.startup()), StartupError)
    assert "log directory /d1 is in use" in str(error)


def test_a_directory_that_cannot_be_written_is_offline_and_not_in_use(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker("/d1", "/d2")

    def read_only(operation: str, path: str) -> None:
        if operation == "lock" and path.startswith("/d1"):
            raise StorageError(f"{path}: Read-only file system")

    broker.disk.before = read_only
    broker.start()
    assert broker.logs.offline_dirs == ["/d1"]
    assert "/d1/.lock: Read-only file system" in caplog.text and "in use" not in caplog.text


def test_foreign_directories_stop_the_start() -> None:
    broker = Broker()
    broker.disk.make_dirs("/d1/whatever")
    error = failure_of(Deferred.fromCoroutine(broker.logs.startup()), StartupError)
    assert "/d1/whatever" in str(error)
    broker = Broker()
    broker.disk.make_dirs("/d1/remote-log-index-cache")
    broker.disk.make_dirs("/d1/__cluster_metadata-0")
    broker.start()


def test_one_partition_in_two_directories_stops_the_start() -> None:
    broker = Broker(*DIRS)
    broker.disk.make_dirs("/d1/a-0")
    broker.disk.make_dirs("/d2/a-0")
    error = failure_of(Deferred.fromCoroutine(broker.logs.startup()), StartupError)
    assert "/d1/a-0" in str(error) and "/d2/a-0" in str(error)
    broker.disk.remove_tree("/d2/a-0")
    broker.start()


def test_topic_ids_are_checked_and_learned(broker: Broker) -> None:
    broker.create(topic_id=None)
    assert broker.log().topic_id is None
    broker.logs.get_or_create(A0, ID, is_new=False)
    assert broker.read("/d1/a-0/partition.metadata").startswith(b"version: 0")
    with pytest.raises(InconsistentTopicId):
        broker.logs.get_or_create(A0, ID2, is_new=False)
    assert broker.logs.get_or_create(A0, bytes(16), is_new=False).topic_id == ID


def test_logs_go_where_there_are_fewest() -> None:
    broker = Broker(*DIRS).start()
    for n in range(4):
        broker.create(TopicPartition("a", n))
    assert [broker.log(TopicPartition("a", n)).parent_dir for n in range(4)] == [
        "/d1",
        "/d2",
        "/d1",
        "/d2",
    ]
    broker.logs.delete(TopicPartition("a", 1))
    broker.logs.delete(TopicPartition("a", 3))
    assert broker.create(TopicPartition("b", 0)).parent_dir == "/d2"
    broker.logs.set_preferred_dir(B0._replace(partition=5), "/d1")
    assert broker.create(B0._replace(partition=5)).parent_dir == "/d1"


def test_deletion_renames_now_and_removes_later(broker: Broker) -> None:
    append(broker.create(), "a")
    broker.logs.delete(A0)
    assert broker.logs.get_log(A0) is None
    (name,) = [n for n in broker.disk.list("/d1") if n.startswith("a-0")]
    assert name.startswith("a-0.") and name.endswith("-delete")
    broker.clock.advance(59)
    assert broker.disk.exists(f"/d1/{name}")
    broker.clock.advance(2)
    assert not broker.disk.exists(f"/d1/{name}")
    broker.logs.delete(A0)


def test_deletion_goes_on_after_a_restart(broker: Broker) -> None:
    append(broker.create(), "a")
    broker.logs.delete(A0)
    broker.kill()
    broker.start()
    assert broker.logs.get_log(A0) is None
    assert len([n for n in broker.disk.list("/d1") if n.endswith("-delete")]) == 1
    broker.clock.advance(61)
    assert [n for n in broker.disk.list("/d1") if n.startswith("a-0")] == []


def test_stray_logs_are_kept_but_not_loaded(broker: Broker) -> None:
    append(broker.create(), "a")
    broker.logs.mark_stray(A0)
    broker.clock.advance(100_000)
    assert len([n for n in broker.disk.list("/d1") if n.endswith("-stray")]) == 1
    broker.stop()
    broker.start()
    assert broker.logs.get_log(A0) is None


def test_a_recreated_log_does_not_get_the_offsets_of_its_predecessor(broker: Broker) -> None:
    log = broker.create()
    append(log, *"abcdefgh")
    log.update_high_watermark(8)
    log.maybe_increment_log_start_offset(5)
    for work in (
        broker.logs.checkpoint_recovery_points(),
        broker.logs.checkpoint_log_starts(),
        broker.logs.checkpoint_high_watermarks(),
    ):
        result_of(work)
    assert broker.read("/d1/log-start-offset-checkpoint") == b"0\n1\na 0 5\n"
    broker.logs.delete(A0)
    append(broker.create(topic_id=ID2), "x", "y")
    broker.kill()
    broker.start()
    assert values_of(broker.log()) == ["x", "y"]
    assert (broker.log().log_start_offset, broker.log().high_watermark) == (0, 0)
    assert broker.log().topic_id == ID2


def test_checkpoints_are_written_on_time(broker: Broker) -> None:
    log = broker.create()
    append(log, "a", "b", "c")
    log.update_high_watermark(2)
    broker.clock.advance(6)
    assert broker.read("/d1/replication-offset-checkpoint") == b"0\n1\na 0 2\n"
    log.maybe_increment_log_start_offset(1)
    log.flush()
    broker.clock.advance(31)
    assert broker.read("/d1/recovery-point-offset-checkpoint") == b"0\n1\na 0 3\n"
    assert broker.read("/d1/log-start-offset-checkpoint") == b"0\n1\na 0 1\n"


@pytest.mark.parametrize("fully", [False, True])
def test_a_truncation_takes_the_recovery_point_along(broker: Broker, fully: bool) -> None:
    """Else what is appended there afterwards would pass for synced after a power loss."""
    log = broker.create()
    append(log, "a", "b", "c")
    append(log, "d")
    log.flush()
    broker.clock.advance(61)
    assert broker.read("/d1/recovery-point-offset-checkpoint") == b"0\n1\na 0 4\n"
    if fully:
        log.truncate_fully_and_start_at(3)
    else:
        log.truncate_to(3)
    append(log, "new")
    broker.clock.advance(0)
    assert broker.read("/d1/recovery-point-offset-checkpoint") == b"0\n1\na 0 3\n"


def test_cuts_during_a_write_of_recovery_points_share_the_next_one() -> None:
    threads = ManualThreads()
    broker = Broker(threads=threads)
    starting = Deferred.fromCoroutine(broker.logs.startup())
    while not starting.called:
        threads.run_all()
    log = broker.create()
    append(log, *"abcdef")
    for letter in "ghi":
        append(log, letter)
    log.flush()
    threads.run_all()
    written: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "rename" and "recovery-point" in path:
            written.append(broker.read("/d1/recovery-point-offset-checkpoint.tmp").decode())

    broker.disk.before = before
    for offset in (8, 7, 6):
        log.truncate_to(offset)
        broker.clock.advance(0)
    threads.run_all()
    broker.clock.advance(0)
    threads.run_all()
    assert [text.split()[-1] for text in written] == ["8", "6"]


def test_unchanged_checkpoints_are_not_written_again(broker: Broker) -> None:
    broker.create()
    result_of(broker.logs.checkpoint_high_watermarks())
    operations: list[str] = []
    broker.disk.before = lambda operation, path: operations.append(operation)
    result_of(broker.logs.checkpoint_high_watermarks())
    assert operations == []


def test_retention_runs_on_time() -> None:
    broker = Broker(segment_bytes="200", retention_ms="60000").start()
    log = broker.create()
    for n in range(5):
        append(log, "x" * 100, timestamp=NOW - 40_000 + n * 1000)
    log.update_high_watermark(5)
    broker.clock.advance(31)
    assert log.log_start_offset == 5
    assert log.size == 0


def test_producers_expire_on_time(broker: Broker) -> None:
    log = broker.create()
    append(log, "a", producer=(1, 0, 0))
    broker.clock.advance(86_390)
    assert len(log.active_producers()) == 1
    broker.clock.advance(601)
    assert log.active_producers() == []


def test_flushes_that_come_together_share_a_sync() -> None:
    threads = ManualThreads()
    broker = Broker(threads=threads)
    starting = Deferred.fromCoroutine(broker.logs.startup())
    threads.run_all()
    result_of(starting)
    log = broker.create()
    threads.run_all()
    syncs: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            syncs.append(path)

    append(log, "a")
    threads.run_all()
    broker.disk.before = before
    first = broker.logs.flush(log)
    append(log, "b")
    second, third = broker.logs.flush(log), broker.logs.flush(log)
    threads.step()
    result_of(first)
    assert log.recovery_point == 1
    assert not second.called
    threads.run_all()
    result_of(second)
    result_of(third)
    assert log.recovery_point == 2
    assert len(syncs) == 2
    result_of(broker.logs.flush(log))
    assert len(syncs) == 2


def test_flush_messages_asks_for_a_flush() -> None:
    broker = Broker(flush_messages="2").start()
    log = broker.create()
    assert not log.append_as_leader(batch("a"), 1, now_ms=NOW).needs_flush
    assert log.append_as_leader(batch("b"), 1, now_ms=NOW).needs_flush
    result_of(broker.logs.flush(log))
    assert not log.append_as_leader(batch("c"), 1, now_ms=NOW).needs_flush


def test_flush_ms_syncs_what_has_waited_long_enough() -> None:
    broker = Broker(flush_ms="20000").start(**{"log.flush.scheduler.interval.ms": "1000"})
    log = broker.create()
    append(log, "a")
    broker.clock.advance(31)
    assert log.recovery_point == 1
    append(log, "b")
    broker.clock.advance(18)
    assert log.recovery_point == 1
    broker.clock.advance(3)
    assert log.recovery_point == 2


def test_settings_of_a_topic_change_while_it_is_used(broker: Broker) -> None:
    log = broker.create()
    broker.topic = {"max.message.bytes": "100"}
    broker.logs.topic_config_changed("b")
    append(log, "x" * 200)
    broker.logs.topic_config_changed("a")
    with pytest.raises(MessageTooLarge):
        append(log, "x" * 200)


def test_settings_of_the_broker_change_while_it_runs(broker: Broker) -> None:
    log = broker.create()
    assert log.producer_state.verification_required
    broker.topic = {"max.message.bytes": "100"}
    broker.logs.broker_config_changed(
        BrokerConfig.parse(
            {
                "broker.id": "1",
                "zookeeper.connect": "z:1",
                "producer.id.expiration.ms": "5000",
                "transaction.partition.verification.enable": "false",
            }
        )
    )
    assert not log.producer_state.verification_required
    assert log.producer_state.expiration_ms == 5000
    with pytest.raises(MessageTooLarge):
        append(log, "x" * 200)


# -- moving between directories ----------------------------------------------------------------


def test_a_future_log_becomes_the_log() -> None:
    broker = Broker(*DIRS).start()
    current = broker.create()
    append(current, "a", "b")
    current.update_high_watermark(2)
    future = broker.logs.get_or_create(A0, ID, is_new=False, future=True)
    assert future.is_future and future.parent_dir == "/d2"
    assert broker.logs.get_log(A0, future=True) is future
    future.append_as_follower(bytes(batch("a", "b", epoch=1)))
    broker.kill()
    broker.start()
    reloaded = broker.logs.get_log(A0, future=True)
    assert reloaded is not None and values_of(reloaded) == ["a", "b"]
    broker.log().update_high_watermark(1)
    broker.logs.replace_current_with_future(A0)
    assert broker.log() is reloaded
    assert reloaded.dir == "/d2/a-0" and not reloaded.is_future
    assert reloaded.high_watermark == 1
    append(reloaded, "c")
    assert [n for n in broker.disk.list("/d1") if n.endswith("-delete")]
    broker.stop()
    broker.start()
    assert values_of(broker.log()) == ["a", "b", "c"]


def test_names_too_long_for_a_move_are_refused() -> None:
    broker = Broker(*DIRS).start()
    long = TopicPartition("x" * 230, 0)
    broker.create(long)
    with pytest.raises(InvalidTopicException):
        broker.logs.get_or_create(long, ID, is_new=False, future=True)


# -- failing directories -----------------------------------------------------------------------


def failing(broker: Broker, path: str, operations: tuple[str, ...]) -> Callable[[str, str], None]:
    def before(operation: str, where: str) -> None:
        if operation in operations and where.startswith(path):
            raise StorageError(f"{where}: Input/output error")

    broker.disk.before = before
    return before


def test_a_failed_directory_takes_its_logs_with_it() -> None:
    broker = Broker(*DIRS).start()
    first, second = broker.create(A0), broker.create(A1)
    append(first, "a")
    append(second, "b")
    failing(broker, "/d1", ("append",))
    with pytest.raises(KafkaStorageError):
        append(first, "x")
    assert broker.failed == ["/d1"]
    assert (broker.logs.live_dirs, broker.logs.offline_dirs) == (["/d2"], ["/d1"])
    assert broker.logs.get_log(A0) is None
    append(second, "c")
    # Its data may be on the failed disk: only a new partition may be created.
    with pytest.raises(KafkaStorageError):
        broker.logs.get_or_create(A0, ID, is_new=False)
    assert broker.logs.get_or_create(A0, ID, is_new=True).parent_dir == "/d2"
    broker.stop()
    assert not broker.disk.exists("/d1/.kafka_cleanshutdown")
    assert broker.disk.exists("/d2/.kafka_cleanshutdown")


def test_a_failed_sync_takes_the_directory_offline() -> None:
    broker = Broker(*DIRS).start()
    log = broker.create()
    append(log, "a")
    failing(broker, "/d1", ("sync",))
    failure_of(broker.logs.flush(log), KafkaStorageError)
    assert broker.failed == ["/d1"]
    assert log.recovery_point == 0


def test_a_failed_checkpoint_takes_the_directory_offline() -> None:
    broker = Broker(*DIRS).start()
    broker.create()
    failing(broker, "/d1/replication", ("open",))
    result_of(broker.logs.checkpoint_high_watermarks())
    assert broker.failed == ["/d1"]


def test_a_directory_that_does_not_load_is_offline_and_the_others_serve() -> None:
    broker = Broker(*DIRS).start()
    broker.create(A0)
    broker.create(A1)
    broker.stop()
    failing(broker, "/d1", ("list",))
    broker.start()
    assert broker.failed == ["/d1"]
    assert broker.logs.get_log(A1) is not None
    broker.stop()
    broker.disk.before = None
    broker.disk.write_atomic("/d1/replication-offset-checkpoint", b"nonsense")
    broker.start()
    assert broker.logs.live_dirs == ["/d2"]


def test_without_any_directory_there_is_no_start() -> None:
    broker = Broker()
    failing(broker, "/d1", ("make_dirs",))
    error = failure_of(Deferred.fromCoroutine(broker.logs.startup()), StartupError)
    assert "/d1" in str(error)


def test_unreadable_recovery_points_only_cost_time(broker: Broker) -> None:
    append(broker.create(), "a")
    broker.stop()
    broker.disk.write_atomic("/d1/recovery-point-offset-checkpoint", b"nonsense")
    broker.disk.write_atomic("/d1/cleaner-offset-checkpoint", b"0\n5\n")
    broker.start()
    assert values_of(broker.log()) == ["a"]


@pytest.mark.parametrize("garbage", [b"\0garbage\xff\n", b"0\n1\na 0 99999999999999999999\n"])
@pytest.mark.parametrize(
    "name",
    [
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "a-0/leader-epoch-checkpoint",
        "a-0/partition.metadata",
    ],
)
def test_a_damaged_file_takes_its_directory_offline_and_is_named(
    name: str, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka does: nothing can be trusted to be there, and nothing is thrown away."""
    broker = Broker("/d1", "/d2")
    broker.start()
    append(broker.create(A0), "a")
    append(broker.create(A1), "b")
    home, other = broker.log(A0).parent_dir, broker.log(A1).parent_dir
    assert home != other
    broker.stop()
    path = f"{home}/{name}"
    whole = broker.disk.read_file(path)
    broker.disk.write_atomic(path, garbage)
    broker.start()
    assert broker.failed == [home]
    assert broker.logs.offline_dirs == [home]
    assert values_of(broker.log(A1)) == ["b"]
    assert path in caplog.text and "expected" in caplog.text
    broker.stop()
    broker.disk.write_atomic(path, whole)
    broker.failed.clear()
    broker.start()
    assert values_of(broker.log(A0)) == ["a"]


def test_damaged_meta_properties_take_their_directory_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker("/d1", "/d2")
    broker.disk.make_dirs("/d1")
    broker.disk.write_atomic("/d1/meta.properties", b"version=0\nbroker.id=one\n")
    broker.start()
    assert broker.logs.offline_dirs == broker.failed == ["/d1"]
    assert "/d1/meta.properties: broker.id 'one', expected a number" in caplog.text
    assert broker.disk.read_file("/d1/meta.properties") == b"version=0\nbroker.id=one\n"


def test_a_damaged_file_of_the_only_directory_is_named_by_the_refusal_to_start() -> None:
    broker = Broker().start()
    append(broker.create(), "a")
    broker.stop()
    broker.disk.write_atomic("/d1/log-start-offset-checkpoint", b"nonsense")
    broker.logs = broker.new()
    error = failure_of(Deferred.fromCoroutine(broker.logs.startup()), StartupError)
    assert "/d1/log-start-offset-checkpoint: version 'nonsense', expected 0" in str(error)


def test_high_watermarks_are_written_before_log_starts(broker: Broker) -> None:
    """A log start that no high watermark confirms is not believed."""
    log = broker.create()
    append(log, *"abc")
    log.update_high_watermark(3)
    broker.logs.checkpoint_high_watermarks()
    append(log, *"def")
    log.update_high_watermark(6)
    log.maybe_increment_log_start_offset(5)
    broker.logs.checkpoint_log_starts()
    assert broker.disk.read_file("/d1/replication-offset-checkpoint") == b"0\n1\na 0 6\n"


def test_files_are_closed_when_there_are_too_many() -> None:
    broker = Broker()
    broker.logs._files._limit = 10
    result_of(Deferred.fromCoroutine(broker.logs.startup()))
    logs = [broker.create(TopicPartition("a", n)) for n in range(50)]
    for turn in range(3):
        for log in logs:
            append(log, f"v{turn}")
        broker.clock.run_soon()
        assert broker.disk.open_files <= 12
    for log in logs:
        assert values_of(log) == ["v0", "v1", "v2"]
    broker.stop()
    broker.clock.run_soon()
    assert broker.disk.open_files == 0
