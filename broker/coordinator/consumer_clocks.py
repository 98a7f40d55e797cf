"""When members of groups of the newer protocol must have done something, and what then."""

from collections.abc import Callable
from typing import Final, Protocol

from kafkalike.runtime.tasks import WheelTimer

from .consumer_group import ConsumerGroup, Session
from .consumer_values import ConsumerMember, MemberState

REBALANCE: Final = "rebalance"
"""It is to give up partitions."""
JOIN: Final = "join"
"""A classic member is to join again."""
SYNC: Final = "sync"
"""A classic member is to ask for its assignment."""

Expel = Callable[[ConsumerGroup, str, str], None]
"""Removes a member from a group for a reason."""


class ClockHost(Protocol):
    """Where time comes from."""

    def monotonic(self) -> float: ...

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> WheelTimer: ...

    def session_timeout_ms(self, group_id: str) -> int: ...


class MemberClocks:
    """The timers of all groups; `expel` removes whose time is over."""

    def __init__(self, host: ClockHost, expel: Expel) -> None:
        self._host = host
        self._expel = expel

    def end(self, group: ConsumerGroup) -> None:
        """No more timers for a group."""
        for timer in (*group.timers.values(), *(s.timer for s in group.sessions.values())):
            if timer is not None:
                timer.cancel()
        group.timers.clear()
        group.sessions.clear()

    def touch(self, group: ConsumerGroup, member_id: str) -> None:
        """The member is alive: its session begins anew."""
        member = group.members.get(member_id)
        if member is None or group.is_dead:
            return
        limit_ms = (
            self._host.session_timeout_ms(group.group_id)
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        session = group.sessions.get(member_id)
        if session is None:
            session = group.sessions[member_id] = Session()
        # One timer a member: it is only set anew when it fires, or must fire earlier.
        limit_s = limit_ms / 1000
        expires_s = self._host.monotonic() + limit_s
        earlier = expires_s < session.expires_s
        session.expires_s = expires_s
        if session.timer is None or earlier:
            if session.timer is not None:
                session.timer.cancel()
            session.timer = self._host.call_later(limit_s, self._session_over, group, member_id)

    def _session_over(self, group: ConsumerGroup, member_id: str) -> None:
        session = group.sessions.get(member_id)
        if session is None or group.is_dead:
            return
        left_s = session.expires_s - self._host.monotonic()
        if left_s > 0:
            session.timer = self._host.call_later(left_s, self._session_over, group, member_id)
            return
        session.timer = None
        self._expel(group, member_id, "its session ended")

    def watch_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member that is to give up partitions has its rebalance timeout to do so."""
        if member.state is MemberState.UNREVOKED:
            self.start(
                group,
                REBALANCE,
                member.member_id,
                member.rebalance_timeout_ms,
                "it did not give up its partitions in time",
                member.epoch,
            )
        else:
            self.stop(group, REBALANCE, member.member_id)

    def start(
        self,
        group: ConsumerGroup,
        kind: str,
        member_id: str,
        delay_ms: int,
        reason: str,
        epoch: int | None = None,
    ) -> None:
        self.stop(group, kind, member_id)

        def over() -> None:
            group.timers.pop((kind, member_id), None)
            member = group.members.get(member_id)
            if member is not None and epoch in (None, member.epoch):
                self._expel(group, member_id, reason)

        group.timers[kind, member_id] = self._host.call_later(max(delay_ms, 0) / 1000, over)

    @staticmethod
    def stop(group: ConsumerGroup, kind: str, member_id: str) -> None:
        timer = group.timers.pop((kind, member_id), None)
        if timer is not None:
            timer.cancel()

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        """No more timers for somebody who is no member any more."""
        if member_id in group.members:
            return
        for kind in (REBALANCE, JOIN, SYNC):
            self.stop(group, kind, member_id)
        session = group.sessions.pop(member_id, None)
        if session is not None and session.timer is not None:
            session.timer.cancel()
