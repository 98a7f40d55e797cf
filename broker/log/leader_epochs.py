"""Which leader epoch started at which offset (KIP-101, 279).

Reference: log-store 2.3, replication 9.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

UNDEFINED: Final = (-1, -1)
FILE_NAME: Final = "leader-epoch-checkpoint"


class LeaderEpochs:
    """Epochs and their start offsets, both strictly increasing.

    `on_change` is called after each change: the owner writes the checkpoint.
    """

    __slots__ = ("_epochs", "_on_change", "_starts")

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._on_change = on_change

    def load(self, entries: list[tuple[int, int]]) -> None:
        """Take over what the checkpoint file held."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts))

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Epoch `epoch` starts at `start_offset`; False when that was known.

        Entries that contradict it (same or later epoch, same or later start) are replaced.  Raises
        ValueError for negative values.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: neither may be negative")
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return False
        keep = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))
        del epochs[keep:], starts[keep:]
        epochs.append(epoch)
        starts.append(start_offset)
        self._on_change()
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, where the next one starts); (-1, -1) when unknown."""
        epochs, starts = self._epochs, self._starts
        if epoch == -1 or not epochs:  # other epochs below 0 count as older than the first
            return UNDEFINED
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        if epoch > epochs[-1]:
            return UNDEFINED
        above = bisect_right(epochs, epoch)
        if above == 0:
            return epoch, starts[0]
        return epochs[above - 1], starts[above]

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which `offset` was written; None below the first entry."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def first_entry_covers(self, offset: int) -> bool:
        """Whether the first known epoch starts at or below `offset`."""
        return bool(self._starts) and self._starts[0] <= offset

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that start at or above `end_offset`; True when something went."""
        keep = bisect_left(self._starts, end_offset)
        if keep == len(self._starts):
            return False
        del self._epochs[keep:], self._starts[keep:]
        self._on_change()
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Of the epochs that start at or below `start_offset` keep the last, starting there."""
        count = bisect_right(self._starts, start_offset)
        if count == 0 or (count == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: count - 1], self._starts[: count - 1]
        self._starts[0] = start_offset
        self._on_change()
        return True

    def clear(self) -> None:
        """Forget all epochs."""
        if self._epochs:
            self._epochs, self._starts = [], []
            self._on_change()
