"""Incremental fetch sessions, server side (KIP-227; reference: replication 11)."""

from collections.abc import Callable, Sequence

from kafkalike.messages.fetch import FetchRequest, FetchResponse
from kafkalike.types import ZERO_UUID

from .values import FetchPartition


class FetchContext:
    """One Fetch and how its answer is put together: full, sessionless, incremental or final."""

    def partitions(self) -> Sequence[FetchPartition]:
        """The partitions to look at now, in the order of the answer.

        In an incremental fetch those that the request named or that changed since the last answer.
        """
        raise NotImplementedError

    def respond(
        self,
        results: Sequence[
            tuple[FetchPartition, FetchResponse.FetchableTopicResponse.PartitionData]
        ],
    ) -> FetchResponse:
        """The answer, and what the session must remember of it."""
        raise NotImplementedError


class FetchSessions:
    """The cache of sessions of one broker."""

    def begin(
        self,
        request: FetchRequest,
        version: int,
        *,
        is_follower: bool,
        topic_name: Callable[[bytes], str | None],
        topic_id: Callable[[str], bytes] = lambda _: ZERO_UUID,
    ) -> FetchContext:
        """Find or open the session of a Fetch.

        Partitions with an id that `topic_name` does not know get UNKNOWN_TOPIC_ID as `error_code`.
        Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError: the
        answer is that error at top level with no partitions.
        """
        raise NotImplementedError

    def mark_all_changed(self) -> None:
        """Look at every partition of every session again (permissions changed)."""
        raise NotImplementedError
