"""Every Kafka error code as an exception class (reference: Kafka protocol error table, 3.9).

Machines, logs and coordinators raise these; a request handler turns them into the error code of
one partition, topic or group; the dispatcher turns what is left into the error form of the whole
response.  `code` is what goes on the wire, `retriable` tells whether a client is expected to try
again.  Code 0 (NONE) has no class: success is not raised.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

NONE: Final = 0

_BY_CODE: Final[dict[int, "type[KafkaError]"]] = {}


class KafkaError(Exception):
    """Base of all errors that have a code in the Kafka protocol; `message` may be shown to a client."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    error_name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    record_errors: Sequence[tuple[int, str | None]] = ()
    """(index in the batch, what is wrong) of each refused record, where records were refused."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.error_name)
        self.message = message

    def __init_subclass__(cls, code: int, name: str, retriable: bool = False) -> None:
        cls.code = code
        cls.error_name = name
        cls.retriable = retriable
        _BY_CODE[code] = cls


def error_class(code: int) -> type[KafkaError]:
    """The class for a wire code; codes this table does not know map to UnknownServerError."""
    return _BY_CODE.get(code, UnknownServerError)


def error_name(code: int) -> str:
    """Kafka's name of a wire code, `NONE` for 0."""
    return "NONE" if code == NONE else error_class(code).error_name


class UnknownServerError(KafkaError, code=-1, name="UNKNOWN_SERVER_ERROR"):
    pass


class OffsetOutOfRange(KafkaError, code=1, name="OFFSET_OUT_OF_RANGE"):
    pass


class CorruptMessage(KafkaError, code=2, name="CORRUPT_MESSAGE", retriable=True):
    pass


class UnknownTopicOrPartition(
    KafkaError, code=3, name="UNKNOWN_TOPIC_OR_PARTITION", retriable=True
):
    pass


class InvalidFetchSize(KafkaError, code=4, name="INVALID_FETCH_SIZE"):
    pass


class LeaderNotAvailable(KafkaError, code=5, name="LEADER_NOT_AVAILABLE", retriable=True):
    pass


class NotLeaderOrFollower(KafkaError, code=6, name="NOT_LEADER_OR_FOLLOWER", retriable=True):
    pass


class RequestTimedOut(KafkaError, code=7, name="REQUEST_TIMED_OUT", retriable=True):
    pass


class BrokerNotAvailable(KafkaError, code=8, name="BROKER_NOT_AVAILABLE"):
    pass


class ReplicaNotAvailable(KafkaError, code=9, name="REPLICA_NOT_AVAILABLE", retriable=True):
    pass


class MessageTooLarge(KafkaError, code=10, name="MESSAGE_TOO_LARGE"):
    pass


class StaleControllerEpoch(KafkaError, code=11, name="STALE_CONTROLLER_EPOCH"):
    pass


class OffsetMetadataTooLarge(KafkaError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    pass


class NetworkException(KafkaError, code=13, name="NETWORK_EXCEPTION", retriable=True):
    pass


class CoordinatorLoadInProgress(
    KafkaError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS", retriable=True
):
    pass


class CoordinatorNotAvailable(
    KafkaError, code=15, name="COORDINATOR_NOT_AVAILABLE", retriable=True
):
    pass


class NotCoordinator(KafkaError, code=16, name="NOT_COORDINATOR", retriable=True):
    pass


class InvalidTopicException(KafkaError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    pass


class RecordListTooLarge(KafkaError, code=18, name="RECORD_LIST_TOO_LARGE"):
    pass


class NotEnoughReplicas(KafkaError, code=19, name="NOT_ENOUGH_REPLICAS", retriable=True):
    pass


class NotEnoughReplicasAfterAppend(
    KafkaError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND", retriable=True
):
    pass


class InvalidRequiredAcks(KafkaError, code=21, name="INVALID_REQUIRED_ACKS"):
    pass


class IllegalGeneration(KafkaError, code=22, name="ILLEGAL_GENERATION"):
    pass


class InconsistentGroupProtocol(KafkaError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    pass


class InvalidGroupId(KafkaError, code=24, name="INVALID_GROUP_ID"):
    pass


class UnknownMemberId(KafkaError, code=25, name="UNKNOWN_MEMBER_ID"):
    pass


class InvalidSessionTimeout(KafkaError, code=26, name="INVALID_SESSION_TIMEOUT"):
    pass


class RebalanceInProgress(KafkaError, code=27, name="REBALANCE_IN_PROGRESS"):
    pass


class InvalidCommitOffsetSize(KafkaError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    pass


class TopicAuthorizationFailed(KafkaError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    pass


class GroupAuthorizationFailed(KafkaError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    pass


class ClusterAuthorizationFailed(KafkaError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    pass


class InvalidTimestamp(KafkaError, code=32, name="INVALID_TIMESTAMP"):
    pass


class UnsupportedSaslMechanism(KafkaError, code=33, name="UNSUPPORTED_SASL_MECHANISM"):
    pass


class IllegalSaslState(KafkaError, code=34, name="ILLEGAL_SASL_STATE"):
    pass


class UnsupportedVersion(KafkaError, code=35, name="UNSUPPORTED_VERSION"):
    pass


class TopicAlreadyExists(KafkaError, code=36, name="TOPIC_ALREADY_EXISTS"):
    pass


class InvalidPartitions(KafkaError, code=37, name="INVALID_PARTITIONS"):
    pass


class InvalidReplicationFactor(KafkaError, code=38, name="INVALID_REPLICATION_FACTOR"):
    pass


class InvalidReplicaAssignment(KafkaError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    pass


class InvalidConfig(KafkaError, code=40, name="INVALID_CONFIG"):
    pass


class NotController(KafkaError, code=41, name="NOT_CONTROLLER", retriable=True):
    pass


class InvalidRequest(KafkaError, code=42, name="INVALID_REQUEST"):
    pass


class UnsupportedForMessageFormat(KafkaError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    pass


class PolicyViolation(KafkaError, code=44, name="POLICY_VIOLATION"):
    pass


class OutOfOrderSequenceNumber(KafkaError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    pass


class DuplicateSequenceNumber(KafkaError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    pass


class InvalidProducerEpoch(KafkaError, code=47, name="INVALID_PRODUCER_EPOCH"):
    pass


class InvalidTxnState(KafkaError, code=48, name="INVALID_TXN_STATE"):
    pass


class InvalidProducerIdMapping(KafkaError, code=49, name="INVALID_PRODUCER_ID_MAPPING"):
    pass


class InvalidTransactionTimeout(KafkaError, code=50, name="INVALID_TRANSACTION_TIMEOUT"):
    pass


class ConcurrentTransactions(KafkaError, code=51, name="CONCURRENT_TRANSACTIONS", retriable=True):
    pass


class TransactionCoordinatorFenced(KafkaError, code=52, name="TRANSACTION_COORDINATOR_FENCED"):
    pass


class TransactionalIdAuthorizationFailed(
    KafkaError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    pass


class SecurityDisabled(KafkaError, code=54, name="SECURITY_DISABLED"):
    pass


class OperationNotAttempted(KafkaError, code=55, name="OPERATION_NOT_ATTEMPTED"):
    pass


class KafkaStorageError(KafkaError, code=56, name="KAFKA_STORAGE_ERROR", retriable=True):
    pass


class LogDirNotFound(KafkaError, code=57, name="LOG_DIR_NOT_FOUND"):
    pass


class SaslAuthenticationFailed(KafkaError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    pass


class UnknownProducerId(KafkaError, code=59, name="UNKNOWN_PRODUCER_ID"):
    pass


class ReassignmentInProgress(KafkaError, code=60, name="REASSIGNMENT_IN_PROGRESS"):
    pass


class DelegationTokenAuthDisabled(KafkaError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"):
    pass


class DelegationTokenNotFound(KafkaError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"):
    pass


class DelegationTokenOwnerMismatch(KafkaError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"):
    pass


class DelegationTokenRequestNotAllowed(
    KafkaError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
):
    pass


class DelegationTokenAuthorizationFailed(
    KafkaError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    pass


class DelegationTokenExpired(KafkaError, code=66, name="DELEGATION_TOKEN_EXPIRED"):
    pass


class InvalidPrincipalType(KafkaError, code=67, name="INVALID_PRINCIPAL_TYPE"):
    pass


class NonEmptyGroup(KafkaError, code=68, name="NON_EMPTY_GROUP"):
    pass


class GroupIdNotFound(KafkaError, code=69, name="GROUP_ID_NOT_FOUND"):
    pass


class FetchSessionIdNotFound(
    KafkaError, code=70, name="FETCH_SESSION_ID_NOT_FOUND", retriable=True
):
    pass


class InvalidFetchSessionEpoch(
    KafkaError, code=71, name="INVALID_FETCH_SESSION_EPOCH", retriable=True
):
    pass


class ListenerNotFound(KafkaError, code=72, name="LISTENER_NOT_FOUND", retriable=True):
    pass


class TopicDeletionDisabled(KafkaError, code=73, name="TOPIC_DELETION_DISABLED"):
    pass


class FencedLeaderEpoch(KafkaError, code=74, name="FENCED_LEADER_EPOCH", retriable=True):
    pass


class UnknownLeaderEpoch(KafkaError, code=75, name="UNKNOWN_LEADER_EPOCH", retriable=True):
    pass


class UnsupportedCompressionType(KafkaError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"):
    pass


class StaleBrokerEpoch(KafkaError, code=77, name="STALE_BROKER_EPOCH"):
    pass


class OffsetNotAvailable(KafkaError, code=78, name="OFFSET_NOT_AVAILABLE", retriable=True):
    pass


class MemberIdRequired(KafkaError, code=79, name="MEMBER_ID_REQUIRED"):
    pass


class PreferredLeaderNotAvailable(
    KafkaError, code=80, name="PREFERRED_LEADER_NOT_AVAILABLE", retriable=True
):
    pass


class GroupMaxSizeReached(KafkaError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    pass


class FencedInstanceId(KafkaError, code=82, name="FENCED_INSTANCE_ID"):
    pass


class EligibleLeadersNotAvailable(
    KafkaError, code=83, name="ELIGIBLE_LEADERS_NOT_AVAILABLE", retriable=True
):
    pass


class ElectionNotNeeded(KafkaError, code=84, name="ELECTION_NOT_NEEDED", retriable=True):
    pass


class NoReassignmentInProgress(KafkaError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"):
    pass


class GroupSubscribedToTopic(KafkaError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    pass


class InvalidRecord(KafkaError, code=87, name="INVALID_RECORD"):
    pass


class UnstableOffsetCommit(KafkaError, code=88, name="UNSTABLE_OFFSET_COMMIT", retriable=True):
    pass


class ThrottlingQuotaExceeded(
    KafkaError, code=89, name="THROTTLING_QUOTA_EXCEEDED", retriable=True
):
    pass


class ProducerFenced(KafkaError, code=90, name="PRODUCER_FENCED"):
    pass


class ResourceNotFound(KafkaError, code=91, name="RESOURCE_NOT_FOUND"):
    pass


class DuplicateResource(KafkaError, code=92, name="DUPLICATE_RESOURCE"):
    pass


class UnacceptableCredential(KafkaError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    pass


class InconsistentVoterSet(KafkaError, code=94, name="INCONSISTENT_VOTER_SET"):
    pass


class InvalidUpdateVersion(KafkaError, code=95, name="INVALID_UPDATE_VERSION"):
    pass


class FeatureUpdateFailed(KafkaError, code=96, name="FEATURE_UPDATE_FAILED"):
    pass


class PrincipalDeserializationFailure(
    KafkaError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"
):
    pass


class SnapshotNotFound(KafkaError, code=98, name="SNAPSHOT_NOT_FOUND"):
    pass


class PositionOutOfRange(KafkaError, code=99, name="POSITION_OUT_OF_RANGE"):
    pass


class UnknownTopicId(KafkaError, code=100, name="UNKNOWN_TOPIC_ID", retriable=True):
    pass


class DuplicateBrokerRegistration(KafkaError, code=101, name="DUPLICATE_BROKER_REGISTRATION"):
    pass


class BrokerIdNotRegistered(KafkaError, code=102, name="BROKER_ID_NOT_REGISTERED"):
    pass


class InconsistentTopicId(KafkaError, code=103, name="INCONSISTENT_TOPIC_ID", retriable=True):
    pass


class InconsistentClusterId(KafkaError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    pass


class TransactionalIdNotFound(KafkaError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"):
    pass


class FetchSessionTopicIdError(
    KafkaError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR", retriable=True
):
    pass


class IneligibleReplica(KafkaError, code=107, name="INELIGIBLE_REPLICA"):
    pass


class NewLeaderElected(KafkaError, code=108, name="NEW_LEADER_ELECTED"):
    pass


class OffsetMovedToTieredStorage(KafkaError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"):
    pass


class FencedMemberEpoch(KafkaError, code=110, name="FENCED_MEMBER_EPOCH"):
    pass


class UnreleasedInstanceId(KafkaError, code=111, name="UNRELEASED_INSTANCE_ID"):
    pass


class UnsupportedAssignor(KafkaError, code=112, name="UNSUPPORTED_ASSIGNOR"):
    pass


class StaleMemberEpoch(KafkaError, code=113, name="STALE_MEMBER_EPOCH"):
    pass


class MismatchedEndpointType(KafkaError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    pass


class UnsupportedEndpointType(KafkaError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"):
    pass


class UnknownControllerId(KafkaError, code=116, name="UNKNOWN_CONTROLLER_ID"):
    pass


class UnknownSubscriptionId(KafkaError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"):
    pass


class TelemetryTooLarge(KafkaError, code=118, name="TELEMETRY_TOO_LARGE"):
    pass


class InvalidRegistration(KafkaError, code=119, name="INVALID_REGISTRATION"):
    pass


class TransactionAbortable(KafkaError, code=120, name="TRANSACTION_ABORTABLE"):
    pass


class InvalidRecordState(KafkaError, code=121, name="INVALID_RECORD_STATE"):
    pass


class ShareSessionNotFound(KafkaError, code=122, name="SHARE_SESSION_NOT_FOUND", retriable=True):
    pass


class InvalidShareSessionEpoch(
    KafkaError, code=123, name="INVALID_SHARE_SESSION_EPOCH", retriable=True
):
    pass


class FencedStateEpoch(KafkaError, code=124, name="FENCED_STATE_EPOCH"):
    pass


class InvalidVoterKey(KafkaError, code=125, name="INVALID_VOTER_KEY"):
    pass


class DuplicateVoter(KafkaError, code=126, name="DUPLICATE_VOTER"):
    pass


class VoterNotFound(KafkaError, code=127, name="VOTER_NOT_FOUND"):
    pass


class InvalidRegularExpression(KafkaError, code=128, name="INVALID_REGULAR_EXPRESSION"):
    """Of Kafka 4; only the newer group protocol says it."""
