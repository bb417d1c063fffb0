"""`KafkaDiscovery`: find the other nodes, and share partitions with them, through a Kafka group.

    with KafkaDiscovery(KafkaDiscoveryConfig(node_id="a", topics=("orders",))) as node:
        for nodes in node.members():
            ...

Rules:

- Its methods may be called from any thread and do not need an event loop; what happens in the group
  happens on a thread of its own, and callbacks run on another one.
- `start` returns when the node is a member, or raises and leaves nothing behind. `stop` has the
  callbacks let go of the partitions, leaves the group, and ends both threads.
- What heals by itself is reported to `on_failure` and does not end anything. What ends the
  membership is reported too, raised by `check` and by everyone who watches the members.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from lakelog.clock import Clock, Entropy, SystemClock, SystemEntropy, Tasks
from lakelog.discovery.callbacks import DiscoveryCallbacks, MembershipView, Nodes, Partitions
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.failures import (
    ConfigError,
    ConnectionFailed,
    DiscoveryError,
    NotRunning,
    SecurityError,
    TopicMissing,
)
from lakelog.discovery.group_requests import GroupCalls, GroupRequests, GroupTimeouts
from lakelog.discovery.member import Phase, make_member
from lakelog.discovery.membership_events import (
    Announce,
    RevocationDone,
    StartRequested,
    StopRequested,
)
from lakelog.discovery.node import (
    NodeId,
    NodeMetadata,
    NodeState,
    PartitionCountChanged,
    TopicPartition,
)
from lakelog.discovery.session import MembershipSession, SessionTimes
from lakelog.discovery.watch import Watch
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    BadConfig,
    BrokerError,
    ClientFailure,
    Closed,
    Untrusted,
)
from lakelog.kafka_client.loop_thread import LoopThread
from lakelog.kafka_client.settings import ClientSettings
from lakelog.model.errors import ErrorCode

RECONNECT_MS_MAX: Final = 1000
"""A node that has lost its coordinator has a session to lose: it does not wait long to look."""
CONNECT_S_MAX: Final = 10.0
"""So long `start` tries to find a broker."""
START_S_MORE: Final = 30.0
"""So much longer than two sessions `start` waits for the group, if it is told nothing."""
TOPIC_S_MAX: Final = 2.0
"""So long a topic may be missing at the start: brokers learn of a new one at different times."""
TOPIC_AGAIN_S: Final = 0.1
TOPICS_CHECK_S: Final = 30.0
CALLBACKS_S_MAX: Final = 5.0
"""So long `stop` waits for the last callbacks, once the node has left."""

log: Final = logging.getLogger("lakelog.discovery")


class KafkaDiscovery:
    """This node in its group; it keeps to `lakelog.discovery.static.Discovery`."""

    def __init__(
        self,
        config: KafkaDiscoveryConfig,
        *,
        topics_check_s: float = TOPICS_CHECK_S,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Take the configuration; raises ConfigError. Nothing is asked yet.

        While this node leads, it looks every `topics_check_s` whether topics have more partitions.
        """
        self._member = make_member(config)
        try:
            self._settings = ClientSettings.parse(
                {**config.client_config(), "reconnect.backoff.max.ms": RECONNECT_MS_MAX}
            )
        except BadConfig as reason:
            raise ConfigError(str(reason)) from None
        if topics_check_s <= 0:
            raise ConfigError(f"topics_check_s must be more than 0, not {topics_check_s!r}")
        self._config = config
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._times = SessionTimes.of(
            config, topics_s=topics_check_s, retry=self._settings.retry_backoff
        )
        self._subscribers = DiscoveryCallbacks()
        self._view = MembershipView(self._member, self._subscribers, self._clock)
        self._turn = threading.Lock()
        self._loop: LoopThread | None = None
        self._session: MembershipSession | None = None
        self._cluster: KafkaCluster | None = None
        self._tasks = Tasks()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- joining and leaving --------------------------------------------------------------------

    def start(self, timeout: float | None = None) -> None:
        """Join the group and return when this node knows the members; raises DiscoveryError.

        Without a time-out it waits for the group as long as two dead members may hold it up. A node
        that is started already stays as it is; one that was stopped joins again.
        """
        with self._turn:
            if self._loop is not None:
                return
            self._loop = loop = LoopThread(f"lakelog-discovery-{self.node_id}")
            self._view = MembershipView(self._member, self._subscribers, self._clock)
            self._tasks = Tasks()
        if timeout is None:
            timeout = 2 * self._times.session_s + START_S_MORE
        try:
            loop.run(self._start(timeout))
        except Closed:
            raise NotRunning("it was stopped while it started") from None
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Let go of the partitions, leave the group, end the threads; again is allowed."""
        with self._turn:
            loop = self._loop
        if loop is None:
            return
        view = self._view
        view.is_stopped_by_callback = view.callbacks.is_current
        try:
            loop.run(self._stop())
        except Closed:
            return  # somebody else stops it too, and came first
        finally:
            loop.close()
            with self._turn:
                if self._loop is loop:
                    self._loop = self._session = self._cluster = None
            view.callbacks.close(CALLBACKS_S_MAX)
            view.end()

    def announce(self, metadata: NodeMetadata, *, draining: bool = False) -> None:
        """Tell the others what has changed about this node; raises ConfigError or NotRunning.

        A node that is draining gives its partitions back, stays a member and is given nothing.
        """
        loop, session = self._loop, self._session
        if loop is None or session is None:
            raise NotRunning("a node announces something while it is a member; start it first")

        async def tell() -> None:
            session.handle(Announce(metadata, draining))

        try:
            loop.run(tell())
        except Closed:
            raise NotRunning("the node was stopped") from None

    def check(self) -> None:
        """Raise what has ended the membership, if anything has."""
        failure = self._view.failure
        if failure is not None:
            raise failure

    # --- what is known --------------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """Who this is."""
        return self._member.node.node_id

    @property
    def state(self) -> NodeState:
        """How this node stands in the group."""
        return self._view.state

    @property
    def generation(self) -> int:
        """The number of the assignment; -1 while there is none."""
        return -1 if self._view.is_gone else self._view.member.generation

    @property
    def leader(self) -> NodeId | None:
        """The node that made the assignment."""
        return None if self._view.is_gone else self._view.member.leader

    @property
    def is_leader(self) -> bool:
        """Whether this node makes the assignments."""
        return not self._view.is_gone and self._view.member.is_leader

    @property
    def last_failure(self) -> DiscoveryError | None:
        """What went wrong last, whether it has healed or not."""
        return self._view.last_failure

    def peers(self) -> Nodes:
        """The other members; nobody while this node is none."""
        view = self._view
        if view.is_gone:
            return ()
        return tuple(node for node in view.source.value if node.node_id != self.node_id)

    def members(self) -> Watch[Nodes]:
        """All members, this node included, as they change: iterate with `for` or `async for`."""
        return self._view.source.watch()

    def assigned_partitions(self) -> tuple[int, ...]:
        """Global ids of the partitions that are this node's, ascending."""
        return self._view.member.assigned_partitions

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The same partitions by topic."""
        return self._view.member.held

    # --- callbacks ------------------------------------------------------------------------------

    def on_change(self, callback: Callable[[Nodes], object]) -> None:
        """Call this with all members whenever they change."""
        self._subscribers.changed.add(callback)

    def on_assigned(self, callback: Callable[[Partitions], object]) -> None:
        """Call this with the partitions that are this node's from now on, beside those it had."""
        self._subscribers.assigned.add(callback)

    def on_revoked(self, callback: Callable[[Partitions], object]) -> None:
        """Call this with partitions to let go of; others get them when it has returned."""
        self._subscribers.revoked.add(callback)

    def on_lost(self, callback: Callable[[Partitions], object]) -> None:
        """Call this with partitions that others may have already; without one, `on_revoked` is."""
        self._subscribers.lost.add(callback)

    def on_partition_count(self, callback: Callable[[PartitionCountChanged], object]) -> None:
        """Call this when a topic has another number of partitions: global ids have moved."""
        self._subscribers.partition_count.add(callback)

    def on_failure(self, callback: Callable[[DiscoveryError], object]) -> None:
        """Call this with what goes wrong, whether it heals by itself or ends the membership."""
        self._subscribers.failed.add(callback)

    # --- on the loop ----------------------------------------------------------------------------

    async def _start(self, timeout_s: float) -> None:
        view = self._view
        try:
            async with asyncio.timeout(timeout_s):
                cluster = KafkaCluster(self._settings, clock=self._clock, entropy=self._entropy)
                self._cluster = cluster
                await cluster.start(timeout_s=min(timeout_s, CONNECT_S_MAX))
                await self._find_topics(cluster)
                session = self._session = self._make_session(cluster, view)
                self._tasks.spawn(self._keep(session, view), name="discovery")
                session.handle(StartRequested())
                await view.joined()
        except TimeoutError:
            if view.member.phase is Phase.SETTLED:
                return  # it is a member; the list of the others comes when the group is at rest
            why = view.member.trouble or "the group did not take it in"
            raise ConnectionFailed(f"not a member within {timeout_s:g} s: {why}") from None
        except ClientFailure as reason:
            raise _translated(reason) from None

    async def _stop(self) -> None:
        view, session = self._view, self._session
        if session is not None and not view.is_gone:
            session.handle(StopRequested())
            if view.is_stopped_by_callback:
                for told in session.member.releasing:
                    session.handle(RevocationDone(told.number))  # it cannot wait for itself
            # A callback that must let go has its own limit; the rest are two answers.
            limit_s = self._times.callback_s + 2 * self._times.session_s
            try:
                async with asyncio.timeout(limit_s):
                    await view.left()
            except TimeoutError:
                log.warning("node %s did not leave its group within %g s", self.node_id, limit_s)
        await self._tasks.close()
        if self._cluster is not None:
            await self._cluster.close()

    async def _find_topics(self, cluster: KafkaCluster) -> None:
        """Raise TopicMissing for a topic that is not there, and is not there in a moment."""
        end_s = self._clock.monotonic_s() + TOPIC_S_MAX
        names = self._config.topics
        while True:
            found = await cluster.topics(names, fresh=True)
            errors = {topic.name: topic.error for topic in found.values()}
            forbidden = [
                name for name in names if errors.get(name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ]
            if forbidden:
                raise SecurityError(
                    f"this user may not see {', '.join(forbidden)} (DESCRIBE on TOPIC)"
                )
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            missing = [name for name in names if errors.get(name, unknown) == unknown]
            if not missing:
                return
            if self._clock.monotonic_s() > end_s:
                raise TopicMissing(missing[0])
            await asyncio.sleep(TOPIC_AGAIN_S)

    def _make_session(self, cluster: KafkaCluster, view: MembershipView) -> MembershipSession:
        config = self._config
        waits = GroupTimeouts(
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            answer_timeout_s=self._times.session_s / 3,
            find_timeout_s=self._times.heartbeat_s,
        )
        calls = GroupCalls(cluster, group_id=config.group_id, instance_id=self.node_id, waits=waits)
        requests = GroupRequests(cluster, calls, config.partition_assignor)
        return MembershipSession(
            view.member, requests, view, self._times, clock=self._clock, entropy=self._entropy
        )

    async def _keep(self, session: MembershipSession, view: MembershipView) -> None:
        """Run the session; a bug in it is a failure that everyone hears of."""
        try:
            await session.run()
        except Exception as bug:
            log.exception("discovery of node %s has failed", self.node_id)
            view.fail(DiscoveryError(f"discovery has failed: {bug!r}"))


def _translated(reason: ClientFailure) -> DiscoveryError:
    """A failure of the client as discovery names it."""
    text = str(reason)
    match reason:
        case BadConfig():
            return ConfigError(text)
        case AuthenticationFailed() | Untrusted():
            return SecurityError(text)
        case Closed():
            return NotRunning(text)
        case BrokerError() if not reason.is_retriable:
            return SecurityError(text) if "AUTHORIZATION" in reason.name else ConnectionFailed(text)
        case _:
            return ConnectionFailed(text)
