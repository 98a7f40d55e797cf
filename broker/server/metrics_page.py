"""The node's metrics as a page of text over HTTP, in the form that Prometheus reads.

Names follow the usual rules for Kafka's JMX tree (reference: metrics 9):
`kafka_<domain>_<type>_<name>` in lower case, meters as counters that end in `_total`, times as
summaries with a `quantile` label.

The server understands `GET /metrics` (and `HEAD`) and nothing else, answers once and closes.
"""

import logging
from collections.abc import Iterable
from typing import Final

from kafkalike.metrics import Counter, Gauge, Histogram, Metric, MetricName, Metrics
from kafkalike.runtime.ports import ListeningPort, Network, Transport
from kafkalike.runtime.tasks import TimerWheel, WheelTimer

MAX_REQUEST_BYTES: Final = 8 << 10
MAX_CONNECTIONS: Final = 20
PATIENCE_S: Final = 10.0
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}


def render(metrics: Metrics) -> str:
    """All metrics as text; metrics of one name stand together under one `# TYPE` line."""
    families: dict[tuple[str, str], list[str]] = {}
    for name, metric in metrics:
        base, kind = _family(name, metric)
        lines = families.setdefault((base, kind), [])
        lines.extend(_samples(base, name.tags, metric))
    text: list[str] = []
    for (base, kind), lines in families.items():
        text.append(f"# TYPE {base} {kind}")
        text.extend(lines)
    text.append("")
    return "\n".join(text)


def _family(name: MetricName, metric: Metric) -> tuple[str, str]:
    own = name.name.removesuffix("PerSec") if isinstance(metric, Counter) else name.name
    base = "_".join((*name.domain.split("."), name.type, own)).replace("-", "_").lower()
    if isinstance(metric, Counter):
        return base.removesuffix("_total") + "_total", "counter"
    return base, "gauge" if isinstance(metric, Gauge) else "summary"


def _samples(base: str, tags: tuple[tuple[str, str], ...], metric: Metric) -> Iterable[str]:
    labels = [f'{_label(key)}="{_escaped(value)}"' for key, value in tags]
    if isinstance(metric, Counter):
        yield f"{base}{_braced(labels)} {metric.count}"
    elif isinstance(metric, Gauge):
        yield f"{base}{_braced(labels)} {metric.read():g}"
    elif isinstance(metric, Histogram):
        for share, value in zip(QUANTILES, metric.quantiles(*QUANTILES), strict=True):
            quantile = f'quantile="{share:g}"'
            yield f"{base}{_braced([*labels, quantile])} {value:g}"
        yield f"{base}_sum{_braced(labels)} {metric.total:g}"
        yield f"{base}_count{_braced(labels)} {metric.count}"


def _label(key: str) -> str:
    return key.replace("-", "_").replace(".", "_")


def _braced(labels: list[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsPage:
    """Serves the page on an address of its own."""

    def __init__(
        self, network: Network, wheel: TimerWheel, metrics: Metrics, logger: logging.Logger
    ) -> None:
        self._network = network
        self._wheel = wheel
        self._metrics = metrics
        self._logger = logger
        self._visits: dict[_Visit, None] = {}
        self._port: ListeningPort | None = None

    def start(self, host: str, port: int) -> int:
        """Listen; returns the port bound (for port 0).  Raises OSError."""
        self._port = self._network.listen(
            host, port, self._accept, max_frame_bytes=MAX_REQUEST_BYTES, raw=True
        )
        self._logger.info("metrics page host=%s port=%d", host or "*", self._port.port)
        return self._port.port

    def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._port is not None:
            self._port.stop()
            self._port = None
        for visit in list(self._visits):
            visit.transport.abort()

    def _accept(self, host: str) -> "_Visit | None":
        if len(self._visits) >= MAX_CONNECTIONS:
            return None
        visit = _Visit(self)
        self._visits[visit] = None
        return visit

    def left(self, visit: "_Visit") -> None:
        del self._visits[visit]

    def late_call(self, visit: "_Visit") -> WheelTimer:
        return self._wheel.call_later(PATIENCE_S, visit.transport.abort)

    def page(self) -> bytes:
        return render(self._metrics).encode()


class _Visit:
    """One HTTP connection: one request, one answer."""

    transport: Transport

    def __init__(self, site: MetricsPage) -> None:
        self._site = site
        self._input = b""
        self._late: WheelTimer
        self._answered = False

    def connected(self, transport: Transport) -> None:
        self.transport = transport
        self._late = self._site.late_call(self)

    def frame_received(self, frame: memoryview) -> None:
        self._input += bytes(frame)
        head, found, _ = self._input.partition(b"\r\n\r\n")
        if len(self._input) > MAX_REQUEST_BYTES and not found:
            self._answer(431, b"")
        elif found:
            self._answer_request(head.split(b"\r\n", 1)[0].decode("latin-1"))

    def _answer_request(self, line: str) -> None:
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._answer(400, b"")
        elif words[0] not in ("GET", "HEAD"):
            self._answer(405, b"")
        elif words[1].partition("?")[0] not in ("/metrics", "/"):
            self._answer(404, b"")
        else:
            self._answer(200, self._site.page(), words[0] == "HEAD")

    def _answer(self, status: int, page: bytes, head_only: bool = False) -> None:
        body = page or f"{_REASONS[status]}\n".encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write((head.encode() + (b"" if head_only else body),))
        self.transport.close()

    def disconnected(self, reason: str) -> None:
        self._late.cancel()
        self._site.left(self)
