"""One story of a consumer group through several clients: it grows, shrinks in every way, loses its
coordinator, gets more partitions; nobody reads what another owns, nothing is skipped or forgotten."""

import time

import pytest
from confluent_kafka.cimpl import NewPartitions

from tests.integration import clients
from tests.integration.brokers import ClusterMaker, eventually
from tests.integration.groups.member import SESSION_MS
from tests.integration.groups.watch import Party, party

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

LIBRARIES = ("confluent", "confluent-cooperative", "kafka-python", "aiokafka")


def add_partitions(crowd: Party, count: int) -> None:
    admin = clients.admin(crowd.cluster.bootstrap)
    admin.create_partitions([NewPartitions(crowd.topic, count)])[crowd.topic].result(30)
    crowd.partitions = count


@pytest.mark.parametrize("library", LIBRARIES)
def test_group_story(make_cluster: ClusterMaker, library: str) -> None:
    with party(make_cluster, library) as crowd:
        crowd.start("a")
        crowd.settle()
        for name in "bc":
            crowd.start(name)
        crowd.settle()
        for name in "def":
            crowd.start(name)
        crowd.settle()
        crowd.progress()
        crowd.leave("b")
        crowd.settle()
        crowd.kill("c")
        crowd.settle()
        crowd.freeze("d")
        time.sleep(SESSION_MS / 1000 + 3)
        crowd.thaw("d")
        crowd.settle()
        killed = crowd.coordinator()
        crowd.cluster[killed].kill()
        crowd.settle()
        crowd.progress()
        crowd.cluster[killed].start()
        add_partitions(crowd, 16)
        crowd.settle()
        crowd.progress()
        for name in "ef":
            crowd.leave(name)
        crowd.settle()
        crowd.finish()


def test_clients_of_all_libraries_share_a_group(make_cluster: ClusterMaker) -> None:
    with party(make_cluster, "confluent") as crowd:
        for library in ("kafka-python", "aiokafka", "confluent"):
            crowd.start(library, library=library)
        crowd.settle()
        crowd.progress()
        crowd.kill("aiokafka")
        crowd.settle()
        crowd.start("again", library="aiokafka")
        crowd.settle()
        crowd.progress()
        crowd.finish()


@pytest.mark.parametrize("library", ["confluent", "kafka-python"])
def test_static_members_restart_without_a_rebalance(
    make_cluster: ClusterMaker, library: str
) -> None:
    with party(make_cluster, library) as crowd:
        for name in "abc":
            crowd.start(name, instance=f"i-{name}")
        crowd.settle()
        crowd.progress()
        for name in "abc":
            others = [m for other, m in crowd.members.items() if other != name]
            before = [(member.changes, sorted(member.owned)) for member in others]
            owned = sorted(crowd.members[name].owned)
            crowd.kill(name)
            again = crowd.start(name, instance=f"i-{name}")
            crowd.settle()
            assert sorted(again.owned) == owned
            assert [(m.changes, sorted(m.owned)) for m in others] == before
        crowd.finish()


def test_second_of_one_instance_id_fences_the_first(make_cluster: ClusterMaker) -> None:
    with party(make_cluster, "confluent") as crowd:
        first = crowd.start("first", instance="one")
        crowd.settle()
        first.end(0)
        crowd.start("second", instance="one")
        del crowd.members["first"]
        crowd.settle()
        crowd.progress()
        assert len(crowd.describe().members) == 1


@pytest.mark.parametrize("moment", ["joining", "rebalancing", "stable", "empty"])
def test_coordinator_is_killed_at_each_moment(make_cluster: ClusterMaker, moment: str) -> None:
    with party(make_cluster, "confluent") as crowd:
        crowd.start("a")
        crowd.start("b")
        if moment != "joining":
            crowd.settle()
            crowd.progress()
        if moment == "rebalancing":
            crowd.freeze("b")  # the rebalance waits for it
            crowd.start("c")
            time.sleep(2)
        if moment == "empty":
            crowd.leave("a")
            crowd.leave("b")
        killed = eventually(crowd.coordinator, what="a coordinator")
        crowd.cluster[killed].kill()
        if moment == "rebalancing":
            crowd.thaw("b")
        if moment == "empty":
            crowd.start("a")
        crowd.settle()
        crowd.cluster[killed].start()
        crowd.progress()
        crowd.settle()
        crowd.finish()
