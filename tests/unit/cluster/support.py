"""UpdateMetadata requests in one line."""

from collections.abc import Mapping, Sequence

from kafkalike.messages.control import UpdateMetadataRequest
from kafkalike.types import ZERO_UUID

Partition = tuple[int, int, list[int]]
"""Number, leader, replicas (all in sync)."""

_Broker = UpdateMetadataRequest.UpdateMetadataBroker


def update_metadata(
    topics: Mapping[str, Sequence[Partition]],
    *,
    brokers: Sequence[int] = (1, 2, 3),
    controller: int = 1,
    ids: Mapping[str, bytes] | None = None,
    racks: Mapping[int, str] | None = None,
    listener: str = "PLAINTEXT",
) -> UpdateMetadataRequest:
    """Brokers listen on host `h<id>`, port 9000 + id."""
    return UpdateMetadataRequest(
        controller_id=controller,
        controller_epoch=1,
        topic_states=[
            UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=(ids or {}).get(name, ZERO_UUID),
                partition_states=[
                    UpdateMetadataRequest.UpdateMetadataPartitionState(
                        partition_index=number,
                        controller_epoch=1,
                        leader=leader,
                        leader_epoch=0,
                        isr=list(replicas),
                        replicas=list(replicas),
                    )
                    for number, leader, replicas in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
        live_brokers=[
            _Broker(
                id=broker_id,
                rack=(racks or {}).get(broker_id),
                endpoints=[
                    _Broker.UpdateMetadataEndpoint(
                        port=9000 + broker_id,
                        host=f"h{broker_id}",
                        listener=listener,
                        security_protocol=0,
                    )
                ],
            )
            for broker_id in brokers
        ],
    )
