"""Directed scenarios: one kind of trouble at a time, much denser than in the general scenario.

`Scenario.generate(seed, family)` draws from `FAMILIES[family]`.  They are for hunting: a bug that needs
three things at once is found in tens of seeds where the general scenario needs thousands.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from .process import SimRandom
from .scenario import ClusterSpec, Fault, Scenario, TopicSpec, WorkloadSpec

BROKERS: Final = 3
QUICK_LAG: Final = {"replica.lag.time.max.ms": "1500"}
"""Followers leave the ISR soon."""
QUICK_SESSIONS: Final = {"zookeeper.session.timeout.ms": "2000"}


def draw_family(name: str, random: SimRandom) -> Scenario:
    """A scenario of one family.  KeyError when there is no such family."""
    drawn = FAMILIES[name](random)
    in_time = tuple(fault for fault in drawn.faults if fault.at_ms < drawn.duration_ms)
    return drawn.with_faults(in_time)


# -- pieces ----------------------------------------------------------------------------------------


def _fault(
    random: SimRandom,
    kind: str,
    target: str,
    until_ms: int,
    lasts_ms: tuple[int, int] = (0, 0),
    **args: Any,
) -> Fault:
    """At a drawn moment; short ones are as likely as long ones."""
    low, high = lasts_ms
    duration_ms = int(low * (high / low) ** random.random()) if low else 0
    return Fault(random.randrange(500, until_ms), kind, target, duration_ms, dict(args))


def _some(
    random: SimRandom, count: int, *makers: Callable[[], Fault | tuple[Fault, ...]]
) -> tuple[Fault, ...]:
    """`count` troubles, each by one of the makers; all faults in the order of their time."""
    faults: list[Fault] = []
    for _ in range(count):
        made = random.choice(makers)()
        faults += made if isinstance(made, tuple) else (made,)
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _tail(random: SimRandom, until_ms: int) -> tuple[Fault, ...]:
    """A leader that only clients still reach, and that is then deposed: it has a tail of its own."""
    at_ms = random.randrange(500, until_ms)
    lasts_ms = random.randrange(400, 4500)
    end = random.choice(("crash", "zk_expire", "zk_expire", "freeze"))
    away_ms = {"crash": 1000, "zk_expire": 0, "freeze": 2500}[end]
    return (
        Fault(at_ms, "cut", "leader", lasts_ms),
        Fault(at_ms + lasts_ms * 2 // 3, end, "leader", away_ms),
    )


def _straggler(random: SimRandom, until_ms: int) -> tuple[Fault, ...]:
    """A follower comes back far behind, catches up slowly, and the leader falls meanwhile."""
    at_ms = random.randrange(500, until_ms)
    away_ms = random.randrange(2000, 3500)
    follower = random.randrange(BROKERS)
    slow = tuple(
        Fault(
            at_ms + away_ms - 50,
            "slow_link",
            f"broker-{follower}|broker-{other}",
            4000,
            {"delay_s": 0.1},
        )
        for other in range(BROKERS)
        if other != follower
    )
    fall_ms = at_ms + away_ms + random.randrange(150, 2000)
    end = random.choice(("crash", "zk_expire"))
    return (
        Fault(at_ms, "cut", f"broker-{follower}", away_ms),
        *slow,
        Fault(fall_ms, end, "leader", 1500),
    )


def _lost_isr_answer(random: SimRandom, until_ms: int) -> tuple[Fault, ...]:
    """A follower falls behind; the controller takes the change of the ISR and cannot say so."""
    at_ms = random.randrange(500, until_ms)
    muted_ms = at_ms + random.randrange(1200, 2300)
    end = random.choice(("reset", "crash", "depose"))
    return (
        Fault(at_ms, "cut", _broker(random), 4000),
        Fault(muted_ms, "mute", "controller", 1200),
        Fault(muted_ms + 1000, end, "" if end == "depose" else "controller", 1000),
    )


def _reset_and_stop(random: SimRandom, until_ms: int) -> tuple[Fault, ...]:
    """Answers on their way are lost, and the leader that would know is started anew."""
    at_ms = random.randrange(500, until_ms)
    end = random.choice(("stop", "crash"))
    return (
        Fault(at_ms, "reset", "leader"),
        Fault(at_ms + 1, end, "leader", random.randrange(50, 500)),
    )


def _depose(random: SimRandom, until_ms: int) -> tuple[Fault, ...]:
    """Another controller is elected while the old one hears nothing, its session being alive."""
    at_ms = random.randrange(500, until_ms)
    lasts_ms = random.randrange(100, 2500)
    return (
        Fault(at_ms, "zk_isolate", "controller", lasts_ms),
        Fault(at_ms + random.randrange(lasts_ms), "depose", ""),
    )


def _double(random: SimRandom, until_ms: int) -> tuple[Fault, ...]:
    """Two leaders fall, one shortly after the other, while replication is slow."""
    at_ms = random.randrange(500, until_ms)
    first = random.choice(("zk_expire", "zk_expire", "stop"))
    between_ms = int(5 * 100 ** random.random())
    return (
        Fault(max(0, at_ms - 300), "slow_link", _pair(random, "|"), 3000, {"delay_s": 0.15}),
        Fault(at_ms, first, "leader", 500 if first == "stop" else 0),
        Fault(at_ms + between_ms, random.choice(("crash", "zk_expire")), "leader", 1500),
    )


def _slowly(until_ms: int, delay_s: float) -> tuple[Fault, ...]:
    """All brokers are far from each other: what they know of each other is that old."""
    return tuple(
        Fault(100, "slow_link", f"broker-{one}|broker-{other}", until_ms, {"delay_s": delay_s})
        for one in range(BROKERS)
        for other in range(one)
    )


def _in_order(*faults: Fault) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _broker(random: SimRandom) -> str:
    return f"broker-{random.randrange(BROKERS)}"


def _pair(random: SimRandom, mark: str) -> str:
    one, other = random.sample(range(BROKERS), 2)
    return f"broker-{one}{mark}broker-{other}"


def _plain(**options: Any) -> WorkloadSpec:
    defaults = {"producers": 2, "acks": [-1, 1], "consumers": 1, "interval_ms": 60}
    return WorkloadSpec("plain", "plain", {**defaults, **options})


def _idempotent(**options: Any) -> WorkloadSpec:
    defaults = {"producers": 2, "consumers": 1, "interval_ms": 60, "window": 5}
    return WorkloadSpec("idempotent", "idempotent", {**defaults, **options})


def _topic(partitions: int = 1, replicas: int = 3, **configs: str) -> TopicSpec:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return TopicSpec("topic-0", partitions, replicas, named)


# -- families ----------------------------------------------------------------------------------------


def _failover(random: SimRandom) -> Scenario:
    """Leaders change again and again while acks=1 writes leave tails behind."""
    duration_ms = 9000
    until_ms = duration_ms - 1000
    faults = _some(
        random,
        random.randint(3, 6),
        lambda: _tail(random, until_ms),
        lambda: _tail(random, until_ms),
        lambda: _double(random, until_ms),
        lambda: _double(random, until_ms),
        lambda: _straggler(random, until_ms - 2000),
        lambda: _straggler(random, until_ms - 2000),
        lambda: _fault(random, "freeze", "leader", until_ms, (2100, 4000)),
        lambda: _fault(random, "freeze", _broker(random), until_ms, (300, 3000)),
        lambda: _fault(random, "cut", _pair(random, "|"), until_ms, (1600, 3000)),
        lambda: _fault(random, "cut", _pair(random, ">"), until_ms, (300, 3000)),
        lambda: _fault(random, "zk_isolate", "leader", until_ms, (1500, 3000)),
    )
    slow_fetches = random.choice(
        ({}, {"replica.fetch.max.bytes": "250", "replica.fetch.response.max.bytes": "250"})
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS | slow_fetches),
        (_topic(1, min_insync_replicas=random.choice(("1", "2"))),),
        (_plain(interval_ms=60), _idempotent(producers=1, consumers=0)),
        faults,
        duration_ms,
    )


def _min_isr(random: SimRandom) -> Scenario:
    """Followers are away for long, one after the other, while acks=1 writes go on."""
    duration_ms = 20_000
    gone = random.sample(range(BROKERS), 2)
    at_ms = random.randrange(500, 2500)
    kind = random.choice(("freeze", "crash", "cut"))
    faults = tuple(
        Fault(at_ms + random.randrange(400), kind, f"broker-{broker}", 15_000) for broker in gone
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (_topic(3, min_insync_replicas="2"),),
        (_plain(acks=[1], consumers=2, interval_ms=150),),
        tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        duration_ms,
    )


def _isr(random: SimRandom) -> Scenario:
    """Followers fall behind and return, and the controller's answers get lost."""
    duration_ms = 10_000
    faults = _some(
        random,
        random.randint(4, 8),
        lambda: _straggler(random, duration_ms - 2000),
        lambda: _straggler(random, duration_ms - 2000),
        lambda: _lost_isr_answer(random, duration_ms - 2000),
        lambda: _lost_isr_answer(random, duration_ms - 2000),
        lambda: _fault(random, "cut", _pair(random, "|"), duration_ms, (1600, 4000)),
        lambda: _fault(random, "cut", _pair(random, ">"), duration_ms, (1600, 4000)),
        lambda: _fault(random, "freeze", _broker(random), duration_ms, (1000, 2500)),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (50, 2500)),
        lambda: _fault(random, "stop", _broker(random), duration_ms, (50, 2500)),
        lambda: _fault(random, "reset", "controller", duration_ms, chance=0.7),
        lambda: _fault(random, "cut", "controller", duration_ms, (200, 3000)),
        lambda: _fault(
            random, "zk_lose_answer", "controller", duration_ms, skip=random.randrange(6)
        ),
        lambda: _fault(
            random, "slow_link", _pair(random, ">"), duration_ms, (1000, 5000), delay_s=0.5
        ),
    )
    return Scenario(
        ClusterSpec(
            BROKERS,
            QUICK_LAG
            | QUICK_SESSIONS
            | {"replica.fetch.max.bytes": "250", "replica.fetch.response.max.bytes": "250"},
        ),
        (_topic(random.randint(1, 2), min_insync_replicas=random.choice(("1", "2"))),),
        (_plain(acks=[-1], interval_ms=40, producers=3),),
        faults,
        duration_ms,
    )


def _restart(random: SimRandom) -> Scenario:
    """Brokers are back before anybody has noticed that they were gone, some with records lost."""
    duration_ms = 15_000
    faults = _some(
        random,
        random.randint(3, 8),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (5, 400)),
        lambda: _fault(random, "crash", "leader", duration_ms, (5, 400)),
        lambda: _fault(random, "crash", "controller", duration_ms, (5, 400)),
        lambda: _fault(random, "stop", _broker(random), duration_ms, (5, 400)),
        lambda: _fault(random, "power", _broker(random), duration_ms, (5, 1500)),
        lambda: _fault(random, "cut", _pair(random, ">"), duration_ms, (300, 3000)),
        lambda: _fault(
            random, "slow_link", _pair(random, ">"), duration_ms, (1000, 5000), delay_s=0.5
        ),
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG),
        (_topic(2, min_insync_replicas=random.choice(("1", "2"))),),
        (_plain(acks=[-1]), _idempotent(producers=1, consumers=0)),
        faults,
        duration_ms,
    )


def _controller(random: SimRandom) -> Scenario:
    """The controller stands still or is cut off from ZooKeeper while much has to be written."""
    duration_ms = 10_000
    faults = _some(
        random,
        random.randint(3, 8),
        lambda: _depose(random, duration_ms),
        lambda: _depose(random, duration_ms),
        lambda: _depose(random, duration_ms),
        lambda: _fault(random, "freeze", "controller", duration_ms, (2100, 6000)),
        lambda: _fault(random, "zk_isolate", "controller", duration_ms, (1500, 5000)),
        lambda: _fault(random, "zk_expire", "controller", duration_ms),
        lambda: _fault(random, "zk_drop", "controller", duration_ms, (10, 1500), applied=True),
        lambda: _fault(
            random, "zk_lose_answer", "controller", duration_ms, skip=random.randrange(9)
        ),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (50, 3000)),
        lambda: _fault(random, "cut", _pair(random, "|"), duration_ms, (1600, 3000)),
    )
    churn = WorkloadSpec("churn", "churn", {"interval_ms": 100, "topics_at_once": 3})
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | {"zookeeper.session.timeout.ms": "4000"}),
        (_topic(3),),
        (_plain(acks=[-1], producers=1, interval_ms=200), churn),
        faults,
        duration_ms,
    )


def _late_orders(random: SimRandom) -> Scenario:
    """Orders of the controller arrive a second time, when they are out of date."""
    duration_ms = 15_000
    faults = _some(
        random,
        random.randint(10, 20),
        lambda: _fault(random, "late_order", _broker(random), duration_ms),
        lambda: _fault(random, "late_order", _broker(random), duration_ms),
        lambda: _fault(random, "late_order", _broker(random), duration_ms, stops=True),
        lambda: _fault(random, "late_order", _broker(random), duration_ms, stops=True),
        lambda: _fault(random, "late_order", _broker(random), duration_ms, former_life=True),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (5, 1500)),
        lambda: _fault(random, "stop", _broker(random), duration_ms, (5, 1500)),
        lambda: _fault(random, "zk_expire", "controller", duration_ms),
    )
    churn = WorkloadSpec(
        "churn", "churn", {"interval_ms": 400, "topics_at_once": 1, "acts": ["move", "elect"]}
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (_topic(2, replicas=random.choice((1, 2)), min_insync_replicas="1"),),
        (_plain(acks=[-1], interval_ms=150), churn),
        faults,
        duration_ms,
    )


def _churn(random: SimRandom) -> Scenario:
    """Topics come and go while brokers are away."""
    duration_ms = 15_000
    faults = _some(
        random,
        random.randint(3, 7),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (500, 7000)),
        lambda: _fault(random, "stop", _broker(random), duration_ms, (500, 7000)),
        lambda: _fault(random, "freeze", _broker(random), duration_ms, (500, 5000)),
        lambda: _fault(random, "cut", _broker(random), duration_ms, (500, 5000)),
        lambda: _fault(random, "zk_expire", _broker(random), duration_ms),
        lambda: _fault(random, "crash", "controller", duration_ms, (500, 5000)),
    )
    churn = WorkloadSpec(
        "churn",
        "churn",
        {
            "interval_ms": 120,
            "topics_at_once": random.randint(1, 2),
            "acts": random.choice(
                (
                    ["topic", "write", "write", "grow"],
                    ["topic", "topic", "write", "move-own", "move-own"],
                )
            ),
        },
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS), (), (churn,), faults, duration_ms
    )


def _reassign(random: SimRandom) -> Scenario:
    """Replicas move all the time, topics that move are deleted, brokers come and go."""
    duration_ms = 15_000
    faults = _some(
        random,
        random.randint(2, 7),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (50, 4000)),
        lambda: _fault(random, "crash", "controller", duration_ms, (50, 4000)),
        lambda: _fault(random, "stop", _broker(random), duration_ms, (50, 4000)),
        lambda: _fault(random, "freeze", _broker(random), duration_ms, (500, 4000)),
        lambda: _fault(random, "cut", _pair(random, "|"), duration_ms, (500, 4000)),
    )
    churn = WorkloadSpec(
        "churn",
        "churn",
        {
            "interval_ms": 400,
            "topics_at_once": 1,
            "acts": ["move", "move", "move", "topic", "move-own"],
        },
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (_topic(2, replicas=random.choice((1, 2, 2)), min_insync_replicas="1"),),
        (_plain(acks=[-1]), churn),
        faults,
        duration_ms,
    )


def _retention(random: SimRandom) -> Scenario:
    """Small segments and little room, while followers lag behind."""
    duration_ms = 15_000
    faults = _some(
        random,
        random.randint(2, 5),
        lambda: _fault(random, "freeze", _broker(random), duration_ms, (500, 6000)),
        lambda: _fault(random, "cut", _pair(random, "|"), duration_ms, (500, 6000)),
        lambda: _fault(random, "crash", "leader", duration_ms, (500, 6000)),
        lambda: _fault(
            random, "slow_link", _pair(random, ">"), duration_ms, (1000, 5000), delay_s=0.5
        ),
    )
    return Scenario(
        ClusterSpec(
            BROKERS,
            {
                "log.retention.check.interval.ms": "200",
                "log.initial.task.delay.ms": "200",
            },
        ),
        (_topic(1, segment_bytes="1024", retention_bytes="2048", min_insync_replicas="1"),),
        (_plain(acks=[1], interval_ms=30, producers=2, consumers=2),),
        faults,
        duration_ms,
    )


def _power(random: SimRandom) -> Scenario:
    """Machines lose power, in the middle of whatever they do."""
    duration_ms = 15_000
    faults = _some(
        random,
        random.randint(2, 5),
        lambda: _fault(random, "power", _broker(random), duration_ms, (200, 3000)),
        lambda: _fault(random, "power", "leader", duration_ms, (200, 3000)),
        lambda: _fault(
            random,
            "power_at_operation",
            _broker(random),
            duration_ms,
            (200, 3000),
            after=random.randrange(60),
        ),
        lambda: _fault(random, "stop", _broker(random), duration_ms, (200, 1500)),
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG),
        (_topic(2, segment_bytes=random.choice(("1024", "1048576"))),),
        (_plain(acks=[-1], value_bytes=200), _idempotent(producers=1, consumers=0)),
        faults,
        duration_ms,
    )


def _producers(random: SimRandom) -> Scenario:
    """Idempotent producers that never know whether their batches have arrived."""
    duration_ms = 8000
    faults = _some(
        random,
        random.randint(3, 9),
        lambda: _reset_and_stop(random, duration_ms),
        lambda: _reset_and_stop(random, duration_ms),
        lambda: _fault(random, "reset", "leader", duration_ms, chance=1.0),
        lambda: _fault(random, "reset", _broker(random), duration_ms, chance=0.6),
        lambda: _fault(random, "stop", "leader", duration_ms, (100, 2500)),
        lambda: _fault(random, "crash", "leader", duration_ms, (100, 2500)),
        lambda: _fault(random, "freeze", "leader", duration_ms, (500, 7000)),
        lambda: _fault(random, "loss", "", duration_ms, (500, 2000), part=0.3),
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (
            _topic(
                1,
                replicas=random.choice((1, 3)),
                segment_bytes=random.choice(("1024", "4096", "1048576")),
            ),
        ),
        (_idempotent(producers=3, interval_ms=40),),
        faults,
        duration_ms,
    )


def _disk(random: SimRandom) -> Scenario:
    """One of two log directories of a broker fails now and then."""
    duration_ms = 12_000
    faults = _some(
        random,
        random.randint(1, 3),
        lambda: _fault(
            random,
            "bad_directory",
            _broker(random),
            duration_ms,
            (200, 3000),
            directory=random.choice(("/data", "/more")),
        ),
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | {"log.dirs": "/data,/more"}),
        (_topic(4, min_insync_replicas="1"),),
        (_plain(acks=[-1, 1], interval_ms=30), _idempotent(producers=1, consumers=0)),
        faults,
        duration_ms,
    )


def _groups(random: SimRandom) -> Scenario:
    """Members fall silent for longer than they may, coordinators change."""
    duration_ms = 15_000
    faults = _some(
        random,
        random.randint(1, 5),
        lambda: _tail(random, duration_ms),
        lambda: _tail(random, duration_ms),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (100, 4000)),
        lambda: _fault(random, "stop", _broker(random), duration_ms, (100, 4000)),
        lambda: _fault(random, "freeze", _broker(random), duration_ms, (500, 4000)),
        lambda: _fault(random, "reset", _broker(random), duration_ms, chance=0.6),
        lambda: _fault(random, "cut", _pair(random, "|"), duration_ms, (500, 5000)),
    )
    group = WorkloadSpec(
        "groups",
        "group",
        {
            "members": random.randint(2, 4),
            "cooperative": random.random() < 0.5,
            "static": random.random() < 0.6,
            "leave_chance": random.choice((0.0, 0.02)),
            "death_chance": random.choice((0.0, 0.01)),
            "vanish_chance": random.choice((0.02, 0.05)),
            "vanish_ms": random.choice((4000, 7000)),
            "session_timeout_ms": 6000,
            "rebalance_timeout_ms": 2500,
            "interval_ms": 150,
            "forgetful": random.random() < 0.7,
        },
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_SESSIONS | {"group.min.session.timeout.ms": "1000"} | QUICK_LAG),
        (_topic(4),),
        (group,),
        faults,
        duration_ms,
    )


def _session(random: SimRandom) -> Scenario:
    """Sessions with ZooKeeper end at any moment."""
    duration_ms = 12_000
    faults = _some(
        random,
        random.randint(2, 7),
        lambda: _fault(random, "zk_expire", _broker(random), duration_ms),
        lambda: _fault(random, "zk_expire", "controller", duration_ms),
        lambda: _fault(random, "zk_isolate", _broker(random), duration_ms, (500, 5000)),
        lambda: _fault(random, "zk_isolate", "controller", duration_ms, (500, 5000)),
        lambda: _fault(random, "zk_drop", _broker(random), duration_ms, (10, 4000)),
        lambda: _fault(
            random, "zk_lose_answer", "controller", duration_ms, skip=random.randrange(9)
        ),
        lambda: _fault(random, "zk_down", "", duration_ms, (500, 4000)),
    )
    churn = WorkloadSpec("churn", "churn", {"interval_ms": 500, "topics_at_once": 1})
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (_topic(2),),
        (_plain(acks=[-1]), churn),
        faults,
        duration_ms,
    )


def _last_replica(random: SimRandom) -> Scenario:
    """A broker leaves in order; another one, all that is left of some ISRs, loses power; the first is
    back before it (ADR 0008).  Then the same with the roles changed."""
    faults: list[Fault] = []
    pair = random.sample(range(BROKERS), 2)
    for begin_ms, (leaving, losing) in ((2500, pair), (13_000, pair[::-1])):
        left_ms = begin_ms + random.randrange(1000)
        lost_ms = left_ms + random.randint(1000, 2500)
        back_ms = lost_ms + random.randint(200, 3000)
        again_ms = back_ms + random.randint(500, 2000)
        faults += [
            Fault(left_ms, "stop", f"broker-{leaving}", back_ms - left_ms),
            Fault(lost_ms, "power", f"broker-{losing}", again_ms - lost_ms, {"always": True}),
        ]
    return Scenario(
        ClusterSpec(
            BROKERS,
            {"replica.high.watermark.checkpoint.interval.ms": "300"}
            | {"zookeeper.session.timeout.ms": "1500"}
            | QUICK_LAG,
        ),
        (_topic(4, 2, min_insync_replicas="2"),),
        (_plain(acks=[-1], value_bytes=200), _idempotent(producers=1, consumers=0)),
        tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        22_000,
    )


def _shutdown(random: SimRandom) -> Scenario:
    """Nothing but orderly stops, far apart: clients should hardly notice."""
    faults = tuple(
        Fault(at_ms + random.randrange(1500), "stop", _broker(random), random.randrange(500, 2500))
        for at_ms in (2000, 9000)
    )
    return Scenario(
        ClusterSpec(BROKERS, {"replica.lag.time.max.ms": "6000"}),
        (_topic(2),),
        (_plain(acks=[-1], interval_ms=50, producers=2, patience_ms=2000),),
        faults,
        16_000,
    )


def _lonely(random: SimRandom) -> Scenario:
    """One record now and then, while a follower is away: nothing but the change of the ISR itself
    can acknowledge it."""
    faults = tuple(
        Fault(at_ms + random.randrange(2000), "cut", "follower", 5000) for at_ms in (1000, 9000)
    )
    return Scenario(
        ClusterSpec(BROKERS, {"replica.lag.time.max.ms": "1000"}),
        (_topic(1),),
        (_plain(acks=[-1], producers=1, consumers=0, interval_ms=1500, patience_ms=1570),),
        faults,
        17_000,
    )


def _flipped(random: SimRandom) -> Scenario:
    """Machines lose power, and the last that came to a disk has a wrong bit: perhaps one of a base
    offset, which no checksum covers."""
    duration_ms = 12_000
    faults = _some(
        random,
        random.randint(3, 6),
        lambda: _fault(
            random, "power", _broker(random), duration_ms, (200, 1500), torn_tail=True, flipped=True
        ),
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (
            _topic(2),
            TopicSpec("compacted", 2, 3, {"cleanup.policy": "compact"}),
        ),
        (_plain(acks=[-1], interval_ms=150),),
        faults,
        duration_ms,
    )


def _between_controllers(random: SimRandom) -> Scenario:
    """A broker loses power and is back after its controller has fallen, before there is another one:
    no controller sees that it was gone."""
    faults: list[Fault] = []
    for begin_ms in (1500, 13_000):
        at_ms = begin_ms + random.randrange(1500)
        who = random.choice(("leader", "leader", "controller"))
        gap_ms = int(5 * 200 ** random.random())
        faults += [
            Fault(at_ms, "power", who, random.randrange(50, 1500), {"always": True}),
            Fault(at_ms + gap_ms, "crash", "controller", random.randrange(4000, 6000)),
        ]
    return Scenario(
        ClusterSpec(BROKERS, QUICK_SESSIONS | {"replica.lag.time.max.ms": "8000"}),
        (_topic(3),),
        (_plain(acks=[-1], interval_ms=100),),
        tuple(faults),
        22_000,
    )


def _start(random: SimRandom) -> Scenario:
    """Sessions end, and ZooKeeper is away, while brokers start."""
    duration_ms = 12_000
    faults = _some(
        random,
        random.randint(3, 6),
        lambda: _fault(
            random,
            "expire_at_start",
            _broker(random),
            duration_ms,
            (50, 2500),
            after_ms=random.randrange(1, 40),
        ),
        lambda: _fault(
            random,
            "expire_at_start",
            _broker(random),
            duration_ms,
            (50, 2500),
            after_ms=random.randrange(1, 40),
        ),
        lambda: _fault(random, "crash", "controller", duration_ms, (2500, 5000)),
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (_topic(3),),
        (_plain(acks=[-1], interval_ms=200),),
        faults,
        duration_ms,
    )


def _far_apart(random: SimRandom) -> Scenario:
    """A leader falls whose follower knows an old high watermark; another one comes back from afar,
    between that mark and the start of the new epoch; then the new leader falls."""
    faults: list[Fault] = []
    for begin_ms in (800, 9500):
        back_ms = begin_ms + random.randrange(1800, 2600)
        first_ms = back_ms + random.randrange(900)
        second_ms = first_ms + 2000 + random.randrange(200, 1500)
        faults += [
            Fault(begin_ms, "cut", "follower", back_ms - begin_ms),
            Fault(first_ms, "crash", "leader", random.randrange(3000, 5500)),
            Fault(second_ms, random.choice(("crash", "zk_expire")), "leader", 2500),
        ]
    return Scenario(
        ClusterSpec(
            BROKERS,
            QUICK_LAG
            | QUICK_SESSIONS
            | {"replica.fetch.max.bytes": "400", "replica.fetch.response.max.bytes": "400"},
        ),
        (_topic(1, min_insync_replicas="2"),),
        (_plain(acks=[-1], producers=4, consumers=2, interval_ms=60),),
        _in_order(*_slowly(18_000, random.choice((0.1, 0.3, 0.5))), *faults),
        18_000,
    )


def _recreated(random: SimRandom) -> Scenario:
    """A topic comes and goes while brokers are away and orders of earlier ones arrive late."""
    duration_ms = 12_000
    faults = _some(
        random,
        random.randint(10, 18),
        lambda: _fault(random, "late_order", _broker(random), duration_ms),
        lambda: _fault(random, "late_order", _broker(random), duration_ms),
        lambda: _fault(random, "crash", _broker(random), duration_ms, (100, 3000)),
    )
    churn = WorkloadSpec(
        "churn",
        "churn",
        {
            "interval_ms": 400,
            "topics_at_once": 2,
            "acts": ["topic", "write", "move-own", "move-own", "move-own"],
        },
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS), (), (churn,), faults, duration_ms
    )


def _late_syncs(random: SimRandom) -> Scenario:
    """A group's members come and go, and assignments of earlier generations arrive late."""
    duration_ms = 12_000
    faults = _some(
        random,
        random.randint(12, 20),
        *[
            lambda broker=broker: _fault(random, "late_sync", f"broker-{broker}", duration_ms)
            for broker in range(BROKERS)
        ],
    )
    group = WorkloadSpec(
        "groups",
        "group",
        {
            "members": 4,
            "cooperative": random.random() < 0.5,
            "death_chance": 0.03,
            "leave_chance": 0.02,
            "interval_ms": 150,
        },
    )
    return Scenario(ClusterSpec(BROKERS), (_topic(4),), (group,), faults, duration_ms)


def _slow_isr(random: SimRandom) -> Scenario:
    """A leader is alone in its ISR; a follower is taken in, and the leader falls before it knows."""
    faults: list[Fault] = []
    for begin_ms in (800, 9500):
        back_ms = begin_ms + random.randrange(2000, 2600)
        fall_ms = back_ms + random.randrange(300, 3500)
        faults += [
            Fault(begin_ms, "cut", "leader", back_ms - begin_ms),
            Fault(fall_ms, random.choice(("crash", "zk_expire")), "leader", 3000),
        ]
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (_topic(1, min_insync_replicas="1"),),
        (_plain(acks=[-1], producers=3, consumers=1, interval_ms=random.choice((600, 1500))),),
        _in_order(*_slowly(18_000, random.choice((0.15, 0.3, 0.5))), *faults),
        18_000,
    )


def _lost_answers(random: SimRandom) -> Scenario:
    """ISRs change and the leader does not hear of it; nothing else happens that would tell it."""
    faults: list[Fault] = []
    for begin_ms in (800, 8000):
        muted_ms = begin_ms + random.randrange(900, 2000)
        faults += [
            Fault(begin_ms, "cut", "follower", random.randrange(2500, 4500)),
            Fault(muted_ms, "mute", "controller", 900),
            Fault(muted_ms + 800, "reset", "controller", 0, {"chance": 1.0}),
        ]
    return Scenario(
        ClusterSpec(
            BROKERS, {"replica.lag.time.max.ms": "1000", "zookeeper.session.timeout.ms": "6000"}
        ),
        (_topic(1),),
        (_plain(acks=[-1], interval_ms=150),),
        _in_order(*faults),
        14_000,
    )


def _dropped(random: SimRandom) -> Scenario:
    """A follower is back and has everything while the leader's proposal to drop it is under way; then
    the ISR is below min.insync.replicas, so that nothing is written any more."""
    faults: list[Fault] = []
    for begin_ms in (800, 6000):
        faults += [
            Fault(begin_ms, "cut", "follower", random.randrange(1400, 2800)),
            Fault(begin_ms + 1000, "slow_link", "leader>controller", 3500, {"delay_s": 1.0}),
        ]
    return Scenario(
        ClusterSpec(BROKERS, {"replica.lag.time.max.ms": "1500"}),
        (_topic(1, min_insync_replicas="3"),),
        (_plain(acks=[-1], interval_ms=150),),
        _in_order(*faults),
        10_000,
    )


def _cut_and_back(random: SimRandom) -> Scenario:
    """Deposed leaders cut their tails; then power is lost, and with it perhaps the cut."""
    duration_ms = 14_000
    faults = _some(
        random,
        random.randint(5, 8),
        lambda: _tail(random, duration_ms - 3000),
        lambda: _fault(random, "power", _broker(random), duration_ms, (100, 1000)),
    )
    return Scenario(
        ClusterSpec(BROKERS, QUICK_LAG | QUICK_SESSIONS),
        (_topic(2, min_insync_replicas="1"),),
        (_plain(acks=[1, -1], interval_ms=80),),
        faults,
        duration_ms,
    )


def _late_joins(random: SimRandom) -> Scenario:
    """A follower has come back and caught up; the leader's proposal to take it in is on a slow way.
    Meanwhile the follower goes, or loses power and is back with less while all others fall."""
    faults: list[Fault] = []
    for begin_ms in (800, 13_000):
        back_ms = begin_ms + 2500
        gone_ms = back_ms + random.randrange(150, 1000)
        faults += [
            Fault(begin_ms, "crash", "follower", 2500),
            Fault(
                back_ms - 200,
                "slow_link",
                "leader>controller",
                7000,
                {"delay_s": 2.0},
            ),
        ]
        if random.random() < 0.4:
            faults.append(Fault(gone_ms, "stop", "follower", random.randrange(4000, 6000)))
        else:
            fall_ms = gone_ms + random.randrange(3500, 6000)
            faults += [
                Fault(gone_ms - 1, "cut", "follower", 7000),
                Fault(gone_ms, "power", "follower", 50, {"always": True, "torn_tail": False}),
                Fault(fall_ms, "zk_expire", "leader"),
            ]
            if random.random() < 0.4:
                faults.append(Fault(fall_ms + 10, "crash", "leader", 2500))  # the next one
    return Scenario(
        ClusterSpec(
            BROKERS, {"replica.lag.time.max.ms": "10000", "zookeeper.session.timeout.ms": "2000"}
        ),
        (_topic(1, min_insync_replicas="1"),),
        (_plain(acks=[-1], consumers=0, interval_ms=100),),
        _in_order(*faults),
        23_000,
    )


FAMILIES: Final[Mapping[str, Callable[[SimRandom], Scenario]]] = {
    "failover": _failover,
    "last-replica": _last_replica,
    "min-isr": _min_isr,
    "isr": _isr,
    "restart": _restart,
    "controller": _controller,
    "late-orders": _late_orders,
    "churn": _churn,
    "reassign": _reassign,
    "retention": _retention,
    "power": _power,
    "producers": _producers,
    "disk": _disk,
    "groups": _groups,
    "session": _session,
    "shutdown": _shutdown,
    "flipped": _flipped,
    "between-controllers": _between_controllers,
    "start": _start,
    "far-apart": _far_apart,
    "slow-isr": _slow_isr,
    "lost-answers": _lost_answers,
    "late-joins": _late_joins,
    "dropped": _dropped,
    "cut-and-back": _cut_and_back,
    "recreated": _recreated,
    "late-syncs": _late_syncs,
    "lonely": _lonely,
}
