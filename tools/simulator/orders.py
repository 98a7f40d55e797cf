"""Requests that arrive a second time, when they are out of date: orders of the controller, and what the
leader of a group assigned.

A broker may read a request from a connection that its sender has long given up: the sender has sent
it again, has gone on, or is controller no more.  The simulated network delivers no bytes of a dead
connection, so each broker's LeaderAndIsr and StopReplica are kept here, over its restarts, to be
handed in once more.  Whatever a broker checks in an order must make that harmless.  Left out is what
Kafka itself cannot tell from a fresh order: StopReplica of a topic deletion carries no epoch, and a
LeaderAndIsr of a topic that is gone makes its replica anew where there is none.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from twisted.internet.defer import Deferred

from kafkalike.broker.handlers.request import RequestContext, Route
from kafkalike.messages.control import LeaderAndIsrRequest, StopReplicaRequest
from kafkalike.messages.groups import SyncGroupRequest
from kafkalike.runtime.tasks import as_deferred
from kafkalike.types import TopicPartition
from kafkalike.zk import paths

from .process import Process, SimRandom

if TYPE_CHECKING:
    from .world import World

KEPT: Final = 200
_KINDS: Final = (LeaderAndIsrRequest, StopReplicaRequest)
_KEPT_KINDS: Final = (*_KINDS, SyncGroupRequest)


class _Order(NamedTuple):
    life: int
    kind: type[Any]
    frame: bytes
    context: RequestContext

    def request(self) -> Any:
        return self.kind.decode(self.frame, self.context.header.api_version)


class KeptOrders:
    """The orders that one broker has had."""

    def __init__(self, world: "World", host: str) -> None:
        self._world = world
        self._host = host
        self._orders: deque[_Order] = deque(maxlen=KEPT)
        self._handlers: dict[type[Any], Callable[..., Any]] = {}
        self._life = 0
        self._process: Process | None = None
        self._armed: SimRandom | None = None
        self._armed_life = 0
        self._sync_armed = False
        self._syncs: deque[_Order] = deque(maxlen=KEPT)

    def wrapper(self, life: int, process: Process) -> Callable[[Route], Route]:
        """What the broker's Node puts around its handlers in this life."""
        self._life = life
        self._process = process
        self._handlers = {}

        def wrap(route: Route) -> Route:
            if route.request_class not in _KEPT_KINDS:
                return route
            handler = route.handler
            self._handlers[route.request_class] = handler

            def keep_sync(request: Any, context: RequestContext) -> Any:
                if self._sync_armed:
                    self._sync_first(request)
                if request.assignments:
                    frame = request.encode(context.header.api_version)
                    self._syncs.append(_Order(life, SyncGroupRequest, frame, context))
                return handler(request, context)

            def keep(request: Any, context: RequestContext) -> Any:
                if self._armed is not None and life > self._armed_life:
                    chance, self._armed = self._armed, None
                    self._hand_in(chance, lambda order: order.life < life, now=True)
                if _can_be_late(request):
                    frame = request.encode(context.header.api_version)
                    self._orders.append(_Order(life, type(request), frame, context))
                return handler(request, context)

            is_sync = route.request_class is SyncGroupRequest
            return replace(route, handler=keep_sync if is_sync else keep)

        return wrap

    def repeat(self, random: SimRandom, *, stops: bool, former_life: bool) -> None:
        """Hand in one of the kept orders, with `stops` a StopReplica; with `former_life` one of the
        present life, just before the first order of the next one.

        Nothing happens when there is none, or the broker does not run."""
        if former_life:
            self._armed, self._armed_life = random, self._life
            return
        self._hand_in(random, lambda order: not stops or issubclass(order.kind, StopReplicaRequest))

    def repeat_sync(self) -> None:
        """Let the assignment of an earlier generation arrive once more just before the first SyncGroup
        of the next one."""
        self._sync_armed = True

    def _sync_first(self, request: Any) -> None:
        for order in reversed(self._syncs):
            old = order.request()
            if old.group_id == request.group_id and old.generation_id < request.generation_id:
                self._sync_armed = False
                self._world.trace("late order", host=self._host, order="SyncGroupRequest")
                self._swallow(self._handlers[SyncGroupRequest](old, order.context))
                return

    def _revives(self, order: _Order) -> bool:
        """Whether it would make a replica that is not here, or whose topic is going."""
        if not issubclass(order.kind, LeaderAndIsrRequest):
            return False
        topics = self._world.topics()
        broker = next(one for one in self._world.brokers.values() if one.host == self._host)
        for topic in order.request().topic_states:
            name = topic.topic_name
            info = topics.get(name)
            going = f"{paths.DELETE_TOPICS}/{name}" in self._world.zk.tree.nodes
            partitions = {} if info is None or info.topic_id != topic.topic_id else info.partitions
            for state in topic.partition_states:
                assignment = None if going else partitions.get(state.partition_index)
                is_here = assignment is not None and broker.id in assignment.replicas
                partition = TopicPartition(name, state.partition_index)
                if not is_here and broker.log(partition) is None:
                    return True
        return False

    def _hand_in(
        self, random: SimRandom, fits: Callable[[_Order], bool], *, now: bool = False
    ) -> None:
        fitting = [order for order in self._orders if fits(order) and not self._revives(order)]
        stops = [order for order in fitting if issubclass(order.kind, StopReplicaRequest)]
        if stops and random.random() < 0.5:
            fitting = stops
        process = self._process
        if not fitting or process is None or not process.is_running:
            return
        order = random.choice(fitting)
        handler = self._handlers.get(order.kind)
        if handler is None:
            return
        self._world.trace("late order", host=self._host, order=order.kind.__name__, life=order.life)

        def hand_in() -> None:
            self._swallow(handler(order.request(), order.context))

        if now:
            hand_in()
        else:
            process.enter(hand_in)

    def _swallow(self, answer: Any) -> None:
        if isinstance(answer, Deferred) or hasattr(answer, "__await__"):
            as_deferred(answer).addErrback(lambda _: None)  # nobody waits for it


def _can_be_late(request: Any) -> bool:
    if isinstance(request, StopReplicaRequest):
        states = [state for topic in request.topic_states for state in topic.partition_states]
        return bool(states) and all(state.leader_epoch >= 0 for state in states)
    return True
