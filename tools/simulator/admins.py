"""The simulated administrator: creates, deletes, grows topics, moves replicas, asks for elections."""

from typing import Any, Final

from kafkalike.errors import NONE, NotController, RequestTimedOut
from kafkalike.messages.cluster import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kafkalike.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from kafkalike.net.client import PeerError
from kafkalike.types import TopicPartition

from .clients import ClientPorts, NotKnown, SimClient, refusal
from .history import (
    AddPartitions,
    CreateTopic,
    DeletedRecords,
    DeleteRecords,
    DeleteTopic,
    Elect,
    NoAnswer,
    Reassign,
    Refused,
)

CREATE_VERSION: Final = 5
DELETE_VERSION: Final = 5
PARTITIONS_VERSION: Final = 2
REASSIGN_VERSION: Final = 0
ELECT_VERSION: Final = 2
RECORDS_VERSION: Final = 2
TIMEOUT_MS: Final = 3000


class Admin(SimClient):
    """Asks the controller.  Methods return whether it said yes; every request is an operation."""

    def __init__(self, name: str, ports: ClientPorts) -> None:
        super().__init__(name, ports)

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        configs: tuple[tuple[str, str], ...] = (),
        assignment: tuple[tuple[int, ...], ...] = (),
    ) -> bool:
        """With `assignment` (replicas by partition) the two numbers are not sent."""
        kind = CreateTopicsRequest.CreatableTopic
        asked = kind(
            name=topic,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1 if assignment else replication_factor,
            assignments=[
                kind.CreatableReplicaAssignment(partition_index=i, broker_ids=list(replicas))
                for i, replicas in enumerate(assignment)
            ],
            configs=[kind.CreatableTopicConfig(name=n, value=v) for n, v in configs],
        )
        request = CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
        return await self._do(
            CreateTopic(topic, partitions, replication_factor, configs),
            request,
            CREATE_VERSION,
            lambda response: response.topics[0].error_code,
        )

    async def delete_topic(self, topic: str) -> bool:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)
        return await self._do(
            DeleteTopic(topic), request, DELETE_VERSION, lambda r: r.responses[0].error_code
        )

    async def add_partitions(self, topic: str, count: int) -> bool:
        """`count`: how many there shall be."""
        asked = CreatePartitionsRequest.CreatePartitionsTopic(
            name=topic, count=count, assignments=None
        )
        request = CreatePartitionsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
        return await self._do(
            AddPartitions(topic, count),
            request,
            PARTITIONS_VERSION,
            lambda r: r.results[0].error_code,
        )

    async def reassign(self, partition: TopicPartition, replicas: tuple[int, ...]) -> bool:
        """Without replicas a running move is cancelled."""
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        one = kind.ReassignablePartition(
            partition_index=partition.partition, replicas=list(replicas) or None
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[kind(name=partition.topic, partitions=[one])], timeout_ms=TIMEOUT_MS
        )
        return await self._do(
            Reassign(partition, replicas),
            request,
            REASSIGN_VERSION,
            lambda r: r.error_code or r.responses[0].partitions[0].error_code,
        )

    async def elect(self, partition: TopicPartition, *, unclean: bool = False) -> bool:
        request = ElectLeadersRequest(
            election_type=1 if unclean else 0,
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(
                    topic=partition.topic, partitions=[partition.partition]
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )

        def code(response: Any) -> int:
            if response.error_code:
                return int(response.error_code)
            results = response.replica_election_results
            return int(results[0].partition_result[0].error_code) if results else NONE

        return await self._do(Elect(partition, unclean), request, ELECT_VERSION, code)

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int | None:
        """The new start of the log; None when it is not known."""
        operation = self.history.invoke(self.name, DeleteRecords(partition, before_offset))
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        one = kind.DeleteRecordsPartition(partition_index=partition.partition, offset=before_offset)
        request = DeleteRecordsRequest(
            topics=[kind(name=partition.topic, partitions=[one])], timeout_ms=TIMEOUT_MS
        )
        try:
            response = await self.ask(self.leader_of(partition), request, RECORDS_VERSION)
        except (PeerError, NotKnown) as error:
            self.history.unknown(self.name, operation, NoAnswer(type(error).__name__))
            await self.refresh()
            return None
        answer = response.topics[0].partitions[0]
        if answer.error_code != NONE:
            self.history.unknown(self.name, operation, Refused(refusal(answer.error_code)))
            await self.refresh()
            return None
        low: int = answer.low_watermark
        self.history.ok(self.name, operation, DeletedRecords(low))
        return low

    async def _do(self, what: object, request: Any, version: int, code_of: Any) -> bool:
        operation = self.history.invoke(self.name, what)
        try:
            if self.controller_id < 0:
                raise NotKnown("no controller is known")
            response = await self.ask(self.controller_id, request, version)
        except NotKnown as error:
            self.history.fail(self.name, operation, NoAnswer(str(error)))
            await self.refresh()
            return False
        except PeerError as error:
            self.history.unknown(self.name, operation, NoAnswer(type(error).__name__))
            self.forget(self.controller_id)
            await self.refresh()
            return False
        code: int = code_of(response)
        if code == NONE:
            self.history.ok(self.name, operation)
            return True
        answer = Refused(refusal(code))
        if code == RequestTimedOut.code:
            self.history.unknown(self.name, operation, answer)
        else:
            self.history.fail(self.name, operation, answer)
        if code == NotController.code:
            await self.refresh()
        return False
