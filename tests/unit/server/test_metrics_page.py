"""The metrics page: names, forms, and the little HTTP around it."""

import logging
from collections.abc import Iterator

import pytest

from kafkalike.broker.server.metrics_page import MetricsPage, render
from kafkalike.metrics import Metrics
from kafkalike.runtime.reactor import SlimReactor
from kafkalike.runtime.tasks import TimerWheel
from tests.worlds import RealWorld, SimulatedWorld, World

LOGGER = logging.getLogger("kafkalike.test")


def test_every_kind_has_its_form_and_kafkas_names() -> None:
    metrics = Metrics()
    metrics.gauge("kafka.server", "ReplicaManager", "UnderReplicatedPartitions", lambda: 3)
    metrics.counter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic='a"b\\').mark(7)
    metrics.counter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec").mark(9)
    metrics.counter(
        "kafka.server", "socket-server-metrics", "connection-creation-total", listener="X"
    ).mark()
    times = metrics.histogram("kafka.network", "RequestMetrics", "TotalTimeMs", request="Fetch")
    for value in range(100):
        times.update(float(value))
    assert render(metrics).splitlines() == [
        "# TYPE kafka_network_requestmetrics_totaltimems summary",
        *(
            f'kafka_network_requestmetrics_totaltimems{{request="Fetch",quantile="{q}"}} {v}'
            for q, v in [("0.5", 50), ("0.75", 75), ("0.95", 95), ("0.98", 98), ("0.99", 99)]
        ),
        'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.999"} 99',
        'kafka_network_requestmetrics_totaltimems_sum{request="Fetch"} 4950',
        'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 100',
        "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter",
        "kafka_server_brokertopicmetrics_bytesin_total 9",
        'kafka_server_brokertopicmetrics_bytesin_total{topic="a\\"b\\\\"} 7',
        "# TYPE kafka_server_replicamanager_underreplicatedpartitions gauge",
        "kafka_server_replicamanager_underreplicatedpartitions 3",
        "# TYPE kafka_server_socket_server_metrics_connection_creation_total counter",
        'kafka_server_socket_server_metrics_connection_creation_total{listener="X"} 1',
    ]


def test_one_name_has_one_kind() -> None:
    metrics = Metrics()
    counter = metrics.counter("kafka.server", "T", "N", tag="1")
    assert metrics.counter("kafka.server", "T", "N", tag="1") is counter
    with pytest.raises(TypeError, match="already a Counter"):
        metrics.histogram("kafka.server", "T", "N", tag="1")
    metrics.remove("kafka.server", "T", "N", tag="1")
    metrics.remove("kafka.server", "T", "N", tag="1")
    assert len(metrics) == 0
    with pytest.raises(KeyError):
        metrics.value("kafka.server", "T", "N", tag="1")


def test_quantiles_cover_the_newest_samples() -> None:
    histogram = Metrics().histogram("d", "t", "n")
    assert histogram.quantiles(0.5) == [0.0]
    for _ in range(5000):
        histogram.update(1000.0)
    for value in range(1024):
        histogram.update(float(value))
    assert histogram.quantiles(0.0, 0.5, 1.0) == [0.0, 512.0, 1023.0]
    assert histogram.count == 6024


@pytest.fixture(params=["simulated", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = SimulatedWorld() if request.param == "simulated" else RealWorld(SlimReactor())
    yield made
    made.close()


@pytest.fixture
def port(world: World) -> Iterator[int]:
    metrics = Metrics()
    metrics.counter("kafka.server", "X", "HitsPerSec").mark(5)
    page = MetricsPage(world.network, TimerWheel(world.clock, LOGGER), metrics, LOGGER)
    yield page.start("", 0)
    page.stop()
    world.settle()


def ask(world: World, port: int, *pieces: bytes) -> tuple[bytes, bytes]:
    client = world.client(port)
    for piece in pieces:
        client.send(piece)
        world.settle()
    answer = client.read(1 << 20)
    client.close()
    world.settle()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def test_the_page_is_served(world: World, port: int) -> None:
    head, body = ask(world, port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert body.endswith(b"\nkafka_server_x_hits_total 5\n")


def test_a_request_may_come_in_pieces(world: World, port: int) -> None:
    head, _ = ask(world, port, b"GET /met", b"rics HTTP/1.1\r", b"\n\r", b"\n")
    assert head.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2000, b"431"),
    ],
)
def test_other_requests_are_refused(
    world: World, port: int, request_bytes: bytes, status: bytes
) -> None:
    head, _ = ask(world, port, request_bytes)
    assert head.split(b" ")[1] == status


def test_head_has_no_body(world: World, port: int) -> None:
    head, body = ask(world, port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b""


def test_a_silent_visitor_is_sent_away() -> None:
    world = SimulatedWorld()
    page = MetricsPage(world.network, TimerWheel(world.clock, LOGGER), Metrics(), LOGGER)
    port = page.start("", 0)
    client = world.client(port)
    world.fake_clock.advance(9.0)
    assert not client.sock.ended  # type: ignore[attr-defined]
    world.fake_clock.advance(1.5)
    assert client.at_end()
    page.stop()
