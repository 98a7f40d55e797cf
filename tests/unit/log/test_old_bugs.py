"""Known bugs of this design that no other file tells (`tests/history.py` names the test of each)."""

import pytest
from twisted.internet.defer import Deferred

from tests.fakes import FakeRandom

from .test_cleaner import Compaction


@pytest.mark.parametrize("seed", range(30))
def test_kafka_13194_compaction_stays_below_what_is_committed(seed: int) -> None:
    """Whatever happens, it touches nothing above min(high watermark, stable offset, active segment)."""
    chance = FakeRandom(seed)
    world = Compaction()
    log = world.log
    is_open, sequence = False, 0
    cleaned = 0
    for _ in range(60):
        what = chance.randrange(8)
        if what < 3:
            world.put(f"k{chance.randrange(3)}", "v")
        elif what == 3:
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            world.put(f"k{chance.randrange(3)}", "t", transactional=True, **fields)
            is_open, sequence = True, sequence + 1
        elif what == 4 and is_open:
            world.end(7, commit=chance.randrange(2) == 0)
            is_open = False
        elif what == 5:
            log.roll()
        elif what == 6:
            behind = log.log_end_offset - log.high_watermark
            log.update_high_watermark(log.high_watermark + chance.randrange(behind + 1))
        else:
            bound = min(log.high_watermark, log.last_stable_offset, log.segments[-1].base_offset)
            above = [b.view().tobytes() for b in world.batches() if b.last_offset >= bound]
            _, uncleanable = world.cleaner.dirty_range(log)
            assert uncleanable <= max(bound, log.log_start_offset)
            work = Deferred.fromCoroutine(world.cleaner.clean_one())
            while not work.called:
                world.clock.advance(0.01)
            cleaned += 1
            now = [b.view().tobytes() for b in world.batches() if b.last_offset >= bound]
            assert now == above
    assert cleaned > 2
