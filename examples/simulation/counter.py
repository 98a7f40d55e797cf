"""A workload and a check of one's own, for `kafkalike sim --with examples/simulation/counter.py`.

One client counts: it reads the last number of a partition and appends the next one.  Counting alone
it must never see its number go back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kafkalike.errors import NONE
from kafkalike.net.client import PeerError
from kafkalike.tools.simulator.check import Check
from kafkalike.tools.simulator.clients import NotKnown
from kafkalike.tools.simulator.consumers import LATEST, Reader
from kafkalike.tools.simulator.evidence import Evidence
from kafkalike.tools.simulator.history import Produce
from kafkalike.tools.simulator.producers import Producer
from kafkalike.tools.simulator.workloads import BaseWorkload
from kafkalike.types import TopicPartition


@dataclass(slots=True, frozen=True)
class Counted:
    """What goes into the history: the number that was the last one in the partition."""

    partition: TopicPartition
    number: int


class Counter(Producer, Reader):
    """Appends 1, 2, 3, ..., each after it has read the one before."""

    attempts = 0

    async def run(self) -> None:
        await self.refresh()
        partition = self.partitions_to_write[0]
        while not self.stopping:
            try:
                last = await self.last_number(partition)
                self.history.note(self.name, Counted(partition, last))
                await self.append(partition, last + 1)
            except (PeerError, NotKnown):
                await self.refresh()
            await self.pause(0.2)

    async def last_number(self, partition: TopicPartition) -> int:
        """The number at the end of the partition; 0 when it is empty."""
        end = await self.list_offset(partition, LATEST)
        if end is None:
            raise NotKnown("the end is not known")
        if end == 0:
            return 0
        code, fetched, _ = await self.fetch(partition, self.leader_of(partition), end - 1)
        if code != NONE or not fetched.records:
            raise NotKnown("the last record cannot be read")
        self.history.note(self.name, fetched)
        return int(fetched.records[-1].value.split(b"/")[0])

    async def append(self, partition: TopicPartition, number: int) -> None:
        # The checks that come with the simulator expect that no value is sent twice.
        self.attempts += 1
        values = (b"%d/%d" % (number, self.attempts),)
        operation = self.history.invoke(self.name, Produce(partition, values))
        await self.attempt(partition, self.leader_of(partition), operation, values)


class Counting(BaseWorkload):
    """One counter on the first partition of the scenario."""

    def begin(self) -> None:
        partitions = self.partitions()[:1]
        self.add(Counter(self.name, self.ports(self.name), partitions))


class NeverBack(Check):
    """The counter's number only grows."""

    name = "counting"

    def problems(self, evidence: Evidence) -> Iterator[str]:
        highest = 0
        for entry, counted in evidence.history.notes(Counted):
            if counted.number < highest:
                yield (
                    f"{entry.client} read {counted.number} at {entry.time_s:.3f} s, before it had"
                    f" read {highest}"
                )
            highest = max(highest, counted.number)


WORKLOADS = {"counting": Counting}
CHECKS = [NeverBack]
