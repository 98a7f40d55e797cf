"""The load generator against a small broker in memory: what it sends, counts and draws."""

import json
import logging
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from twisted.internet.defer import Deferred

from kafkalike.broker.handlers.api_versions import ApiVersionsApi
from kafkalike.broker.handlers.request import RequestContext, route
from kafkalike.broker.server.dispatch import Dispatcher
from kafkalike.broker.server.listener import Server
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.messages.produce import ProduceRequest, ProduceResponse
from kafkalike.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from kafkalike.metrics import Metrics
from kafkalike.records.batch import encode_batch, parse_batch
from kafkalike.records.record import Record
from kafkalike.runtime.ports import Runtime
from kafkalike.runtime.tasks import TimerWheel
from kafkalike.tools import cli
from kafkalike.tools.admin.client import AdminClient
from kafkalike.tools.bench import (
    Bench,
    Load,
    Measure,
    next_offset,
    percentile,
    report,
)
from kafkalike.tools.bench_plot import latency_plot
from kafkalike.tools.main import main
from kafkalike.types import Endpoint
from tests.fakes import FakeRandom, InlineThreads, failure_of, result_of
from tests.worlds import SimulatedWorld


class SmallBroker:
    """Keeps batches of one topic in memory; answers fetches at once."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.logs: dict[int, list[bytes]] = {}
        self.error_code = 0
        self.created: list[Any] = []
        self.port = 0
        self.others: list[SmallBroker] = []
        self.hears_late = 0
        """So many questions for metadata come before it knows the topic."""
        self.appended: list[int] = []
        logger = logging.getLogger("kafkalike.test")
        versions = ApiVersionsApi()
        routes = [
            route(ProduceRequest, self.produce),
            route(FetchRequest, self.fetch),
            route(MetadataRequest, self.metadata),
            route(CreateTopicsRequest, self.create_topics),
            *versions.routes(),
        ]
        versions.serve(routes)
        clock = world.clock
        server = Server(
            world.network,
            clock,
            TimerWheel(clock, logger),
            Dispatcher(routes, clock=clock, metrics=Metrics(), logger=logger),
            [Endpoint("PLAINTEXT", "PLAINTEXT", "", 0)],
            metrics=Metrics(),
            logger=logger,
        )
        server.start()
        self.port = server.bound()[0].port

    def create_topics(self, request: CreateTopicsRequest, ctx: RequestContext) -> Any:
        self.created.extend(request.topics)
        for topic in request.topics:
            self.logs = {number: [] for number in range(topic.num_partitions)}
        result = CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(
            topics=[result(name=topic.name, error_code=self.error_code) for topic in request.topics]
        )

    def cluster(self) -> list[Any]:
        broker = MetadataResponse.MetadataResponseBroker
        ports = [self.port, *(other.port for other in self.others)]
        return [
            broker(node_id=number, host="broker", port=port) for number, port in enumerate(ports, 1)
        ]

    def metadata(self, request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
        topic = MetadataResponse.MetadataResponseTopic
        if request.topics and self.hears_late:
            self.hears_late -= 1
            unknown = [topic(name=one.name, error_code=3) for one in request.topics]
            return MetadataResponse(controller_id=1, brokers=self.cluster(), topics=unknown)
        partition = topic.MetadataResponsePartition
        return MetadataResponse(
            controller_id=1,
            brokers=self.cluster(),
            topics=[
                topic(
                    name=wanted.name,
                    partitions=[partition(partition_index=n, leader_id=1) for n in self.logs],
                )
                for wanted in request.topics or ()
            ],
        )

    def produce(self, request: ProduceRequest, ctx: RequestContext) -> ProduceResponse:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        assert data.records is not None and not isinstance(data.records, list)
        raw = bytearray(bytes(data.records))  # type: ignore[arg-type]
        batch = parse_batch(raw)
        assert batch.crc_is_valid()
        log = self.logs[data.index]
        offset = parse_batch(log[-1]).next_offset if log else 0
        batch.stamp_offsets(offset, 0)
        log.append(bytes(raw))
        self.appended.append(data.index)
        response = ProduceResponse.TopicProduceResponse
        answer = response.PartitionProduceResponse(
            index=data.index, base_offset=offset, error_code=self.error_code
        )
        return ProduceResponse(responses=[response(name=topic.name, partition_responses=[answer])])

    def fetch(self, request: FetchRequest, ctx: RequestContext) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        log = self.logs[wanted.partition]
        first = next(
            (n for n, one in enumerate(log) if parse_batch(one).next_offset > wanted.fetch_offset),
            len(log),
        )
        records = b"".join(log[first : first + 20])[: wanted.partition_max_bytes]
        response = FetchResponse.FetchableTopicResponse
        return FetchResponse(
            responses=[
                response(
                    topic=topic.topic,
                    partitions=[
                        response.PartitionData(
                            partition_index=wanted.partition,
                            error_code=self.error_code,
                            records=records,
                        )
                    ],
                )
            ]
        )


LOAD = Load(
    topic="load",
    connections=3,
    depth=2,
    seconds=0.4,
    warm_up_s=0.1,
    value_bytes=50,
    batch_records=4,
    acks=1,
    fetch_bytes=2000,
)


class Site:
    def __init__(self, load: Load = LOAD) -> None:
        self.world = SimulatedWorld()
        self.broker = SmallBroker(self.world)
        runtime = Runtime(
            clock=self.world.clock,
            random=FakeRandom(),
            disk=None,  # type: ignore[arg-type]
            threads=InlineThreads(),
            network=self.world.network,
        )
        self.client = AdminClient(
            self.world.network, self.world.clock, [("broker", self.broker.port)], 5.0
        )
        self.bench = Bench(runtime, self.client, load)

    def do(self, work: Any) -> Any:
        done = Deferred.fromCoroutine(work)
        self.world.until(lambda: bool(done.called))
        return result_of(done)

    def prepared(self, partitions: int = 2) -> "Site":
        self.do(self.bench.prepare(partitions, 1))
        return self


def test_the_topic_is_made_as_asked() -> None:
    site = Site().prepared(partitions=3)
    (topic,) = site.broker.created
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("load", 3, 1)


def test_a_topic_that_is_there_is_used() -> None:
    site = Site()
    site.broker.error_code = 36
    site.prepared()


def test_every_broker_knows_the_topic_before_it_is_used() -> None:
    """Whoever leads has been told by then: its own metadata comes after its partitions."""
    site = Site()
    late = SmallBroker(site.world)
    late.hears_late = 3
    site.broker.others.append(late)
    site.prepared()
    assert late.hears_late == 0


def test_a_broker_that_leads_nothing_need_not_answer() -> None:
    site = Site()
    gone = SmallBroker(site.world)
    gone.port = 1
    site.broker.others.append(gone)
    site.prepared()


def test_a_topic_that_cannot_be_made_is_an_error() -> None:
    site = Site()
    site.broker.error_code = 38
    done = Deferred.fromCoroutine(site.bench.prepare(1, 5))
    site.world.until(lambda: bool(done.called))
    assert "INVALID_REPLICATION_FACTOR" in str(failure_of(done, cli.CommandError))


def test_produce_keeps_its_depth_on_every_connection() -> None:
    site = Site().prepared()
    outcome = site.do(site.bench.run("produce"))
    # A round trip takes 2 ms here, so every request in flight makes 500 a second.
    expected = LOAD.connections * LOAD.depth * 500
    assert 0.8 * expected < outcome.requests_per_s <= expected * 1.05
    assert outcome.errors == 0
    assert outcome.records == outcome.requests * LOAD.batch_records
    assert 1900 <= outcome.p50_us <= outcome.p99_us <= outcome.max_us
    assert outcome.seconds == pytest.approx(0.4, abs=0.02)
    shares = [site.broker.appended.count(number) for number in (0, 1)]
    assert shares[0] == pytest.approx(2 * shares[1], rel=0.05), "three connections, two partitions"


def test_fetch_reads_what_is_there_again_and_again() -> None:
    site = Site().prepared()
    site.do(site.bench.run("produce"))
    outcome = site.do(site.bench.run("fetch"))
    assert outcome.errors == 0
    assert outcome.records > 0
    assert outcome.megabytes_per_s > 0


def test_round_trips_take_a_produce_and_a_fetch() -> None:
    site = Site().prepared()
    outcome = site.do(site.bench.run("round-trip"))
    assert outcome.requests > 50
    assert 2000 <= outcome.p50_us < 10_000


@pytest.mark.parametrize("workload", ["metadata", "versions"])
def test_small_requests(workload: str) -> None:
    site = Site().prepared()
    outcome = site.do(site.bench.run(workload))
    assert outcome.requests > 500
    assert outcome.errors == 0


def test_errors_are_counted_and_make_the_run_partly_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = Site().prepared()
    site.broker.error_code = 6
    code = site.do(report(site.bench, ["produce"], LOAD, "table", None))
    assert code == cli.PARTLY_DONE
    out = capsys.readouterr()
    assert "NOT_LEADER_OR_FOLLOWER" in out.err
    assert out.out.splitlines()[0].split()[:2] == ["WORKLOAD", "REQUESTS/S"]


def test_the_report_as_json_and_drawing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    site = Site().prepared()
    plot = tmp_path / "latency.svg"
    assert site.do(report(site.bench, ["produce", "fetch"], LOAD, "json", plot)) == cli.DONE
    printed = json.loads(capsys.readouterr().out)
    assert printed["load"]["connections"] == 3
    assert [one["workload"] for one in printed["outcomes"]] == ["produce", "fetch"]
    assert set(printed["outcomes"][0]) >= {"p50_us", "p99_us", "p99_9_us", "megabytes_per_s"}
    drawing = ElementTree.parse(plot).getroot()
    lines = [e for e in drawing if e.tag.endswith("polyline")]
    assert len(lines) == 2


def test_a_broker_that_goes_away_is_an_error_not_a_hang() -> None:
    site = Site().prepared()
    done = Deferred.fromCoroutine(site.bench.run("produce"))
    site.world.fake_clock.advance(0.3)
    for sock in list(site.world.internet.sockets.values()):
        sock.cut()
    site.world.until(lambda: bool(done.called))
    assert result_of(done).errors == LOAD.connections


def test_percentiles() -> None:
    assert percentile([], 50.0) == 0.0
    values = [float(number) for number in range(1, 1001)]
    shares = [percentile(values, share) for share in (50.0, 90.0, 99.0, 99.9, 100.0)]
    assert shares == [500.0, 900.0, 990.0, 999.0, 1000.0]
    assert percentile([7.0], 99.9) == 7.0


def test_only_the_window_counts() -> None:
    world = SimulatedWorld()
    measure = Measure(world.clock)
    measure.count(1.0, 10, 1)
    measure.start()
    measure.count(2.0, 10, 1)
    world.fake_clock.advance(2.0)
    measure.stop()
    measure.count(3.0, 10, 1)
    outcome = measure.outcome("x")
    assert (outcome.requests, outcome.records, outcome.max_us) == (1, 1, 2e6)
    assert outcome.requests_per_s == pytest.approx(0.5)


def batches(*sizes: tuple[int, int]) -> bytes:
    out, offset = b"", 100
    for count, size in sizes:
        records = [Record(None, b"x" * size, 1) for _ in range(count)]
        out += bytes(encode_batch(records, base_offset=offset))
        offset += count
    return out


def test_next_offset_walks_any_batches() -> None:
    assert next_offset(b"") == (-1, 0)
    assert next_offset(batches((3, 10))) == (103, 3)
    assert next_offset(batches((3, 10))[:-1]) == (-1, 0)
    assert next_offset(batches(*[(2, 10)] * 50)) == (200, 100)
    assert next_offset(batches(*[(2, 10)] * 50)[:-1]) == (198, 98)
    assert next_offset(batches((2, 10), (1, 500), (7, 1)) + b"\0" * 40) == (110, 10)
    # The same size but another count: the short cut must not be taken for it.
    assert next_offset(batches((1, 59), (2, 24), (1, 59), (2, 24))) == (106, 6)


def test_a_drawing_of_nothing_is_still_a_drawing() -> None:
    assert ElementTree.fromstring(latency_plot({})).tag.endswith("svg")
    assert "&lt;x&gt;" in latency_plot({"<x>": [1.0, 20.0, 3e6]})


@pytest.mark.parametrize(
    "flags",
    [
        ["--workload", "nonsense"],
        ["--workload", ","],
        ["--connections", "0"],
        ["--seconds", "0"],
    ],
)
def test_wrong_flags_are_named(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--bootstrap-server", "x:1", *flags]) == cli.USAGE
    assert flags[0] in capsys.readouterr().err
