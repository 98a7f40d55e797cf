"""Records that were cut and are back after a power loss: the cut never came to the disk.

The file of leader epochs is synced whenever it is written, so it may tell of what came after the cut.
"""

import pytest

from .support import PATH, World, append


@pytest.mark.parametrize("newer", ["4 2", "4 1", "2 3"])
def test_they_have_their_own_epoch(newer: str) -> None:
    """With the newer one this log would pass for one that goes on where its leader's does."""
    world = World()
    log = world.load()
    for number in range(5):
        append(log, f"v{number}", epoch=1)
    log.close()
    world.disk.write_atomic(f"{PATH}/leader-epoch-checkpoint", f"0\n2\n1 0\n{newer}\n".encode())
    again = world.load()
    assert again.log_end_offset == 5
    assert again.leader_epochs == [(1, 0)]
    assert again.end_offset_for_epoch(4) == (-1, -1)


def test_newer_ones_behind_them_are_known_again() -> None:
    world = World()
    log = world.load()
    for epoch in (1, 1, 1, 5, 6):
        append(log, "v", epoch=epoch)
    log.close()
    world.disk.write_atomic(f"{PATH}/leader-epoch-checkpoint", b"0\n4\n1 0\n4 2\n5 3\n6 4\n")
    assert world.load().leader_epochs == [(1, 0), (5, 3), (6, 4)]
