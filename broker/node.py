"""One broker: builds its parts, wires them, starts and stops them in order.

`Node(config, runtime, zk)` reaches the outside world through its arguments only, so that the same
node runs as a process, beside others in one test process, and in the simulator.

Start (reference: zookeeper 8): ZooKeeper, identity, dynamic configuration, logs, listeners,
registration, controller.  Listeners accept just before the broker is registered, so that a client
that hears of it never finds a closed door, but not while the session of an earlier life goes on, for
which clients still take it; Metadata answers wait for the controller's first word.  Stop: leadership
is moved away while still serving, then listeners, replicas, logs, controller, session.

To add an API: build its handler in `_build_apis` and put it into the list there.
"""

import copy
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred

from kafkalike.config import BrokerConfig
from kafkalike.controller.controller import ControllerPorts, KafkaController
from kafkalike.controller.term import ControllerSettings
from kafkalike.errors import DuplicateBrokerRegistration
from kafkalike.metrics import Metrics
from kafkalike.net.client import BrokerClient
from kafkalike.net.peers import PeerAddress, Peers
from kafkalike.runtime.ports import Runtime, SocketBuffers
from kafkalike.runtime.tasks import Tasks, TimedOut, TimerWheel, sleep, timeout
from kafkalike.types import NO_BROKER_EPOCH, Endpoint, TopicPartition
from kafkalike.zk import admin as zk_admin
from kafkalike.zk import topics as zk_topics
from kafkalike.zk.client import OperationTimeout, SessionExpired, SessionState, ZkClient, ZkError

from .auth.authorizer import Authorizer, PermissiveAuthorizer
from .cluster.auto_topics import AutoTopics
from .cluster.awaiting import FirstUpdate, MetadataWaiter
from .cluster.config_admin import ConfigAdmin
from .cluster.config_sync import ConfigSync
from .cluster.controller_channel import ControllerChannel
from .cluster.dynamic_config import GROUPS, DynamicConfig
from .cluster.features import Features
from .cluster.identity import Identity, settle_identity
from .cluster.loggers import Loggers
from .cluster.metadata_cache import MetadataCache, MetadataUpdate
from .cluster.presence import Departure, Presence, across_sessions
from .cluster.producer_ids import ProducerIds
from .cluster.standing import read_standing
from .cluster.topic_admin import TopicAdmin
from .cluster.topic_names import GROUP_METADATA_TOPIC
from .coordinator.group_settings import GroupConfigs
from .coordinator.groups import GroupCoordinator
from .coordinator.old_offsets import OldOffsets
from .coordinator.snapshots import SnapshotKeeper
from .coordinator.topics import CachedTopics
from .handlers.api_versions import ApiVersionsApi
from .handlers.cluster import ClusterApi
from .handlers.configs import ConfigsApi
from .handlers.control import ControlApi, ControllerApi
from .handlers.fetch import FetchApi
from .handlers.groups import GroupsApi
from .handlers.leaders import CurrentLeaders
from .handlers.list_offsets import ListOffsetsApi
from .handlers.log_dirs import LogDirsApi
from .handlers.metadata import MetadataApi
from .handlers.offsets import OffsetsApi
from .handlers.produce import ProduceApi
from .handlers.request import Route
from .handlers.topics import DeleteRecordsApi, TopicsApi
from .handlers.transactions import ProducerIdApi
from .journal import BrokerStarted, BrokerStopped, Journal, LogIsShorter
from .log.manager import LogManager
from .replica.fetch_session import FetchSessions
from .replica.manager import ReplicaManager
from .server.connection import ConnectionLimits
from .server.dispatch import Dispatcher
from .server.listener import Server

T = TypeVar("T")

DRAIN_S: Final = 5.0
"""How long requests in progress may take once the listeners are closed."""
FIRST_UPDATE_S: Final = 10.0
"""How long a client's first question waits for the controller's first word."""
SESSION_CLOSE_S: Final = 5.0
LOG_CLOSE_S: Final = 120.0


class StartupError(Exception):
    """The broker cannot start; the text is one line for the person who started it."""


class Api(Protocol):
    """One family of requests."""

    def routes(self) -> list[Route]: ...


@dataclass(slots=True)
class _Parts:
    """What exists once the broker knows who it is."""

    identity: Identity
    metadata: MetadataCache
    dynamic: DynamicConfig
    config_sync: ConfigSync
    presence: Presence
    logs: LogManager


class Node:
    """One broker.  `start` once, `stop` any number of times.

    `on_fatal(text)` is told when the broker must not go on: all log directories failed, an invariant is
    broken, the cluster demands what is not served.  The owner then stops it.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        zk: ZkClient,
        *,
        host_name: str = "localhost",
        logger: logging.Logger | None = None,
        on_fatal: Callable[[str], object] = lambda text: None,
        authorizer: Authorizer | None = None,
        wrap_route: Callable[[Route], Route] = lambda route: route,
    ) -> None:
        """`host_name` is advertised where a listener names no host; `wrap_route` may put something
        around each handler (faults for tests)."""
        self.config = config
        self.runtime = runtime
        self.zk = zk
        self.metrics = Metrics()
        self._host_name = host_name
        self._logger = logger or logging.getLogger("kafkalike.broker")
        self._on_fatal = on_fatal
        self._authorizer: Authorizer = authorizer or PermissiveAuthorizer()
        self._wrap_route = wrap_route
        self._tasks = Tasks(self._logger)
        self._wheel = TimerWheel(runtime.clock, self._logger)
        self._peers: list[Peers] = []
        self._starting: Deferred[None] | None = None
        self._stopping: Deferred[None] | None = None
        self._departing: Deferred[Any] | None = None
        self._registered = False
        self._renewing = False
        self.is_running = False

    @property
    def advertised(self) -> list[Endpoint]:
        """Where clients and brokers find this one, once it has started."""
        return list(self._parts.presence.endpoints)

    @property
    def metadata(self) -> MetadataCache:
        """What the controller has told this broker of the cluster, once it has started."""
        return self._parts.metadata

    # -- start ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Come up; returns when the broker is registered and serves.

        Raises StartupError, or CancelledError when `stop` comes first.  What was started is left for
        `stop`.
        """
        if self._stopping is not None:
            raise CancelledError()
        self._starting = Deferred.fromCoroutine(self._start())
        try:
            await self._starting
        except StartupError:
            raise
        except (ZkError, TimedOut) as error:
            raise StartupError(f"ZooKeeper at {self.config.zookeeper_connect}: {error}") from error
        except OSError as error:
            raise StartupError(error.strerror or str(error)) from error
        except (ValueError, DuplicateBrokerRegistration) as error:
            raise StartupError(str(error)) from error

    async def _start(self) -> None:
        await self._connect()
        runtime = self.runtime
        identity = await self._across_sessions(
            lambda: settle_identity(
                self.zk, runtime.disk, runtime.threads, runtime.random, self.config
            )
        )
        if self.config.broker_id != identity.broker_id:
            self.config = copy.copy(self.config)
            self.config.broker_id = identity.broker_id
        self._logger.info("starting broker=%d cluster=%s", identity.broker_id, identity.cluster_id)
        parts = self._parts = self._make_parts(identity)
        await self._across_sessions(parts.config_sync.load_broker)
        await self._across_sessions(parts.config_sync.load_all_topics)
        await parts.logs.startup()
        self._journal = self._make_journal()
        self._build()
        parts.metadata.lacks_topics = await self._across_sessions(
            lambda: zk_topics.any_topic(self.zk)
        )
        await self._groups.start()
        self._snapshots.start()
        self._features.start()
        await self._across_sessions(parts.presence.wait_for_place)
        self._server.start()
        parts.presence.endpoints = self._advertised()
        await self._across_sessions(self._look_at_logs)
        await self._across_sessions(parts.presence.register)
        self.zk.add_listener(self._session_changed)
        self._registered = True
        self._journal.note(
            BrokerStarted(parts.presence.epoch(), clean=parts.logs.was_stopped_cleanly)
        )
        self._replicas.start()
        self._controller.start()
        await parts.config_sync.start()
        if self.config.serves_consumer_protocol:
            await self._across_sessions(lambda: self._group_configs.load(self.zk))
        self.is_running = True
        self._logger.info("started broker=%d", identity.broker_id)

    async def _across_sessions(self, step: Callable[[], Awaitable[T]]) -> T:
        limit_s = self._zk_timeout_s()
        return await across_sessions(self.zk, self.runtime.clock, limit_s, self._logger, step)

    async def _look_at_logs(self) -> None:
        """What they are now, beside what ZooKeeper says of them, goes into the registration."""
        logs = self._parts.logs
        shortened = logs.shortened_logs()
        self._replicas.note_shortened_logs(shortened)
        if not self.config.own.kafkalike_last_replica_defence:
            return
        shorter = {tp: end for tp, end in shortened.items() if self._may_be_safer(tp)}
        standing = await read_standing(
            self.zk,
            self.config.broker_id,
            short=shorter,
            stopped_in={
                tp: e for tp, e in logs.closed_in_order().items() if self._may_be_safer(tp)
            },
        )
        self._parts.presence.standing = standing
        for partition, leader_epoch in standing.short_logs.items():
            log = logs.get_log(partition)
            end_offset = -1 if log is None else log.log_end_offset
            self._logger.warning(
                "records are lost: the log ends below the high watermark it had partition=%s"
                " log_end_offset=%d high_watermark=%d",
                partition,
                end_offset,
                shorter[partition],
            )
            self._journal.note(
                LogIsShorter(partition, leader_epoch, end_offset, shorter[partition])
            )

    def _may_be_safer(self, partition: TopicPartition) -> bool:
        """With min.insync.replicas=1 a leader acknowledges alone: nobody else is safer."""
        return self._parts.logs.topic_config(partition.topic).min_insync_replicas > 1

    async def _connect(self) -> None:
        limit_s = self._zk_timeout_s()
        try:
            await self.zk.connect(limit_s)
        except (OperationTimeout, ZkError) as error:
            raise StartupError(
                f"ZooKeeper at {self.config.zookeeper_connect} did not answer within"
                f" {limit_s:g} s (zookeeper.connection.timeout.ms): {error}"
            ) from error

    def _zk_timeout_s(self) -> float:
        config = self.config
        limit_ms = config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms
        return limit_ms / 1000

    def _make_parts(self, identity: Identity) -> _Parts:
        runtime, config, broker_id = self.runtime, self.config, identity.broker_id
        dynamic = DynamicConfig(config, broker_id, self._logger)
        return _Parts(
            identity=identity,
            metadata=MetadataCache(broker_id),
            dynamic=dynamic,
            config_sync=ConfigSync(self.zk, runtime.clock, dynamic, broker_id, self._logger),
            presence=Presence(self.zk, runtime.clock, broker_id, config, self._logger),
            logs=LogManager(
                config,
                clock=runtime.clock,
                random=runtime.random,
                disk=runtime.disk,
                threads=runtime.threads,
                log_config=dynamic.log_config,
                on_dir_failure=self._dir_failed_in_logs,
            ),
        )

    def _advertised(self) -> list[Endpoint]:
        """Advertised endpoints: bound ports for port 0, this host's name for no host."""
        ports = {endpoint.listener: endpoint.port for endpoint in self._server.bound()}
        return [
            endpoint._replace(
                host=endpoint.host or self._host_name,
                port=endpoint.port or ports[endpoint.listener],
            )
            for endpoint in self.config.advertised_listeners
        ]

    # -- wiring --------------------------------------------------------------------------------

    def _build(self) -> None:
        parts, runtime, config = self._parts, self.runtime, self.config
        clock, metadata = runtime.clock, parts.metadata
        request_timeout_s = config.request_timeout_ms / 1000
        self._channel = ControllerChannel(
            self._connect_peers(
                config.control_plane_listener, str(config.broker_id), negotiate=True
            ),
            metadata,
            clock,
            self._logger,
            request_timeout_s=request_timeout_s,
        )
        self._replicas = ReplicaManager(
            config,
            clock=clock,
            wheel=self._wheel,
            logs=parts.logs,
            disk=runtime.disk,
            metadata=metadata,
            metrics=self.metrics,
            logger=self._logger,
            state_change_logger=logging.getLogger("kafkalike.state_change"),
            broker_epoch=parts.presence.epoch,
            send_to_controller=self._channel.send,
            fetch_peers=self._fetch_peers,
            dir_failed=self._dir_failed,
            journal=self._journal.note,
            loss_ledger=self._journal.lost,
        )
        self._features = Features(self.zk, clock, self._tasks, self._logger, self._fatal)
        self._controller = self._make_controller()
        self._waiter = MetadataWaiter(metadata, clock)
        self._first_update = FirstUpdate(metadata, clock, FIRST_UPDATE_S)
        self._producer_ids = ProducerIds(
            config.broker_id,
            parts.presence.epoch,
            self._channel.send,
            clock,
            self._tasks,
            self._logger,
            request_timeout_s=request_timeout_s,
        )
        self._group_configs = GroupConfigs(config, self._logger)
        if config.serves_consumer_protocol:
            parts.config_sync.on_entity(
                GROUPS, lambda entity: self._group_configs.refresh(self.zk, entity)
            )
        self._groups = GroupCoordinator(
            config,
            clock=clock,
            wheel=self._wheel,
            random=runtime.random,
            replicas=self._replicas,
            read_partition_count=self._offsets_partition_count,
            metrics=self.metrics,
            logger=self._logger,
            threads=runtime.threads,
            disk=runtime.disk,
            topics=CachedTopics(metadata),
            settings=self._group_configs,
        )
        self._replicas.on_role_change(self._groups.roles_changed)
        self._snapshots = SnapshotKeeper(
            clock=clock,
            disk=runtime.disk,
            threads=runtime.threads,
            partition=self._replicas.partition,
            min_records=config.own.kafkalike_groups_snapshot_records,
        )
        self._replicas.on_role_change(self._snapshots.roles_changed)
        self._follow_config(parts.dynamic)
        metadata.add_listener(self._forget_deleted_topics)
        metadata.add_listener(lambda update: self._groups.partitions_removed(update.removed))
        self._server = self._make_server(self._build_apis())

    def _make_journal(self) -> Journal:
        own, runtime = self.config.own, self.runtime
        return Journal(
            self.config.broker_id,
            own.kafkalike_journal_dir or self._parts.logs.live_dirs[0],
            disk=runtime.disk,
            clock=runtime.clock,
            threads=runtime.threads,
            metrics=self.metrics,
            logger=self._logger,
            max_bytes=own.kafkalike_journal_max_bytes,
        )

    async def _offsets_partition_count(self) -> int | None:
        """As ZooKeeper has it: what the controller has told so far may be a part."""
        info = await zk_topics.read_topic(self.zk, GROUP_METADATA_TOPIC)
        return None if info is None else len(info.partitions)

    def _make_controller(self) -> KafkaController:
        config, runtime, dynamic = self.config, self.runtime, self._parts.dynamic
        settings = ControllerSettings(
            broker_id=config.broker_id,
            control_listener=config.control_plane_listener,
            inter_broker_listener=config.inter_broker_listener,
            delete_topic_enable=config.delete_topic_enable,
            auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
            leader_imbalance_check_interval_s=config.leader_imbalance_check_interval_seconds,
            leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
            request_timeout_s=config.request_timeout_ms / 1000,
            zookeeper_connection_timeout_s=self._zk_timeout_s(),
            last_replica_defence=config.own.kafkalike_last_replica_defence,
        )
        ports = ControllerPorts(
            zk=self.zk,
            clock=runtime.clock,
            random=runtime.random,
            connect=self._connect_control,
            register=self._parts.presence.register,
            unclean_default=lambda: dynamic.broker.unclean_leader_election_enable,
            min_isr_default=lambda: dynamic.broker.min_insync_replicas,
            logger=logging.getLogger("kafkalike.controller"),
            state_change_logger=logging.getLogger("kafkalike.state_change"),
            wait_for_features=self._features.wait_for,
            metrics=self.metrics,
            journal=self._journal.note,
        )
        return KafkaController(settings, ports)

    def _connect_control(self, endpoint: Endpoint) -> BrokerClient:
        """A connection of this controller to a broker."""
        config = self.config
        return BrokerClient(
            self.runtime.network,
            self.runtime.clock,
            endpoint.host,
            endpoint.port,
            client_id=str(config.broker_id),
            connect_timeout_s=config.controller_socket_timeout_ms / 1000,
            request_timeout_s=config.request_timeout_ms / 1000,
        )

    def _build_apis(self) -> list[Api]:
        """Every API family of this broker; the concatenated routes are what it serves."""
        parts, config, authorizer = self._parts, self.config, self._authorizer
        metadata, replicas, dynamic = parts.metadata, self._replicas, parts.dynamic
        leaders = CurrentLeaders(replicas, metadata)
        topic_admin = TopicAdmin(self.zk, metadata, dynamic, self.runtime.random)
        config_admin = ConfigAdmin(
            self.zk, config.broker_id, metadata, dynamic, parts.config_sync.refresh
        )
        auto_topics = AutoTopics(topic_admin, config)
        sessions = FetchSessions(
            self.runtime.clock,
            self.runtime.random,
            slots=config.max_incremental_fetch_session_cache_slots,
        )
        self._api_versions = ApiVersionsApi(lambda: self._features.epoch)
        return [
            self._api_versions,
            ProduceApi(replicas, metadata, authorizer, leaders),
            FetchApi(
                replicas, sessions, metadata, authorizer, leaders, max_bytes=config.fetch_max_bytes
            ),
            ListOffsetsApi(replicas, authorizer),
            MetadataApi(
                metadata,
                authorizer,
                auto_topics,
                parts.identity.cluster_id,
                config,
                self._first_update,
            ),
            TopicsApi(
                self._controller,
                topic_admin,
                metadata,
                self._waiter,
                dynamic,
                authorizer,
                self._first_update,
            ),
            DeleteRecordsApi(replicas, metadata, authorizer),
            ConfigsApi(
                config_admin,
                dynamic,
                metadata,
                authorizer,
                Loggers(),
                self._group_configs if config.serves_consumer_protocol else None,
                self._first_update,
            ),
            ProducerIdApi(self._producer_ids, replicas, metadata, authorizer),
            ClusterApi(self._controller, replicas, metadata, self._waiter, authorizer),
            LogDirsApi(replicas, authorizer),
            ControlApi(
                replicas,
                metadata,
                authorizer,
                parts.config_sync.load_topics,
                parts.presence.wait_registered,
            ),
            ControllerApi(self._controller, authorizer),
            GroupsApi(self._groups, metadata, auto_topics, authorizer),
            OffsetsApi(
                self._groups,
                OldOffsets(self.zk),
                metadata,
                authorizer,
                self.runtime.clock,
                config,
            ),
        ]

    def _make_server(self, apis: Iterable[Api]) -> Server:
        routes = [self._wrap_route(route) for api in apis for route in api.routes()]
        self._api_versions.serve(routes)
        dispatcher = Dispatcher(
            routes,
            clock=self.runtime.clock,
            metrics=self.metrics,
            logger=self._logger,
            on_broken_invariant=lambda error: self._fatal(f"broken invariant: {error}"),
        )
        return Server(
            self.runtime.network,
            self.runtime.clock,
            self._wheel,
            dispatcher,
            self.config.listeners,
            metrics=self.metrics,
            logger=self._logger,
            inter_broker_listener=self.config.inter_broker_listener,
            limits=connection_limits(self._parts.dynamic.broker),
        )

    def _connect_peers(self, listener: str, client_id: str, *, negotiate: bool = False) -> Peers:
        metadata = self._parts.metadata

        def address_of(broker_id: int) -> PeerAddress | None:
            node = metadata.node(broker_id, listener)
            return None if node is None else PeerAddress(node.host, node.port)

        peers = Peers(
            self.runtime.network,
            self.runtime.clock,
            self.runtime.random,
            address_of,
            client_id=client_id,
            logger=self._logger,
            request_timeout_s=self.config.request_timeout_ms / 1000,
            negotiate=negotiate,
        )
        self._peers.append(peers)
        return peers

    def _fetch_peers(self, index: int) -> Peers:
        client_id = f"broker-{self.config.broker_id}-fetcher-{index}"
        return self._connect_peers(self.config.inter_broker_listener, client_id)

    # -- configuration and topics that change --------------------------------------------------

    def _follow_config(self, dynamic: DynamicConfig) -> None:
        unclean = dynamic.broker.unclean_leader_election_enable

        def topic_changed(topic: str) -> None:
            self._parts.logs.topic_config_changed(topic)
            config = dynamic.log_config(topic)
            self._controller.on_topic_config_changed(topic, config.unclean_leader_election_enable)

        def broker_changed(config: BrokerConfig) -> None:
            nonlocal unclean
            self._parts.logs.broker_config_changed(config)
            self._server.set_limits(connection_limits(config))
            self._replicas.broker_config_changed(config)
            if config.unclean_leader_election_enable != unclean:
                unclean = config.unclean_leader_election_enable
                self._controller.on_broker_default_unclean_changed(unclean)

        dynamic.on_topic_change(topic_changed)
        dynamic.on_broker_change(broker_changed)

    def _forget_deleted_topics(self, update: MetadataUpdate) -> None:
        """Settings of topics that are gone: a later topic of the same name starts afresh.

        They are also read anew whenever a log is created, so this only frees memory.
        """
        gone = {tp.topic for tp in update.removed if tp.topic not in update.snapshot.topics}
        if gone:
            hosted = {log.topic_partition.topic for log in self._parts.logs.all_logs()}
            self._parts.dynamic.forget_topics(gone - hosted)

    # -- trouble -------------------------------------------------------------------------------

    def _fatal(self, text: str) -> None:
        self._logger.critical("%s", text)
        self._on_fatal(text)

    def _dir_failed_in_logs(self, path: str) -> None:
        """A log directory failed: its partitions go offline and the controller is told."""
        if hasattr(self, "_replicas"):
            self._replicas.log_dir_failed(path)  # which tells `_dir_failed`
        else:
            self._dir_failed(path)

    def _dir_failed(self, path: str) -> None:
        self._logger.error("log directory is offline path=%s", path)
        if hasattr(self, "_groups"):
            self._groups.drop_offline()
        if not self._parts.logs.live_dirs:
            self._fatal(f"all log directories have failed, the last one is {path}")
        elif self._registered:
            self._tasks.spawn(self._report_dir_failure(), "log directory failure")

    async def _report_dir_failure(self) -> None:
        while True:
            try:
                await zk_admin.notify_log_dir_failure(self.zk, self.config.broker_id)
            except SessionExpired:
                await sleep(self.runtime.clock, 1.0)
                continue
            return

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self._stopping is None and not self._renewing:
            self._renewing = True
            self._controller.before_session_expired()
            self._tasks.spawn(self._renew_session(), "new ZooKeeper session")

    async def _renew_session(self) -> None:
        self._logger.warning("the ZooKeeper session expired, opening a new one")
        try:
            await self.zk.reconnect()
        finally:
            self._renewing = False
        self._controller.after_new_session()

    # -- stop ----------------------------------------------------------------------------------

    def stop(self, *, controlled: bool = True) -> "Deferred[None]":
        """Leave in order; fires when everything is on disk and the session is closed.

        Calling it again gives the same end; with `controlled=False` it also cuts short what the
        first call still waits for.
        """
        if self._stopping is None:
            self._stopping = Deferred()
            work = Deferred.fromCoroutine(self._stop(controlled))
            work.addBoth(self._stopping.callback)
        elif not controlled and self._departing is not None:
            self._departing.cancel()
        follower: Deferred[None] = Deferred()
        self._stopping.addBoth(_pass_on, follower)
        return follower

    async def _stop(self, controlled: bool) -> None:
        self._logger.info("stopping broker=%d", self.config.broker_id)
        self.is_running = False
        clock = self.runtime.clock
        if self._starting is not None:
            self._starting.cancel()  # harmless once it has come up
        if self._registered:
            self._journal.note(BrokerStopped())
        if controlled and self._registered and self.config.controlled_shutdown_enable:
            await self._depart()
        if hasattr(self, "_server"):
            self._groups.stop()
            await self._bounded(self._snapshots.stop(), LOG_CLOSE_S, "ending a snapshot of groups")
            closed = self._server.stop(DRAIN_S)
            self._replicas.release_waiting()
            self._first_update.stop()
            await self._bounded(closed, DRAIN_S * 2, "closing connections")
            self._waiter.stop()
            self._channel.stop()
            await self._bounded(self._replicas.stop(), LOG_CLOSE_S, "stopping replicas")
            self._features.stop()
        await self._bounded(self._tasks.stop(), DRAIN_S, "ending background work")
        if hasattr(self, "_parts"):
            parts = self._parts
            await self._bounded(
                parts.logs.shutdown(self._ending_life()), LOG_CLOSE_S, "closing logs"
            )
            await self._bounded(parts.config_sync.stop(), DRAIN_S, "ending notifications")
        if hasattr(self, "_controller"):
            await self._bounded(self._controller.stop(), DRAIN_S, "leaving office")
        if hasattr(self, "_journal"):
            await self._bounded(self._journal.stop(), DRAIN_S, "writing the journal")
        for peers in self._peers:
            await self._bounded(peers.stop(), DRAIN_S, "closing connections to brokers")
        await self._bounded(self.zk.close(), SESSION_CLOSE_S, "closing the ZooKeeper session")
        self._wheel.stop()
        self._logger.info("stopped broker=%d at_s=%.3f", self.config.broker_id, clock.monotonic())

    def _ending_life(self) -> int:
        """What the mark of a clean stop says; nothing where the defence is switched off."""
        if not self.config.own.kafkalike_last_replica_defence:
            return NO_BROKER_EPOCH
        return self._parts.presence.broker_epoch

    async def _depart(self) -> None:
        parts, runtime = self._parts, self.runtime
        self._replicas.begin_shutdown()
        departure = Departure(
            self.zk,
            runtime.clock,
            runtime.network,
            self.config.broker_id,
            parts.presence.epoch,
            self.config,
            self._logger,
        )
        self._departing = Deferred.fromCoroutine(departure.run())
        try:
            await self._departing
        except CancelledError:
            self._logger.warning("controlled shutdown was cut short")
        finally:
            self._departing = None

    async def _bounded(self, work: Any, limit_s: float, what: str) -> None:
        """One step of stopping: its trouble is reported and does not hold up the next one."""
        try:
            await timeout(self.runtime.clock, work, limit_s, what)
        except TimedOut as error:  # as with a ZooKeeper that does not answer
            self._logger.warning("stopping goes on: %s", error)
        except Exception:
            self._logger.exception("stopping goes on without: %s", what)


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """Kafka's connection settings as the server takes them."""
    overrides: dict[str, int] = {}
    for part in filter(None, config.max_connections_per_ip_overrides.split(",")):
        host, _, count = part.strip().rpartition(":")
        overrides[host] = int(count)
    per_listener = _listener_values(config, "max.connections")
    rates = _listener_values(config, "max.connection.creation.rate")
    return ConnectionLimits(
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=overrides,
        max_connection_creation_rate=config.max_connection_creation_rate,
        listener_max_connections=per_listener,
        listener_max_connection_creation_rate=rates,
        max_idle_s=config.connections_max_idle_ms / 1000,
        max_request_bytes=config.socket_request_max_bytes,
        backlog=config.socket_listen_backlog_size,
        buffers=SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes),
    )


def _listener_values(config: BrokerConfig, key: str) -> dict[str, int]:
    """`listener.name.<listener>.<key>` by listener."""
    found: dict[str, int] = {}
    for endpoint in config.listeners:
        text = config.originals.get(f"listener.name.{endpoint.listener.lower()}.{key}")
        if text is not None:
            found[endpoint.listener] = int(text)
    return found


def _pass_on(result: Any, follower: "Deferred[None]") -> Any:
    follower.callback(None)
    return result
