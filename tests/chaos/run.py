"""A chaos run: `python -m tests.chaos.run --seed 7 --events 200 --brokers 3`.

Starts brokers behind relays beside a real ZooKeeper, producers of two client libraries with
acks=all, a reader and an observer; breaks things for a while, a line an event; every so many events
everything is mended and has to be well again within a limit.  In the end a checker reads all
histories and all replicas.  Exit code 0: nothing was found.  Else the artefacts stay (histories,
logs and data of the brokers) and their place is printed.

The same seed draws the same faults, as far as the cluster is in the same state when they are drawn.
"""

import argparse
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kafkalike.messages.list_offsets import ListOffsetsRequest
from tests.chaos.checker import Evidence, Finding, Outcomes, check
from tests.chaos.disks import own_mounts
from tests.chaos.faults import Chooser, Fault
from tests.chaos.field import (
    READY_LIMIT_S,
    STOP_LIMIT_S,
    TOPIC,
    Field,
    Worker,
    failures_of,
    progress_since,
    wait_for,
)
from tests.chaos.observer import LATEST, LIST_OFFSETS_VERSION, Wire
from tests.chaos.reader import write_marks
from tests.integration import clients
from tests.integration.brokers import SESSION_TIMEOUT_MS, eventually
from tests.integration.zookeeper import missing

PRODUCERS: Final = (
    ("confluent", "confluent"),
    ("kafka-python", "kafka-python"),
    ("plain", "kafka-python-plain"),
)
"""Name and kind."""

IDEMPOTENT: Final = {"confluent", "kafka-python"}
SETTLE_S: Final = 2.0
"""A heal must come at least so long after the last acknowledgement that counts as an older one."""

WORKER_LIMIT_S: Final = 170.0


@dataclass(slots=True)
class Options:
    seed: int
    events: int = 200
    brokers: int = 3
    partitions: int = 6
    pace_s: float = 3.0
    """Mean time between events."""
    calm_every: int = 25
    heal_limit_s: float = 60.0
    rate: float = 120.0
    """Records per second and producer."""
    keep: bool = False
    folder: Path | None = None


@dataclass(slots=True)
class Report:
    findings: list[Finding] = field(default_factory=list)
    heals_s: list[float] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class Run:
    def __init__(self, options: Options, folder: Path, *, mounts: bool) -> None:
        self.options = options
        self.folder = folder
        self.report = Report()
        self.random = random.Random(options.seed)
        self.field = Field(folder, options.brokers, options.partitions, mounts=mounts)
        self.chooser = Chooser(self.field, self.random, SESSION_TIMEOUT_MS / 1000 + 1.0)
        self.producers: list[Worker] = []
        self.others: list[Worker] = []
        self.faults: list[Fault] = []
        self.begun_s = time.monotonic()

    def say(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self.begun_s:7.1f}  {text}\n")
        sys.stdout.flush()

    def find(self, rule: str, text: str) -> None:
        self.report.findings.append(Finding(rule, text))
        self.say(f"FOUND {rule}: {text}")

    # -- the course of a run -------------------------------------------------------------------

    def execute(self) -> Outcomes:
        options = self.options
        self.say(
            f"seed {options.seed}, {options.brokers} brokers, {options.events} events, "
            f"{self.folder}, disks are "
            + ("devices" if self.field.brokers[1].disks[0].is_device else "marked")
        )
        for broker in self.field.brokers.values():
            broker.launch()
        for broker in self.field.brokers.values():
            broker.wait_ready(READY_LIMIT_S)
        eventually(lambda: self.field.registered() == self.field.ids, 60)
        clients.create_topic(self.field.bootstrap, TOPIC, options.partitions, 3)
        self.start_workers()
        self.calm("start")
        for number in range(1, options.events + 1):
            self.event(number)
            if number % options.calm_every == 0 or number == options.events:
                self.mend()
                self.calm(f"after {number} events")
        return self.finish()

    def start_workers(self) -> None:
        base = ["--bootstrap", self.field.bootstrap, "--topic", TOPIC]
        base += ["--partitions", str(self.options.partitions)]
        for name, kind in PRODUCERS:
            history, output = self.folder / f"{name}.history", self.folder / f"{name}.out"
            words = [kind, name, *base, "--rate", str(self.options.rate)]
            self.producers.append(Worker(name, "producers", history, output, *words))
        history, output = self.folder / "reader.history", self.folder / "reader.out"
        self.others.append(Worker("reader", "reader", history, output, *base))
        watched = [f"--broker={b.id}:{b.port}" for b in self.field.brokers.values()]
        watched += ["--zookeeper", self.field.zookeeper.address + "/chaos"]
        history, output = self.folder / "observer.history", self.folder / "observer.out"
        self.others.append(Worker("observer", "observer", history, output, *watched, *base[2:]))

    def event(self, number: int) -> None:
        pause_s = self.random.uniform(0.3, 1.7) * self.options.pace_s
        deadline = time.monotonic() + pause_s
        while time.monotonic() < deadline:
            self.end_due()
            self.field.revive()
            time.sleep(0.05)
        while True:
            self.end_due()
            fault = self.draw()
            if fault is not None:
                break
            time.sleep(0.1)
        kind = fault.name.split()[0]
        self.report.counts[kind] = self.report.counts.get(kind, 0) + 1
        lasts = fault.until_s - time.monotonic()
        self.say(f"event {number}: {fault.name}" + (f" for {lasts:.1f} s" if lasts > 0 else ""))
        self.faults.append(fault)
        for worker in self.producers:
            worker.look()

    def draw(self) -> Fault | None:
        """Keep a majority of brokers untroubled; now and then everything at once is allowed."""
        self.field.revive()
        troubled = {b for fault in self.faults for b in fault.brokers}
        most = 1 if self.options.brokers < 4 else 2
        if len(troubled) >= most and self.random.random() < 0.85:
            return None
        free = [b for b in self.field.ids if b not in troubled and self.field.brokers[b].is_ready]
        zookeeper = not any(fault.zookeeper for fault in self.faults)
        try:
            return self.chooser.draw(free, zookeeper=zookeeper)
        except Exception as error:
            if zookeeper and not self.faults:
                self.say(f"(drawing failed: {error!r})")
            return None

    def end_due(self, *, all_of_them: bool = False) -> None:
        for fault in list(self.faults):
            if all_of_them or time.monotonic() >= fault.until_s:
                self.faults.remove(fault)
                if fault.brokers or fault.zookeeper:
                    said = fault.end()
                    self.say(f"   over: {fault.name}" + (f": {said}" if said else ""))
        for text in self.chooser.findings:
            self.find("stop", text)
        self.chooser.findings.clear()

    def mend(self) -> None:
        # ZooKeeper first: what ends later may ask it.
        self.faults.sort(key=lambda fault: not fault.zookeeper)
        self.end_due(all_of_them=True)

    def calm(self, when: str) -> None:
        """Everything must be well within the limit."""
        begun = time.monotonic()
        limit_s = self.options.heal_limit_s
        try:
            wait_for(self.field.trouble, limit_s, stands_still=self.field.starved)
            cluster_s = time.monotonic() - begun
            since = begun
            wait_for(
                lambda: progress_since(self.producers, since, self.options.partitions),
                limit_s,
            )
            self.report.heals_s.append(time.monotonic() - begun)
            self.say(
                f"calm {when}: cluster well after {cluster_s:.1f} s, "
                f"producers after {time.monotonic() - begun:.1f} s"
            )
        except TimeoutError as error:
            self.find("heal", f"{when}: {error}")
            with contextlib.suppress(TimeoutError):
                wait_for(self.field.trouble, limit_s)

    def finish(self) -> Outcomes:
        for worker in self.producers:
            worker.tell_to_end()
        for worker in self.producers:
            worker.stop(WORKER_LIMIT_S)
            worker.look()
        try:
            marks = self.high_watermarks()
        except AssertionError as error:
            self.find("watermark", str(error))
            marks = {}
        assignment = self.field.assignment()
        write_marks(self.others[0].history, marks)
        for worker in self.others:
            worker.stop(WORKER_LIMIT_S)
        leaderships = self.field.leaderships()
        for exit_ in self.field.unasked_exits:
            self.find("exit", f"{exit_} ended by itself")
        self.stop_brokers()
        for text in self.field.tracebacks():
            self.find("log", text)
        for loss in self.field.losses():
            self.find("ledger", str(loss))
        evidence = Evidence(
            TOPIC,
            producers={w.name: w.history for w in self.producers},
            idempotent=IDEMPOTENT,
            reader=self.others[0].history,
            observer=self.others[1].history,
            high_watermarks=marks,
            leaderships=leaderships,
        )
        files = {b.id: b.replicas(TOPIC) for b in self.field.brokers.values()}
        for partition, replicas in assignment.items():
            evidence.replicas[partition] = {}
            for broker in replicas:
                if partition in files[broker]:
                    evidence.replicas[partition][broker] = files[broker][partition]
                else:
                    self.find("differ", f"broker {broker} has no replica of {partition}")
        outcomes = check(evidence)
        outcomes.findings[:0] = self.report.findings
        workers = (*self.producers, *self.others)
        outcomes.remarks += filter(None, (worker.last_words() for worker in workers))
        return outcomes

    def high_watermarks(self) -> dict[int, int]:
        """Of every partition, once all replicas are in sync and nobody writes any more."""
        found: dict[int, int] = {}

        def probe() -> bool:
            trouble = self.field.trouble()
            assert trouble is None, trouble
            for partition in range(self.options.partitions):
                leader = self.field.state(partition)["leader"]
                found[partition] = self.end_offset(leader, partition)
            return True

        eventually(probe, self.options.heal_limit_s, what="high watermarks")
        return found

    def end_offset(self, broker: int, partition: int) -> int:
        kind = ListOffsetsRequest.ListOffsetsTopic
        asked = kind.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[kind(name=TOPIC, partitions=[asked])])
        wire = Wire(self.field.brokers[broker].port)
        try:
            answer = wire.ask(request, LIST_OFFSETS_VERSION).topics[0].partitions[0]
        finally:
            wire.close()
        assert answer.error_code == 0, f"partition {partition}: error {answer.error_code}"
        offset: int = answer.offset
        return offset

    def stop_brokers(self) -> None:
        """In order or not, as the seed says."""
        if self.random.random() < 0.5:
            for broker in self.field.brokers.values():
                broker.kill()
            return
        for broker in self.field.brokers.values():
            broker.wanted = False
            try:
                code = broker.terminate(STOP_LIMIT_S)
            except AssertionError as error:
                self.find("stop", str(error)[:500])
                broker.kill()
                continue
            if code:
                self.find("stop", f"broker {broker.id} ended with {code}")

    # -- the end -------------------------------------------------------------------------------

    def summary(self, outcomes: Outcomes) -> str:
        heals = self.report.heals_s
        lines = [
            f"events: {sum(self.report.counts.values())} ("
            + ", ".join(f"{n} {k}" for k, n in sorted(self.report.counts.items()))
            + ")",
            f"records: {outcomes.records} in {self.options.partitions} partitions, "
            f"{outcomes.acknowledged} acknowledged, {outcomes.unacknowledged} there without "
            f"acknowledgement, {outcomes.reads} read, {outcomes.epochs} leader epochs",
            "heals: "
            + (f"{len(heals)}, longest {max(heals):.1f} s" if heals else "none")
            + f", limit {self.options.heal_limit_s:g} s; slowest start of a broker "
            + f"{self.field.slowest_start_s:.1f} s",
        ]
        for worker in self.producers:
            gap, at_s = worker.longest_gap
            failed = failures_of(worker)
            lines.append(
                f"{worker.name}: {worker.acks} acknowledged, {len(failed)} given up, longest "
                f"silence {gap:.1f} s until {at_s - self.begun_s:.1f}"
            )
        lines += [f"client's own: {remark}" for remark in outcomes.remarks]
        lines.append(f"findings: {len(outcomes.findings)}")
        lines += [f"  {finding}" for finding in outcomes.findings]
        return "\n".join(lines)

    def keep_data(self) -> None:
        """Copies of what lies on disks that end with this process."""
        for broker in self.field.brokers.values():
            for disk in broker.disks:
                if disk.is_device:
                    copy = disk.path.with_name(disk.path.name + "-copy")
                    shutil.copytree(disk.path, copy, dirs_exist_ok=True)

    def close(self) -> None:
        for worker in (*self.producers, *self.others):
            worker.stop(1.0)
        self.field.close()


def run(options: Options) -> int:
    """0 when nothing was found, 1 when something was."""
    mounts = own_mounts()
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kafkalike-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    course = Run(options, folder, mounts=mounts)
    bad = True
    try:
        outcomes = course.execute()
        bad = bool(outcomes.findings)
        sys.stdout.write(course.summary(outcomes) + "\n")
    finally:
        course.close()
        if bad or options.keep:
            course.keep_data()
            sys.stdout.write(f"artefacts: {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return int(bad)


def parse(arguments: list[str]) -> Options:
    defaults = Options(0)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--events", type=int, default=defaults.events)
    parser.add_argument("--brokers", type=int, default=defaults.brokers, choices=(3, 4, 5))
    parser.add_argument("--partitions", type=int, default=defaults.partitions)
    parser.add_argument("--pace-s", type=float, default=defaults.pace_s)
    parser.add_argument("--calm-every", type=int, default=defaults.calm_every)
    parser.add_argument("--heal-limit-s", type=float, default=defaults.heal_limit_s)
    parser.add_argument("--rate", type=float, default=defaults.rate)
    parser.add_argument("--keep", action="store_true", help="artefacts stay in any case")
    parser.add_argument("--folder", type=Path, help="where they lie")
    found: Any = vars(parser.parse_args(arguments))
    return Options(**found)


def main(arguments: list[str]) -> int:
    reason = missing()
    if reason is not None:
        sys.stderr.write(f"no ZooKeeper: {reason}\n")
        return 2
    return run(parse(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
