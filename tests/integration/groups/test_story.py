"""One story of consumer groups through all client libraries: they grow, shrink in every way, lose their
coordinator, get more to read, are restarted one by one; nobody reads what another owns, nothing is
skipped or forgotten, nothing committed goes back."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafkalike.messages.groups import DeleteGroupsRequest, JoinGroupRequest, JoinGroupResponse
from kafkalike.messages.stored import ConsumerProtocolSubscription, encode_versioned
from kafkalike.protocol.headers import decode_response_header
from tests.differential.case import frame
from tests.differential.wire import Connection
from tests.integration.brokers import FAST, ClusterMaker, eventually
from tests.integration.client_matrix.programs import FULL, ClientMissing
from tests.integration.groups.member import REBALANCE_MS, SESSION_MS
from tests.integration.groups.watch import Party, party
from tests.integration.test_three_brokers import files_of

pytestmark = [pytest.mark.real_zookeeper, pytest.mark.slow]

COUPLES = (
    ("confluent", "java-cooperative"),
    ("confluent-cooperative", "kafkajs"),
    ("kafka-python", "sarama"),
    ("aiokafka", "franz-go"),
)
"""Two groups of different clients go through the story beside each other."""

MORE_COUPLES = (("java", "franz-go-cooperative"),)
more_of_the_same = pytest.mark.skipif(
    not FULL, reason="other clients or moments do the same; KAFKALIKE_FULL=1 runs it"
)
WITHOUT_EXPRESSIONS = ("sarama",)
WITHOUT_NEW_TOPICS = (*WITHOUT_EXPRESSIONS, "kafkajs")
"""kafkajs looks once which topics its expression matches."""


class Crowd:
    """Parties that do the same at the same time on one cluster."""

    def __init__(self, parties: list[Party]) -> None:
        self.parties = parties
        self.cluster = parties[0].cluster

    def start(self, names: str) -> None:
        for name in names:
            for one in self.parties:
                one.start(name)

    def each(self, act: Callable[[Party], object]) -> None:
        """At the same time for all; the first error is raised."""
        errors: list[BaseException] = []

        def run(one: Party) -> None:
            try:
                act(one)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(one,)) for one in self.parties]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def settle(self) -> None:
        self.each(Party.settle)

    def progress(self) -> None:
        self.each(Party.progress)

    def leave(self, name: str) -> None:
        self.each(lambda one: one.leave(name))


@contextlib.contextmanager
def crowd_of(make_cluster: ClusterMaker, libraries: tuple[str, ...]) -> Iterator[Crowd]:
    with contextlib.ExitStack() as stack:
        cluster = make_cluster(3, offsets_topic_replication_factor="3", min_insync_replicas="2")
        parties = []
        for library in libraries:
            regular = library not in WITHOUT_EXPRESSIONS
            one = Party(cluster, library, group=f"party-{library}", by_expression=regular)
            stack.callback(one.close)
            try:
                one.command(library)
            except ClientMissing as missing:
                pytest.skip(str(missing))
            parties.append(one)
        yield Crowd(parties)


@pytest.mark.parametrize(
    "libraries",
    [*COUPLES, *(pytest.param(couple, marks=more_of_the_same) for couple in MORE_COUPLES)],
    ids=" ".join,
)
def test_group_story(make_cluster: ClusterMaker, libraries: tuple[str, ...]) -> None:
    with crowd_of(make_cluster, libraries) as crowd:
        crowd.start("a")
        crowd.settle()
        crowd.start("bcd")
        crowd.settle()
        crowd.start("efgh")
        crowd.settle()
        crowd.progress()
        crowd.leave("b")
        crowd.settle()
        crowd.each(lambda one: one.kill("c"))
        crowd.each(lambda one: one.freeze("d"))
        time.sleep(SESSION_MS / 1000 + 3)
        crowd.each(lambda one: one.thaw("d"))
        crowd.settle()
        # the coordinator goes, and comes back
        killed = crowd.parties[0].coordinator()
        crowd.cluster[killed].kill()
        crowd.settle()
        crowd.progress()
        crowd.cluster[killed].start()
        # more to read
        for one in crowd.parties:
            one.add_partitions(16)
            if one.library not in WITHOUT_NEW_TOPICS:
                one.add_topic(3)
        crowd.settle()
        crowd.progress()
        # every member is restarted
        for name in "adefgh":
            crowd.leave(name)
            crowd.start(name)
        crowd.settle()
        crowd.progress()
        for name in "ef":
            crowd.leave(name)
        crowd.settle()
        crowd.each(Party.finish)


@pytest.mark.parametrize(
    "library",
    [
        "confluent",
        pytest.param("kafka-python", marks=more_of_the_same),
        pytest.param("aiokafka", marks=more_of_the_same),
    ],
)
def test_assignments_wait_for_a_replica_that_stands_still(
    make_cluster: ClusterMaker, library: str
) -> None:
    with party(make_cluster, library) as crowd:
        for name in "ab":
            crowd.start(name)
        crowd.settle()
        crowd.progress()
        coordinator = crowd.coordinator()
        slow = crowd.cluster[coordinator % 3 + 1]

        for name in "cd":
            # SyncGroup is answered when all of the ISR have the group's record
            slow.freeze()
            crowd.start(name)
            time.sleep(2.0)
            slow.thaw()
            crowd.settle()
        crowd.progress()
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


@pytest.mark.parametrize(
    "library", ["confluent", pytest.param("kafka-python", marks=more_of_the_same)]
)
def test_static_members_restart_without_a_rebalance(
    make_cluster: ClusterMaker, library: str
) -> None:
    # Nothing here waits for the end of a session, and a restart must be over before it.
    with party(make_cluster, library, session_ms=REBALANCE_MS) as crowd:
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


def stays_silent(crowd: Party) -> None:
    """A member that leads, and never says who reads what: the others wait for it."""
    crowd.leave("a")
    connection = Connection(crowd.cluster[crowd.coordinator()].port)
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=[crowd.topic]), 1)
    request = JoinGroupRequest(
        group_id=crowd.group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )

    def join() -> JoinGroupResponse:
        connection.send(frame(request, 5))
        received = connection.receive(30)
        _, position = decode_response_header(received, request.api_key, 5)
        return JoinGroupResponse.decode(received, 5, position)

    request.member_id = join().member_id
    assert join().leader == request.member_id
    crowd.start("a")
    eventually(lambda: crowd.describe().group_state == "PreparingRebalance", what="a joins")
    joined = join()
    assert (joined.error_code, joined.leader) == (0, request.member_id)
    assert crowd.describe().group_state == "CompletingRebalance"


def test_a_deleted_group_stays_deleted_when_its_coordinator_dies(
    make_cluster: ClusterMaker,
) -> None:
    with party(make_cluster, "confluent") as crowd:
        crowd.start("a")
        crowd.settle()
        crowd.progress()
        crowd.leave("a")
        request = DeleteGroupsRequest(groups_names=[crowd.group])
        (deleted,) = crowd._ask_coordinator(request, 2).results
        assert deleted.error_code == 0
        # It is answered before it is replicated, as in Kafka.
        eventually(
            lambda: all(
                files_of(broker, "__consumer_offsets", number)
                == files_of(crowd.cluster[1], "__consumer_offsets", number)
                for broker in crowd.cluster.brokers
                for number in range(int(FAST["offsets.topic.num.partitions"]))
            ),
            what="replicas of the groups' topic are equal",
        )
        killed = crowd.coordinator()
        crowd.cluster[killed].kill()
        eventually(lambda: crowd.coordinator() != killed, what="another coordinator")
        assert eventually(crowd.describe, what="a description").group_state == "Dead"
        assert crowd.committed() == {}


@pytest.mark.parametrize(
    "moment",
    [
        "rebalancing",
        "completing",
        *(
            pytest.param(moment, marks=more_of_the_same)
            for moment in ("joining", "stable", "empty")
        ),
    ],
)
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
        if moment == "completing":
            crowd.leave("b")
            stays_silent(crowd)
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
