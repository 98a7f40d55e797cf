"""How long bytes take between the hosts of a simulated world, and which do not arrive."""

import random
from collections.abc import Callable
from typing import Final

BASE_S: Final = 0.0002
SPREAD_S: Final = 0.0008
LOST_PACKET_S: Final = 0.2
"""A lost packet is sent again after this long: TCP's shortest wait."""


class Links:
    """The delay of every link; `changed` is called when bytes that waited may go on."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance.random
        self.changed: Callable[[], object] = lambda: None
        self._cut: dict[tuple[str, str], int] = {}
        self._mute: dict[str, int] = {}
        self._deaf: dict[str, int] = {}
        """Hosts that nothing comes from, and that nothing reaches; how many times over."""
        self._down: set[str] = set()
        self._slow: dict[tuple[str, str], float] = {}
        self._rate: dict[str, float] = {}
        """Bytes a second that a slow reader takes."""
        self._busy_until_s: dict[str, float] = {}
        self.loss = 0.0
        """Part of all packets that are lost once."""
        self.now_s: Callable[[], float] = lambda: 0.0

    def delay(self, source: str, target: str, count: int) -> float | None:
        """Seconds for bytes sent now; None while they do not arrive."""
        if (source, target) in self._cut or source in self._mute or target in self._deaf:
            return None
        delay_s = BASE_S + SPREAD_S * self._chance()
        if self.loss and self._chance() < self.loss:
            delay_s += LOST_PACKET_S * (1 + self._chance())
        if self._slow:
            delay_s += self._slow.get((source, target), 0.0) * self._chance() * 2
        if self._rate and count:
            delay_s += self._queue_s(target, count)
        return delay_s

    def _queue_s(self, target: str, count: int) -> float:
        rate = self._rate.get(target)
        if rate is None:
            return 0.0
        now_s = self.now_s()
        start_s = max(now_s, self._busy_until_s.get(target, 0.0))
        self._busy_until_s[target] = start_s + count / rate
        return self._busy_until_s[target] - now_s

    def cut(self, source: str, target: str) -> None:
        """What `source` sends does not arrive at `target` (one way)."""
        self._cut[source, target] = self._cut.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Undo one `cut`."""
        count = self._cut.get((source, target), 0)
        if count > 1:
            self._cut[source, target] = count - 1
        elif count:
            del self._cut[source, target]
            self.changed()

    def slow(self, source: str, target: str, delay_s: float) -> None:
        """Add about so much to each packet one way; 0 to end it."""
        if delay_s:
            self._slow[source, target] = delay_s
        else:
            self._slow.pop((source, target), None)

    def read_slowly(self, host: str, bytes_per_s: float) -> None:
        """A host takes only so many bytes a second; 0 to end it."""
        if bytes_per_s:
            self._rate[host] = bytes_per_s
        else:
            self._rate.pop(host, None)
            self._busy_until_s.pop(host, None)

    def mute(self, host: str, on: bool) -> None:
        """Nothing that a host sends arrives anywhere; `on=False` undoes it once."""
        self._switch(self._mute, host, on)

    def deafen(self, host: str, on: bool) -> None:
        """Nothing arrives at a host; `on=False` undoes it once."""
        self._switch(self._deaf, host, on)

    def _switch(self, table: dict[str, int], host: str, on: bool) -> None:
        count = table.get(host, 0) + (1 if on else -1)
        if count > 0:
            table[host] = count
        elif table.pop(host, None) is not None:
            self.changed()

    def machine_down(self, host: str) -> None:
        """A machine without power: mute and deaf."""
        if host not in self._down:
            self._down.add(host)
            self.mute(host, True)
            self.deafen(host, True)

    def machine_up(self, host: str) -> None:
        if host in self._down:
            self._down.discard(host)
            self.mute(host, False)
            self.deafen(host, False)

    def heal_all(self) -> None:
        """All links are whole and quick; machines without power stay so."""
        self._cut.clear()
        for table in (self._mute, self._deaf):
            table.clear()
            table.update(dict.fromkeys(sorted(self._down), 1))
        self._slow.clear()
        self._rate.clear()
        self._busy_until_s.clear()
        self.loss = 0.0
        self.changed()
