"""The commands, in the order they run on a fresh cluster of three brokers.

Words in braces are filled in: `{bootstrap}` (all brokers), `{one}` (the first broker) and
`{file:TEXT}`, the path of a file with that content.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FROM: Final = "--bootstrap-server {bootstrap}"
ALPHA_MOVE: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":0,"replicas":[3,2],'
    '"log_dirs":["any","any"]}]}'
)
REORDER: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":1,"replicas":[3,2],'
    '"log_dirs":["any","any"]}]}'
)
ALPHA_ELECT: Final = '{"partitions":[{"topic":"alpha","partition":0}]}'
ALPHA_TRIM: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":0,"offset":3},'
    '{"topic":"alpha","partition":1,"offset":-1}]}'
)
ALPHA_TRIM_TOO_FAR: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":0,"offset":9999}]}'
)
GENERATE: Final = '{"version":1,"topics":[{"topic":"solo"}]}'
ALPHA_DIRS: Final = (
    '{"version":1,"partitions":['
    '{"topic":"alpha","partition":0,"replicas":[3,2],"log_dirs":["<dir 3-2>","<dir 2>"]},'
    '{"topic":"alpha","partition":1,"replicas":[3,2],"log_dirs":["<dir 3>","<dir 2-2>"]},'
    '{"topic":"alpha","partition":2,"replicas":[3,1],"log_dirs":["<dir 3-2>","<dir 1>"]}]}'
)
ALPHA_GROW: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":2,"replicas":[3,1,2]}]}'
)
ALPHA_SHRINK: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":2,"replicas":[3,1]}]}'
)
WRONG_DIR: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":0,"replicas":[3,2],'
    '"log_dirs":["/no/such","any"]}]}'
)
WRONG_BROKER: Final = (
    '{"version":1,"partitions":[{"topic":"alpha","partition":0,"replicas":[3,9]}]}'
)
WRONG_TWICE: Final = '{"version":1,"partitions":[{"topic":"alpha","partition":0,"replicas":[3,3]}]}'
WRONG_TOPIC: Final = '{"version":1,"partitions":[{"topic":"nosuch","partition":0,"replicas":[3]}]}'
PERF_TO_DEAD: Final = (
    '{"version":1,"partitions":[{"topic":"perf","partition":0,"replicas":[1,2,3]}]}'
)
SOLO_MOVE: Final = (
    '{"version":1,"partitions":[{"topic":"solo","partition":0,"replicas":[2],"log_dirs":["any"]}]}'
)


@dataclass(slots=True, frozen=True)
class Command:
    """`name` is unique.  `line`: program and arguments, split at blanks; `files` replace `{1}`, ...

    `until` repeats the command, for some seconds, while its output does not hold.  `unordered`:
    lines are sorted.  `numbers`: all numbers are made equal (rates, sizes, times).  `without`: lines
    with these words depend on timing; `last`: so do all lines but the last.  `alone`: in a process of
    its own, which also runs its end.  `own_words`: a long text in it is
    said by our brokers in other words than the original's.
    A line that begins with `kill` does that to a broker instead.
    """

    name: str
    line: str
    given: str = ""
    files: tuple[str, ...] = ()
    until: Callable[[str], bool] | None = None
    unordered: bool = False
    numbers: bool = False
    without: tuple[str, ...] = ()
    last: bool = False
    alone: bool = False
    own_words: bool = False


def _lines(prefix: str, count: int) -> str:
    return "".join(f"{prefix}-key-{n}:{prefix}-value-{n}\n" for n in range(count))


def _c(name: str, line: str, **more: object) -> Command:
    return Command(name, line, **more)  # type: ignore[arg-type]


COMMANDS: Final[tuple[Command, ...]] = (
    # topics
    _c(
        "create",
        f"topics {FROM} --create --topic alpha --replica-assignment 1:2,2:3,3:1"
        " --config retention.ms=777000000 --config segment.bytes=1048576",
    ),
    _c("create again", f"topics {FROM} --create --topic alpha --partitions 1"),
    _c(
        "create if not exists",
        f"topics {FROM} --create --if-not-exists --topic alpha --partitions 1",
    ),
    _c("create one partition", f"topics {FROM} --create --topic solo --replica-assignment 1"),
    _c(
        "create with both kinds of dots",
        f"topics {FROM} --create --topic with.dot_and_more --replica-assignment 3:2:1",
    ),
    _c("create colliding", f"topics {FROM} --create --topic with_dot.and_more --partitions 1"),
    _c(
        "create bad name", f"topics {FROM} --create --topic bad/name --partitions 1", own_words=True
    ),
    _c(
        "create many replicas",
        f"topics {FROM} --create --topic wide --partitions 1 --replication-factor 5",
    ),
    _c("create no partitions", f"topics {FROM} --create --topic none --partitions 0"),
    _c(
        "create bad config",
        f"topics {FROM} --create --topic odd --partitions 1 --config retention.ms=soon",
    ),
    _c(
        "create unknown config",
        f"topics {FROM} --create --topic odd --partitions 1 --config no.such.key=1",
    ),
    _c("create uneven", f"topics {FROM} --create --topic odd --replica-assignment 1:2,3"),
    _c("list", f"topics {FROM} --list"),
    _c(
        "describe", f"topics {FROM} --describe --topic alpha", until=lambda text: "none" not in text
    ),
    _c("describe all", f"topics {FROM} --describe", unordered=True),
    _c("describe missing", f"topics {FROM} --describe --topic missing"),
    _c("describe pattern", f"topics {FROM} --describe --topic s.*"),
    _c("describe overrides", f"topics {FROM} --describe --topics-with-overrides", unordered=True),
    _c("describe under-replicated", f"topics {FROM} --describe --under-replicated-partitions"),
    _c("describe unavailable", f"topics {FROM} --describe --unavailable-partitions"),
    _c("describe at min isr", f"topics {FROM} --describe --at-min-isr-partitions", unordered=True),
    _c("describe under min isr", f"topics {FROM} --describe --under-min-isr-partitions"),
    _c("grow", f"topics {FROM} --alter --topic solo --partitions 2 --replica-assignment 1,2"),
    _c(
        "grown",
        f"topics {FROM} --describe --topic solo",
        until=lambda text: "Partition: 1" in text and "none" not in text,
    ),
    _c("shrink", f"topics {FROM} --alter --topic alpha --partitions 2"),
    _c("same size", f"topics {FROM} --alter --topic alpha --partitions 3"),
    _c("grow missing", f"topics {FROM} --alter --topic missing --partitions 3"),
    _c("delete missing", f"topics {FROM} --delete --topic missing"),
    _c("delete missing if exists", f"topics {FROM} --delete --if-exists --topic missing"),
    _c("delete", f"topics {FROM} --delete --topic with.dot_and_more"),
    _c("list after deletion", f"topics {FROM} --list", until=lambda text: "with" not in text),
    # records
    _c(
        "console producer",
        f"console-producer {FROM} --topic alpha --property parse.key=true"
        " --property key.separator=:",
        given=_lines("a", 20),
    ),
    _c(
        "console producer zstd",
        f"console-producer {FROM} --topic solo --compression-codec zstd"
        " --sync --request-required-acks 1 --property parse.key=true --property key.separator=:"
        " --property parse.headers=true --property headers.delimiter=|",
        given="h1:v1,h2:v2|k:value\nh1:v1|k2:value2\n",
    ),
    _c(
        "console consumer from the start",
        f"console-consumer {FROM} --topic alpha --partition 0"
        " --offset earliest --max-messages 7 --property print.key=true",
    ),
    _c(
        "console consumer at an offset",
        f"console-consumer {FROM} --topic alpha --partition 1"
        " --offset 2 --max-messages 2 --property print.offset=true --property print.partition=true",
    ),
    _c(
        "console consumer with everything",
        f"console-consumer {FROM} --topic solo --from-beginning"
        " --max-messages 2 --isolation-level read_committed --property print.key=true"
        " --property print.headers=true --property print.timestamp=true"
        " --consumer-property group.id=printers",
        numbers=True,
        unordered=True,
    ),
    _c(
        "console consumer missing topic",
        f"console-consumer {FROM} --topic missing --partition 0"
        " --offset earliest --timeout-ms 1500 --consumer-property allow.auto.create.topics=false",
    ),
    _c("get-offsets", f"get-offsets {FROM} --topic alpha"),
    _c(
        "get-offsets earliest",
        f"get-offsets {FROM} --topic-partitions alpha:0,solo:0-1 --time earliest",
    ),
    _c("get-offsets by time", f"get-offsets {FROM} --topic alpha --time 1000"),
    _c("get-offsets of the future", f"get-offsets {FROM} --topic alpha --time 99999999999999"),
    _c(
        "get-offsets max timestamp",
        f"get-offsets {FROM} --topic-partitions solo --time max-timestamp",
    ),
    _c("get-offsets missing", f"get-offsets {FROM} --topic missing"),
    _c(
        "delete-records",
        f"delete-records {FROM} --offset-json-file {{1}}",
        files=(ALPHA_TRIM,),
        unordered=True,
    ),
    _c(
        "delete-records too far",
        f"delete-records {FROM} --offset-json-file {{1}}",
        files=(ALPHA_TRIM_TOO_FAR,),
        unordered=True,
    ),
    _c("get-offsets after deletion", f"get-offsets {FROM} --topic alpha --time -2"),
    _c(
        "verifiable producer",
        f"verifiable-producer {FROM} --topic solo --max-messages 5 --acks -1"
        " --value-prefix 7 --repeating-keys 2 --message-create-time 1700000000000",
        unordered=True,
        without=("tool_data",),
        alone=True,
    ),
    _c(
        "verifiable consumer",
        f"verifiable-consumer {FROM} --topic solo --group-id verifiers"
        " --max-messages 7 --reset-policy earliest --verbose",
        unordered=True,
        without=("records_consumed", "offsets_committed"),
    ),
    _c("create for perf", f"topics {FROM} --create --topic perf --replica-assignment 1:2"),
    _c(
        "producer perf",
        "producer-perf --topic perf --num-records 3000 --record-size 100"
        " --throughput -1 --producer-props bootstrap.servers={bootstrap} acks=all",
        numbers=True,
        last=True,
    ),
    _c(
        "consumer perf",
        f"consumer-perf {FROM} --topic perf --messages 3000 --group readers",
        numbers=True,
    ),
    # groups
    _c("groups", f"groups {FROM} --list", unordered=True),
    _c(
        "group",
        f"groups {FROM} --describe --group verifiers",
        unordered=True,
        until=lambda text: "solo" in text,
    ),
    _c("group state", f"groups {FROM} --describe --group verifiers --state"),
    _c("group missing", f"groups {FROM} --describe --group nobody"),
    _c(
        "group reset",
        f"groups {FROM} --group verifiers --reset-offsets --to-earliest --topic solo --execute",
        unordered=True,
    ),
    _c("group delete", f"groups {FROM} --delete --group verifiers"),
    _c("group delete missing", f"groups {FROM} --delete --group nobody"),
    # configs
    _c("config of a topic", f"configs {FROM} --describe --entity-type topics --entity-name alpha"),
    _c(
        "config alter",
        f"configs {FROM} --alter --entity-type topics --entity-name alpha"
        " --add-config cleanup.policy=[compact,delete],max.message.bytes=2000000",
    ),
    _c(
        "config delete",
        f"configs {FROM} --alter --entity-type topics --entity-name alpha"
        " --delete-config retention.ms",
    ),
    _c(
        "config changed",
        f"configs {FROM} --describe --entity-type topics --entity-name alpha",
        until=lambda text: "compact" in text and "retention.ms=" not in text,
    ),
    _c(
        "config delete unset",
        f"configs {FROM} --alter --entity-type topics --entity-name alpha"
        " --delete-config retention.ms",
    ),
    _c(
        "config bad value",
        f"configs {FROM} --alter --entity-type topics --entity-name alpha"
        " --add-config min.insync.replicas=0",
    ),
    _c(
        "config all",
        f"configs {FROM} --describe --all --entity-type topics --entity-name solo",
        unordered=True,
    ),
    _c(
        "config missing topic",
        f"configs {FROM} --describe --entity-type topics --entity-name missing",
    ),
    _c(
        "broker config alter",
        f"configs {FROM} --alter --entity-type brokers --entity-name 1"
        " --add-config log.cleaner.threads=2",
    ),
    _c(
        "broker default alter",
        f"configs {FROM} --alter --entity-type brokers --entity-default"
        " --add-config message.max.bytes=2000000",
    ),
    _c(
        "broker config",
        f"configs {FROM} --describe --entity-type brokers --entity-name 1",
        unordered=True,
        until=lambda text: "threads=2" in text,
    ),
    _c(
        "broker default",
        f"configs {FROM} --describe --entity-type brokers --entity-default",
        until=lambda text: "message.max.bytes=2000000" in text,
    ),
    _c(
        "broker config read-only",
        f"configs {FROM} --alter --entity-type brokers --entity-name 1 --add-config broker.rack=r",
    ),
    _c(
        "broker loggers",
        f"configs {FROM} --alter --entity-type broker-loggers --entity-name 1"
        " --add-config root=INFO",
    ),
    # moves and leaders
    _c(
        "reassign generate",
        f"reassign {FROM} --generate --topics-to-move-json-file {{1}} --broker-list 3",
        files=(GENERATE,),
    ),
    _c(
        "reassign", f"reassign {FROM} --execute --reassignment-json-file {{1}}", files=(ALPHA_MOVE,)
    ),
    _c(
        "reassign verify",
        f"reassign {FROM} --verify --reassignment-json-file {{1}}",
        files=(ALPHA_MOVE,),
        until=lambda text: "is completed" in text,
    ),
    _c(
        "reassign throttled",
        f"reassign {FROM} --execute --throttle 1000000 --reassignment-json-file {{1}}",
        files=(SOLO_MOVE,),
    ),
    _c(
        "reassign throttled verify",
        f"reassign {FROM} --verify --reassignment-json-file {{1}}",
        files=(SOLO_MOVE,),
        until=lambda text: "is completed" in text,
    ),
    _c("reassign list", f"reassign {FROM} --list"),
    _c(
        "moved",
        f"topics {FROM} --describe --topic alpha",
        until=lambda text: "Replicas: 3,2\tIsr: 2,3" in text or "Replicas: 3,2\tIsr: 3,2" in text,
    ),
    _c("leader", f"leaders {FROM} --election-type preferred --topic alpha --partition 0"),
    _c("reorder", f"reassign {FROM} --execute --reassignment-json-file {{1}}", files=(REORDER,)),
    _c(
        "reordered",
        f"topics {FROM} --describe --topic alpha",
        until=lambda text: "Leader: 2\tReplicas: 3,2" in text,
    ),
    _c("leader elected", f"leaders {FROM} --election-type preferred --topic alpha --partition 1"),
    _c(
        "leader is elected",
        f"topics {FROM} --describe --topic alpha",
        until=lambda text: "Partition: 1\tLeader: 3" in text,
    ),
    _c(
        "reassign cancel",
        f"reassign {FROM} --cancel --reassignment-json-file {{1}}",
        files=(REORDER,),
        unordered=True,
    ),
    _c(
        "leader again",
        f"leaders {FROM} --election-type preferred --path-to-json-file {{1}}",
        files=(ALPHA_ELECT,),
    ),
    _c("leader unclean", f"leaders {FROM} --election-type unclean --topic alpha --partition 1"),
    _c("leader missing", f"leaders {FROM} --election-type preferred --topic missing --partition 0"),
    _c("leaders all", f"leaders {FROM} --election-type preferred --all-topic-partitions"),
    _c(
        "reassign grow",
        f"reassign {FROM} --execute --reassignment-json-file {{1}}",
        files=(ALPHA_GROW,),
    ),
    _c(
        "reassign grow verify",
        f"reassign {FROM} --verify --reassignment-json-file {{1}}",
        files=(ALPHA_GROW,),
        until=lambda text: "is completed" in text,
    ),
    _c(
        "grown replicas",
        f"topics {FROM} --describe --topic alpha",
        until=lambda text: "Replicas: 3,1,2" in text,
        without=("Partition: 2",),  # the order of its ISR is a matter of chance
    ),
    _c(
        "reassign shrink",
        f"reassign {FROM} --execute --reassignment-json-file {{1}}",
        files=(ALPHA_SHRINK,),
    ),
    _c(
        "reassign shrink verify",
        f"reassign {FROM} --verify --reassignment-json-file {{1}}",
        files=(ALPHA_SHRINK,),
        until=lambda text: "is completed" in text,
    ),
    *(
        _c(
            f"reassign wrong {word}",
            f"reassign {FROM} --execute --reassignment-json-file {{1}}",
            files=(content,),
        )
        for word, content in (
            ("directory", WRONG_DIR),
            ("broker", WRONG_BROKER),
            ("replicas", WRONG_TWICE),
            ("topic", WRONG_TOPIC),
        )
    ),
    _c(
        "reassign directories",
        f"reassign {FROM} --execute --replica-alter-log-dirs-throttle 100000000"
        " --reassignment-json-file {1}",
        files=(ALPHA_DIRS,),
    ),
    _c(
        "reassign directories verify",
        f"reassign {FROM} --verify --reassignment-json-file {{1}}",
        files=(ALPHA_DIRS,),
        until=lambda text: "still" not in text and "replica moved" not in text,
        unordered=True,
    ),
    _c(
        "log-dirs",
        f"log-dirs {FROM} --describe --broker-list 1,2,3 --topic-list alpha",
        numbers=False,
    ),
    _c("log-dirs of an unknown broker", f"log-dirs {FROM} --describe --broker-list 9"),
    _c(
        "log-dirs of a missing topic",
        f"log-dirs {FROM} --describe --broker-list 1 --topic-list missing",
    ),
    _c("delete-records missing file", f"delete-records {FROM} --offset-json-file /no/such"),
    # brokers
    _c("broker api versions", "broker-api-versions --bootstrap-server {one}", unordered=True),
    _c("features", f"features {FROM} describe"),
    # a broker is dead
    _c("create lone", f"topics {FROM} --create --topic lone --replica-assignment 3"),
    _c("kill", "kill 3"),
    _c(
        "describe with a dead broker",
        f"topics {FROM} --describe",
        until=lambda text: "Leader: none" in text and "Leader: 3" not in text,
        unordered=True,
        without=("__consumer_offsets",),
    ),
    _c("unavailable with a dead broker", f"topics {FROM} --describe --unavailable-partitions"),
    _c(
        "under-replicated with a dead broker",
        f"topics {FROM} --describe --under-replicated-partitions",
        unordered=True,
        without=("__consumer_offsets",),
    ),
    _c(
        "leader dead",
        f"leaders {FROM} --election-type preferred --topic alpha --partition 0",
    ),
    _c(
        "leader alone and dead",
        f"leaders {FROM} --election-type unclean --topic lone --partition 0",
    ),
    _c(
        "reassign to a dead broker",
        f"reassign {FROM} --execute --reassignment-json-file {{1}}",
        files=(PERF_TO_DEAD,),
    ),
    _c(
        "log-dirs with a dead broker",
        f"log-dirs {FROM} --describe --broker-list 1,3 --topic-list alpha",
    ),
)
