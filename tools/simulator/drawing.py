"""The general scenario: what is drawn from a seed."""

from typing import Final

from .faults import FAULTS
from .process import SimRandom
from .scenario import ClusterSpec, Fault, Scenario, TopicSpec
from .workloads import draw_workloads

MAX_FAULTS: Final = 6


def draw_scenario(random: SimRandom) -> Scenario:
    """Mostly three brokers, a few small topics, some workloads, none to six faults."""
    brokers = random.choice((3, 3, 3, 3, 4))
    topics = tuple(_draw_topic(random, number, brokers) for number in range(random.randint(1, 2)))
    duration_ms = random.randrange(7_000, 15_000)
    return Scenario(
        cluster=ClusterSpec(brokers, _draw_properties(random)),
        topics=topics,
        workloads=draw_workloads(random, topics),
        faults=draw_faults(random, brokers, duration_ms),
        duration_ms=duration_ms,
    )


def _draw_properties(random: SimRandom) -> dict[str, str]:
    properties: dict[str, str] = {}
    if random.random() < 0.3:
        properties["replica.lag.time.max.ms"] = random.choice(("1000", "2000"))
    if random.random() < 0.2:
        properties["num.replica.fetchers"] = "2"
    if random.random() < 0.2:
        properties["zookeeper.session.timeout.ms"] = "2000"
    if random.random() < 0.2:
        properties["replica.high.watermark.checkpoint.interval.ms"] = "500"
    if random.random() < 0.2:
        properties["log.segment.bytes"] = "4096"
    if random.random() < 0.25:
        properties["log.dirs"] = "/data,/more"
    return properties


def _draw_topic(random: SimRandom, number: int, brokers: int) -> TopicSpec:
    configs: dict[str, str] = {}
    if random.random() < 0.25:
        configs["segment.bytes"] = random.choice(("1024", "4096"))
    if random.random() < 0.15:
        configs["flush.messages"] = "1"
    if random.random() < 0.15:
        configs["message.timestamp.type"] = "LogAppendTime"
    if random.random() < 0.2:
        configs["min.insync.replicas"] = "1"
    replicas = random.choice((3, 3, 3, 2)) if brokers == 3 else random.choice((3, 3, 4))
    return TopicSpec(f"topic-{number}", random.randint(1, 3), replicas, configs)


def draw_faults(random: SimRandom, brokers: int, duration_ms: int) -> tuple[Fault, ...]:
    """None in one scenario of ten; otherwise up to `MAX_FAULTS`, in the order of their time."""
    count = 0 if random.random() < 0.1 else random.randint(1, MAX_FAULTS)
    names = list(FAULTS)
    weights = [FAULTS[name].weight for name in names]
    faults = [
        _draw_fault(random, name, brokers, duration_ms)
        for name in random.choices(names, weights, k=count)
    ]
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _draw_fault(random: SimRandom, name: str, brokers: int, duration_ms: int) -> Fault:
    kind = FAULTS[name]
    target = random.choice(kind.targets)
    if target in (">", "|"):
        source, other = random.sample(range(brokers), 2)
        target = f"broker-{source}{target}broker-{other}"
    elif target == "any":
        target = f"broker-{random.randrange(brokers)}"
    low, high = kind.lasts_ms
    # Short ones are as likely as long ones: what matters is often a matter of milliseconds.
    lasts_ms = int(low * (high / low) ** random.random()) if low else 0
    return Fault(
        at_ms=random.randrange(duration_ms),
        kind=name,
        target=target,
        duration_ms=lasts_ms,
        args=dict(kind.draw(random)),
    )
