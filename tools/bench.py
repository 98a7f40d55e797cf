"""`kafkalike bench`: produce, fetch, round trips and small requests against any Kafka address.

With `--self` against a cluster of its own, which `kafkalike up` runs for the time.

Each workload keeps a fixed number of requests in flight on a fixed number of connections (a closed
loop) and measures every one of them after a warm-up.  Fetches read what was produced before, from
the start again when the end is reached.  The load generator is Python itself: below about 30 us a
request it is the generator that is measured, so compare runs of the same kind on the same machine.
"""

import argparse
import contextlib
import json
import os
import pathlib
import struct
import subprocess
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred

from kafkalike.errors import NONE, TopicAlreadyExists, error_name
from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.messages.metadata import MetadataRequest, MetadataResponse
from kafkalike.messages.produce import ProduceRequest, ProduceResponse
from kafkalike.messages.topics import CreateTopicsRequest
from kafkalike.net.client import BrokerClient
from kafkalike.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from kafkalike.records.batch import encode_batch
from kafkalike.records.record import Record
from kafkalike.runtime import tasks
from kafkalike.runtime.ports import Buffer, Clock, Network, Runtime, Transport

from . import cli
from .admin.client import AdminClient, add_connection_flags
from .bench_plot import latency_plot

CLIENT_ID: Final = "kafkalike-bench"
MAX_FRAME_BYTES: Final = 256 << 20
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
METADATA_VERSION: Final = 9
VERSIONS_VERSION: Final = 0
READY_TRIES: Final = 100
READY_PAUSE_S: Final = 0.1
FETCH_WAIT_MS: Final = 500
DRAIN_S: Final = 10.0
OWN_STOP_S: Final = 60.0
WORKLOADS: Final = ("produce", "fetch", "round-trip", "metadata", "versions")
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_PREFIX: Final = struct.Struct(">i")
_BATCH_START: Final = struct.Struct(">qi")
_BATCH_LAST_DELTA: Final = struct.Struct(">i")


@dataclass(slots=True, frozen=True)
class Load:
    """What is asked for: `depth` requests in flight on each of `connections`, for `seconds`."""

    topic: str
    connections: int
    depth: int
    seconds: float
    warm_up_s: float
    value_bytes: int
    batch_records: int
    acks: int
    fetch_bytes: int


@dataclass(slots=True, frozen=True)
class Outcome:
    """What a workload came to; latencies in microseconds."""

    workload: str
    requests: int
    records: int
    errors: int
    seconds: float
    requests_per_s: float
    records_per_s: float
    megabytes_per_s: float
    p50_us: float
    p90_us: float
    p99_us: float
    p99_9_us: float
    max_us: float


class Measure:
    """Latencies and amounts, counted only while the window is open."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._opened_s = 0.0
        self._closed_s = 0.0
        self.open = False
        self.latencies = array("d")
        self.bytes = 0
        self.records = 0
        self.errors: dict[str, int] = {}

    def start(self) -> None:
        self._opened_s = self._clock.monotonic()
        self.open = True

    def stop(self) -> None:
        self._closed_s = self._clock.monotonic()
        self.open = False

    def count(self, latency_s: float, size: int, records: int) -> None:
        if self.open:
            self.latencies.append(latency_s * 1e6)
            self.bytes += size
            self.records += records

    def fail(self, name: str) -> None:
        self.errors[name] = self.errors.get(name, 0) + 1

    def outcome(self, workload: str) -> Outcome:
        ordered = sorted(self.latencies)
        seconds = max(self._closed_s - self._opened_s, 1e-9)
        p50, p90, p99, p999 = (percentile(ordered, share) for share in PERCENTILES)
        return Outcome(
            workload=workload,
            requests=len(ordered),
            records=self.records,
            errors=sum(self.errors.values()),
            seconds=seconds,
            requests_per_s=len(ordered) / seconds,
            records_per_s=self.records / seconds,
            megabytes_per_s=self.bytes / seconds / 1e6,
            p50_us=p50,
            p90_us=p90,
            p99_us=p99,
            p99_9_us=p999,
            max_us=ordered[-1] if ordered else 0.0,
        )


def percentile(ordered: list[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed; 0 for none."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


class Lane:
    """One connection of the load: sends the next request as soon as an answer makes room.

    `make(correlation_id)` gives the parts of a request with its prefix; `check(frame)` looks at an
    answer and returns its size in bytes and records.
    """

    def __init__(
        self,
        clock: Clock,
        depth: int,
        make: Callable[[int], list[Buffer]],
        check: Callable[[memoryview], tuple[int, int]],
        measure: Measure,
    ) -> None:
        self._monotonic = clock.monotonic
        self._depth = depth
        self._make = make
        self._check = check
        self._measure = measure
        self._sent_s: deque[float] = deque()
        self._next_id = 0
        self._stopping = False
        self.ended: Deferred[str] = Deferred()
        self._transport: Transport

    def connected(self, transport: Transport) -> None:
        self._transport = transport
        for _ in range(self._depth):
            self._send()

    def _send(self) -> None:
        self._sent_s.append(self._monotonic())
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._transport.write(self._make(self._next_id))

    def frame_received(self, frame: memoryview) -> None:
        latency_s = self._monotonic() - self._sent_s.popleft()
        size, records = self._check(frame)
        self._measure.count(latency_s, size, records)
        if not self._stopping:
            self._send()
        elif not self._sent_s:
            self._transport.close()

    def disconnected(self, reason: str) -> None:
        if not self._stopping:
            self._measure.fail(f"connection lost: {reason}")
        self.ended.callback(reason)

    def stop(self) -> None:
        """Send no more; the connection closes with the last answer."""
        self._stopping = True
        if not self._sent_s:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _abort(lanes: list[Lane]) -> None:
    for lane in lanes:
        lane.abort()


def framed(request: Any, version: int) -> tuple[bytes, Callable[[int], list[Buffer]]]:
    """A request as bytes, and a function that gives it with a correlation id of its own."""
    header = encode_request_header(RequestHeader(request.api_key, version, 0, CLIENT_ID))
    body = header + request.encode(version)
    start, rest = _PREFIX.pack(len(body)) + body[:4], body[8:]

    def make(correlation_id: int) -> list[Buffer]:
        return [start + _PREFIX.pack(correlation_id) + rest]

    return body, make


def next_offset(records: Buffer) -> tuple[int, int]:
    """Offset after the last whole batch in fetched bytes, and how many offsets that spans.

    (-1, 0) when there is no whole batch.  Batches of one size, as this tool writes them, are not walked
    one by one.
    """
    position, first, last = 0, -1, -1
    if len(records) >= 27:
        first, length = _BATCH_START.unpack_from(records, 0)
        size = length + 12
        whole = len(records) // size if length > 15 else 0
        if whole > 1:
            base, last_length = _BATCH_START.unpack_from(records, (whole - 1) * size)
            (delta,) = _BATCH_LAST_DELTA.unpack_from(records, (whole - 1) * size + 23)
            if last_length == length and base - first == (whole - 1) * (delta + 1):
                return base + delta + 1, base + delta + 1 - first
        first = -1
    while len(records) - position >= 27:
        base, length = _BATCH_START.unpack_from(records, position)
        end = position + 12 + length
        if length <= 0 or end > len(records):
            break
        (delta,) = _BATCH_LAST_DELTA.unpack_from(records, position + 23)
        first = base if first < 0 else first
        last = base + delta
        position = end
    return (last + 1, last + 1 - first) if last >= 0 else (-1, 0)


class Bench:
    """Runs workloads against a cluster."""

    def __init__(self, runtime: Runtime, client: AdminClient, load: Load) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._network: Network = runtime.network
        self._client = client
        self._load = load
        self._leaders: list[tuple[str, int]] = []
        self._values: list[bytes] = []
        self.latencies: dict[str, list[float]] = {}
        self.errors: dict[str, dict[str, int]] = {}

    async def prepare(self, partitions: int, replication_factor: int) -> None:
        """Create the topic where it is missing and wait until it can be written."""
        creatable = CreateTopicsRequest.CreatableTopic(
            name=self._load.topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=30_000)
        response = await self._client.controller(
            request, lambda answer: [topic.error_code for topic in answer.topics]
        )
        code = response.topics[0].error_code
        if code not in (NONE, TopicAlreadyExists.code):
            message = response.topics[0].error_message or error_name(code)
            raise cli.CommandError(f"topic {self._load.topic} cannot be created: {message}")
        for _ in range(READY_TRIES):
            if await self._find_leaders():
                return
            await tasks.sleep(self._clock, READY_PAUSE_S)
        raise cli.CommandError(f"topic {self._load.topic} has partitions without leader")

    async def _find_leaders(self) -> bool:
        """Whether the topic can be used: every partition is led, and all brokers have heard of it.

        A broker is told to lead before it is told of the topic.  One that leads nothing need not
        answer.
        """
        metadata: MetadataResponse = await self._client.metadata([self._load.topic])
        brokers = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        (topic,) = metadata.topics
        partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
        if topic.error_code or not partitions:
            return False
        if any(p.error_code or p.leader_id not in brokers for p in partitions):
            return False
        leading = {partition.leader_id for partition in partitions}
        for broker_id in sorted(brokers, key=lambda one: one not in leading):
            if not await self._knows_topic(broker_id, must_answer=broker_id in leading):
                return False
        self._leaders = [brokers[partition.leader_id] for partition in partitions]
        return True

    async def _knows_topic(self, broker_id: int, *, must_answer: bool) -> bool:
        wanted = MetadataRequest.MetadataRequestTopic(name=self._load.topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        try:
            response: MetadataResponse = await self._client.broker(broker_id, request)
        except cli.CommandError:
            return not must_answer
        return not any(topic.error_code for topic in response.topics)

    async def run(self, workload: str) -> Outcome:
        """Run one workload.  Raises CommandError when the cluster does not take part."""
        measure = Measure(self._clock)
        if workload == "round-trip":
            await self._round_trips(measure)
        else:
            await self._lanes(workload, measure)
        self.latencies[workload] = sorted(measure.latencies)
        self.errors[workload] = measure.errors
        return measure.outcome(workload)

    async def _lanes(self, workload: str, measure: Measure) -> None:
        lanes = []
        for number in range(self._load.connections):
            partition = number % len(self._leaders)
            make, check = self._work(workload, partition, measure)
            lane = Lane(self._clock, self._load.depth, make, check, measure)
            host, port = self._leaders[partition]
            try:
                await self._network.connect(
                    host, port, lane, timeout_s=10.0, max_frame_bytes=MAX_FRAME_BYTES
                )
            except ConnectionError as error:
                raise cli.CommandError(str(error)) from error
            lanes.append(lane)
        await tasks.sleep(self._clock, self._load.warm_up_s)
        measure.start()
        await tasks.sleep(self._clock, self._load.seconds)
        measure.stop()
        for lane in lanes:
            lane.stop()
        give_up = self._clock.call_later(DRAIN_S, _abort, lanes)
        for lane in lanes:
            await lane.ended
        give_up.cancel()

    def _work(
        self, workload: str, partition: int, measure: Measure
    ) -> tuple[Callable[[int], list[Buffer]], Callable[[memoryview], tuple[int, int]]]:
        if workload == "produce":
            return self._produce(partition, measure)
        if workload == "fetch":
            return self._fetch(partition, measure)
        request: Any
        if workload == "metadata":
            topics = [MetadataRequest.MetadataRequestTopic(name=self._load.topic)]
            request, version = MetadataRequest(topics=topics), METADATA_VERSION
            response_class: Any = MetadataResponse
        else:
            request, version = ApiVersionsRequest(), VERSIONS_VERSION
            response_class = ApiVersionsResponse
        _, make = framed(request, version)

        def check(frame: memoryview) -> tuple[int, int]:
            _, position = decode_response_header(frame, response_class.api_key, version)
            response = response_class.decode(frame, version, position)
            code = getattr(response, "error_code", NONE)
            if code:
                measure.fail(error_name(code))
            return len(frame), 0

        return make, check

    def _batch(self) -> bytes:
        now_ms = self._clock.now_ms()
        chance = self._runtime.random
        records = [
            Record(None, chance.bytes(self._load.value_bytes), now_ms)
            for _ in range(self._load.batch_records)
        ]
        return bytes(encode_batch(records))

    def _produce_request(self, partition: int, batch: bytes) -> ProduceRequest:
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=partition, records=batch)
        return ProduceRequest(
            acks=self._load.acks,
            timeout_ms=30_000,
            topic_data=[data(name=self._load.topic, partition_data=[part])],
        )

    def _produce(
        self, partition: int, measure: Measure
    ) -> tuple[Callable[[int], list[Buffer]], Callable[[memoryview], tuple[int, int]]]:
        batch = self._batch()
        _, make = framed(self._produce_request(partition, batch), PRODUCE_VERSION)
        size, records = len(batch), self._load.batch_records

        def check(frame: memoryview) -> tuple[int, int]:
            _, position = decode_response_header(frame, ProduceResponse.api_key, PRODUCE_VERSION)
            response = ProduceResponse.decode(frame, PRODUCE_VERSION, position)
            code = response.responses[0].partition_responses[0].error_code
            if code:
                measure.fail(error_name(code))
                return 0, 0
            return size, records

        return make, check

    def _fetch_request(self, partition: int, offset: int, max_wait_ms: int) -> FetchRequest:
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=self._load.fetch_bytes,
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._load.fetch_bytes,
            topics=[topic(topic=self._load.topic, partitions=[part])],
        )

    def _fetch(
        self, partition: int, measure: Measure
    ) -> tuple[Callable[[int], list[Buffer]], Callable[[memoryview], tuple[int, int]]]:
        offset = 0

        def make(correlation_id: int) -> list[Buffer]:
            request = self._fetch_request(partition, offset, 0)
            return framed(request, FETCH_VERSION)[1](correlation_id)

        def check(frame: memoryview) -> tuple[int, int]:
            nonlocal offset
            _, position = decode_response_header(frame, FetchResponse.api_key, FETCH_VERSION)
            response = FetchResponse.decode(frame, FETCH_VERSION, position)
            code, records = _only_partition(response)
            if code:
                measure.fail(error_name(code))
                return 0, 0
            after, count = next_offset(records)
            offset = max(after, 0)  # at the end: from the start again
            return len(records), count

        return make, check

    async def _round_trips(self, measure: Measure) -> None:
        """One record at a time: from sending it to having read it back through a waiting fetch."""
        host, port = self._leaders[0]
        clients = [
            BrokerClient(self._network, self._clock, host, port, client_id=CLIENT_ID)
            for _ in range(2)
        ]
        try:
            for client in clients:
                await client.connect()
            await self._exchange(clients[0], clients[1], measure)
        finally:
            for client in clients:
                client.close()

    async def _exchange(
        self, producer: BrokerClient, consumer: BrokerClient, measure: Measure
    ) -> None:
        batch = self._batch()
        request = self._produce_request(0, batch)
        started_s = self._clock.monotonic()
        offset = -1
        while True:
            now_s = self._clock.monotonic() - started_s
            if not measure.open and now_s >= self._load.warm_up_s:
                measure.start()
            if now_s >= self._load.warm_up_s + self._load.seconds:
                measure.stop()
                return
            fetching = None
            if offset >= 0:
                waiting = self._fetch_request(0, offset, FETCH_WAIT_MS)
                fetching = consumer.send(waiting, version=FETCH_VERSION)
            sent_s = self._clock.monotonic()
            answer = await producer.send(request, version=PRODUCE_VERSION)
            written = answer.responses[0].partition_responses[0]
            if written.error_code:
                raise cli.CommandError(f"produce failed: {error_name(written.error_code)}")
            while fetching is not None:
                code, records = _only_partition(await fetching)
                if code:
                    raise cli.CommandError(f"fetch failed: {error_name(code)}")
                if next_offset(records)[0] > written.base_offset:
                    measure.count(self._clock.monotonic() - sent_s, len(batch), 1)
                    break
                waiting = self._fetch_request(0, written.base_offset, FETCH_WAIT_MS)
                fetching = consumer.send(waiting, version=FETCH_VERSION)
            offset = written.base_offset + self._load.batch_records


def _only_partition(response: FetchResponse) -> tuple[int, Any]:
    """Error code and records of a fetch of one partition."""
    if response.error_code:
        return response.error_code, b""
    partition = response.responses[0].partitions[0]
    return partition.error_code, partition.records or b""


# The command.


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure produce, fetch and round trips against any Kafka address",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_connection_flags(parser, required=False)
    parser.add_argument(
        "--self",
        dest="brokers",
        nargs="?",
        type=cli.whole(1, 100),
        const=1,
        metavar="BROKERS",
        help="measure a new cluster of so many brokers (default: 1), thrown away afterwards",
    )
    parser.add_argument("--topic", default="kafkalike-bench", help="default: kafkalike-bench")
    parser.add_argument(
        "--partitions", type=cli.whole(1), default=1, help="of a new topic (default: 1)"
    )
    parser.add_argument(
        "--replication-factor",
        type=cli.whole(1, 32767),
        default=1,
        help="of a new topic (default: 1)",
    )
    parser.add_argument(
        "--workload",
        default="produce,fetch,round-trip",
        metavar="NAME[,NAME]",
        help=f"of {', '.join(WORKLOADS)} (default: produce,fetch,round-trip)",
    )
    parser.add_argument("--connections", type=cli.whole(1), default=4, help="default: 4")
    parser.add_argument("--depth", type=cli.whole(1), default=1, help="requests in flight on each")
    parser.add_argument(
        "--seconds",
        type=cli.decimal(0.001, 1e6, "seconds"),
        default=5.0,
        help="of measuring (default: 5)",
    )
    parser.add_argument(
        "--warm-up",
        type=cli.decimal(0, 1e6, "seconds"),
        default=1.0,
        help="seconds before (default: 1)",
    )
    parser.add_argument(
        "--value-bytes", type=cli.whole(1), default=100, help="of a record (default: 100)"
    )
    parser.add_argument(
        "--batch-records", type=cli.whole(1), default=1, help="in a batch (default: 1)"
    )
    parser.add_argument(
        "--acks", type=cli.whole(-1, 1), default=1, choices=(1, -1), help="default: 1"
    )
    parser.add_argument(
        "--fetch-bytes", type=cli.whole(1), default=1 << 20, help="default: 1048576"
    )
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg", help="draw latencies")
    cli.add_output_flag(parser)


def run(args: argparse.Namespace) -> int:
    workloads = [name for name in args.workload.split(",") if name]
    unknown = [name for name in workloads if name not in WORKLOADS]
    if unknown or not workloads:
        raise cli.UsageError(f"--workload: expected some of {', '.join(WORKLOADS)}")
    load = Load(
        topic=args.topic,
        connections=args.connections,
        depth=args.depth,
        seconds=args.seconds,
        warm_up_s=args.warm_up,
        value_bytes=args.value_bytes,
        batch_records=args.batch_records,
        acks=args.acks,
        fetch_bytes=args.fetch_bytes,
    )
    if (args.brokers is None) == (args.bootstrap_server is None):
        raise cli.UsageError("expected either --bootstrap-server or --self")
    if args.brokers is None:
        return _measure(args, workloads, load, args.bootstrap_server)
    with own_cluster(args.brokers) as bootstrap:
        return _measure(args, workloads, load, bootstrap)


def _measure(args: argparse.Namespace, workloads: list[str], load: Load, servers: str) -> int:
    bootstrap = cli.parse_addresses("--bootstrap-server", servers)
    from .loop import run_main

    async def main(runtime: Runtime) -> int:
        client = AdminClient(runtime.network, runtime.clock, bootstrap, args.timeout_ms / 1000)
        try:
            bench = Bench(runtime, client, load)
            await bench.prepare(args.partitions, args.replication_factor)
            return await report(bench, workloads, load, args.output, args.plot)
        finally:
            client.close()

    return run_main(main)


@contextlib.contextmanager
def own_cluster(brokers: int) -> Iterator[str]:
    """Bootstrap servers of a new cluster in processes of its own.  Raises CommandError."""
    command = [sys.executable, "-m", "kafkalike.tools.main", "up", "--output", "json"]
    command += ["--port", "0", "--brokers", str(brokers), "--until-exit-of", str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # comes, or the end: `up` limits its own start
            if not line:
                raise cli.CommandError("the cluster to measure did not start")
            yield str(json.loads(line)["bootstrap_servers"])
        finally:
            process.terminate()
            try:
                process.wait(OWN_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def report(
    bench: Bench, workloads: list[str], load: Load, output: str, plot: pathlib.Path | None
) -> int:
    """Run the workloads in order, print what came out; PARTLY_DONE when there were errors."""
    outcomes = [await bench.run(workload) for workload in workloads]
    if output == "json":
        cli.print_json({"load": asdict(load), "outcomes": [asdict(one) for one in outcomes]})
    else:
        cli.print_table(
            ("WORKLOAD", "REQUESTS/S", "RECORDS/S", "MB/S", "P50", "P90", "P99", "P99.9", "MAX"),
            [
                (
                    one.workload,
                    f"{one.requests_per_s:.0f}",
                    f"{one.records_per_s:.0f}",
                    f"{one.megabytes_per_s:.1f}",
                    *(
                        f"{value:.0f} us"
                        for value in (
                            one.p50_us,
                            one.p90_us,
                            one.p99_us,
                            one.p99_9_us,
                            one.max_us,
                        )
                    ),
                )
                for one in outcomes
            ],
        )
    for workload, errors in bench.errors.items():
        for name, count in sorted(errors.items()):
            sys.stderr.write(f"{workload}: {count} times {name}\n")
    if plot is not None:
        plot.write_text(latency_plot(bench.latencies), encoding="utf-8")
    return cli.PARTLY_DONE if any(bench.errors.values()) else cli.DONE
