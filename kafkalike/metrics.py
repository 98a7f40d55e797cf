"""Counters, gauges and histograms of one node, named after Kafka's own metrics.

A metric is identified as in Kafka's JMX tree: domain (`kafka.server`), type (`ReplicaManager`),
name (`LeaderCount`), tags.  There is no registry at module level: each node makes its own and hands
it to its parts.  Asking twice for the same metric gives the same object, so parts may share one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

WINDOW_SAMPLES = 1024
"""Quantiles cover this many newest samples of a histogram."""


class MetricName(NamedTuple):
    """`kafka.server:type=ReplicaManager,name=LeaderCount,tag=value`; tags keep their order."""

    domain: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        return f"{self.domain}:type={self.type},name={self.name}{tags}"


class Counter:
    """Something that only grows.  Hot paths may write `counter.count += n` themselves."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def mark(self, count: int = 1) -> None:
        self.count += count


class Gauge:
    """A value asked for when somebody looks."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read


class Histogram:
    """Count and sum of all samples, quantiles of the newest `WINDOW_SAMPLES`."""

    __slots__ = ("_window", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._window: deque[float] = deque(maxlen=WINDOW_SAMPLES)

    def update(self, value: float) -> None:
        self.count += 1
        self.total += value
        self._window.append(value)

    def quantiles(self, *wanted: float) -> list[float]:
        """The smallest samples that are not below the given shares; zeros without samples."""
        ordered = sorted(self._window)
        if not ordered:
            return [0.0] * len(wanted)
        last = len(ordered) - 1
        return [ordered[min(last, int(share * len(ordered)))] for share in wanted]


Metric: TypeAlias = Counter | Gauge | Histogram


class Metrics:
    """The metrics of one node."""

    def __init__(self) -> None:
        self._metrics: dict[MetricName, Metric] = {}

    def counter(self, domain: str, type_: str, name: str, **tags: str) -> Counter:
        """A meter of Kafka (`...PerSec`): here its count, rates are the reader's business."""
        found = self._metrics.setdefault(_name(domain, type_, name, tags), Counter())
        if not isinstance(found, Counter):
            raise TypeError(f"metric {name} of {type_} is already a {type(found).__name__}")
        return found

    def histogram(self, domain: str, type_: str, name: str, **tags: str) -> Histogram:
        """Samples in the unit that the name ends with (`TotalTimeMs`)."""
        found = self._metrics.setdefault(_name(domain, type_, name, tags), Histogram())
        if not isinstance(found, Histogram):
            raise TypeError(f"metric {name} of {type_} is already a {type(found).__name__}")
        return found

    def gauge(
        self, domain: str, type_: str, name: str, read: Callable[[], float], **tags: str
    ) -> Gauge:
        """Register or replace a gauge: `read` must be quick and must not raise."""
        gauge = Gauge(read)
        self._metrics[_name(domain, type_, name, tags)] = gauge
        return gauge

    def remove(self, domain: str, type_: str, name: str, **tags: str) -> None:
        """Forget a metric, for example with its topic; harmless when there is none."""
        self._metrics.pop(_name(domain, type_, name, tags), None)

    def value(self, domain: str, type_: str, name: str, **tags: str) -> float:
        """Count of a counter or histogram, value of a gauge.  KeyError when there is none."""
        metric = self._metrics[_name(domain, type_, name, tags)]
        return metric.read() if isinstance(metric, Gauge) else metric.count

    def __iter__(self) -> Iterator[tuple[MetricName, Metric]]:
        return iter(sorted(self._metrics.items(), key=lambda item: item[0]))

    def __len__(self) -> int:
        return len(self._metrics)


def _name(domain: str, type_: str, name: str, tags: dict[str, str]) -> MetricName:
    return MetricName(domain, type_, name, tuple(tags.items()))
