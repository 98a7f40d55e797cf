from pathlib import Path
from tests.unit.replica.support import *
from tests.unit.replica.support import T0
from tests.fakes import FakeClock, result_of

def test_one(tmp_path: Path) -> None:
    clock = FakeClock()
    b = Broker(1, tmp_path, clock)
    assert b.lead() == 0
    r = result_of(b.produce("a", "b"))
    assert r.error_code == 0, r
    assert (r.base_offset, r.last_offset) == (0, 1)
    d = b.read(0)
    assert values_of(d.records) == ["a", "b"]
    assert d.high_watermark == 2

def test_three(tmp_path: Path) -> None:
    c = Cluster(tmp_path)
    c.controller.create(T0, 1, 2, 3)
    c.settle()
    r = c.produce(1, "x", "y")
    assert r.error_code == 0 and r.base_offset == 0
    assert contents(c[2].log()) == contents(c[1].log())
    c.advance(1)
    assert c[2].log().high_watermark == 2
