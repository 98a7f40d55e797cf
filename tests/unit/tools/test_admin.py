"""What `kafkalike-admin` says of requests that cannot be sent."""

import pytest
from twisted.internet.defer import Deferred

from kafkalike.messages.topics import CreateTopicsRequest
from kafkalike.tools import cli
from kafkalike.tools.admin.client import AdminClient
from tests.fakes import failure_of
from tests.unit.tools.test_bench import SmallBroker
from tests.worlds import SimulatedWorld


@pytest.mark.parametrize(
    ("field", "value"), [("replication_factor", 99_999), ("num_partitions", 1 << 40)]
)
def test_a_number_that_does_not_fit_is_wrong_usage(field: str, value: int) -> None:
    world = SimulatedWorld()
    broker = SmallBroker(world)
    client = AdminClient(world.network, world.clock, [("broker", broker.port)], 5.0)
    topic = CreateTopicsRequest.CreatableTopic(name="t")
    setattr(topic, field, value)
    request = CreateTopicsRequest(topics=[topic])
    done = Deferred.fromCoroutine(client.any_broker(request))
    world.until(lambda: bool(done.called))
    assert field in str(failure_of(done, cli.UsageError))
