"""One Kafka cluster: which brokers it has, who leads what, and a connection to each when needed.

Rules:

- Any bootstrap server that answers will do, and again when no known broker answers any more.
- Metadata and whatever any broker can answer go over a connection of their own, and so does a
  group's coordinator: on a leader's connection they would wait behind a fetch that waits.
- Everything has a time limit (`default.api.timeout.ms`), within which what a repeat may heal is
  repeated with growing pauses. Wrong credentials and certificates are not asked again.
- A topic's or partition's error is in its view; only the cluster's own failures are raised.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import BrokerLink, Dialer
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    BrokerError,
    ClientFailure,
    Closed,
    TimedOut,
    Unreachable,
    Untrusted,
)
from lakelog.kafka_client.metadata import (
    NO_LEADER,
    ClusterNode,
    TopicMetadata,
    absent,
    metadata_request,
    parse_metadata,
)
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.kafka_client.settings import ClientSettings
from lakelog.model.errors import ErrorCode
from lakelog.retry import RetryDeadline
from lakelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from lakelog.wire.messages.metadata import MetadataResponse

AnswerT = TypeVar("AnswerT", bound=Struct)

ATTEMPT_S_MIN: Final = 1.0
GROUP_KEY: Final = 0
COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class KafkaCluster:
    """The brokers of one cluster, on the running loop; `start` before anything else."""

    def __init__(self, settings: ClientSettings, *, clock: Clock, entropy: Entropy) -> None:
        self.settings = settings
        self.clock = clock
        self.entropy = entropy
        self.cluster_id: str | None = None
        self.topic_names: dict[bytes, str] = {}  # of all identities that were ever seen
        self._brokers: dict[int, BrokerAddress] = {}
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}  # and when it was learned
        self._tasks = Tasks()
        self._leaders: dict[int, BrokerLink] = {}
        self._group_links: dict[int, BrokerLink] = {}
        self._coordinators: dict[str, ClusterNode] = {}
        self._controller = NO_LEADER
        self._control: BrokerConnection | None = None
        self._control_turn = asyncio.Lock()
        self._dialer: Dialer | None = None
        self._closing: asyncio.Future[None] | None = None

    @property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        """The brokers by their node ids, as of the last answer."""
        return self._brokers

    async def start(
        self, *, timeout_s: float | None = None, failures_max: int | None = None
    ) -> None:
        """Find the cluster; Unreachable says what each server said.

        With `failures_max` no server is asked more often than that, whatever time is left. Raises
        BadConfig, AuthenticationFailed and Untrusted too.
        """
        assert self._dialer is None, "a cluster is started once"
        self._closing = asyncio.get_running_loop().create_future()
        self._dialer = Dialer.load(self.settings, entropy=self.entropy, tasks=self._tasks)
        await self._refresh((), self.deadline(timeout_s, failures_max=failures_max))

    async def close(self) -> None:
        """Hang up everywhere; whoever waits hears Closed. Again is allowed."""
        if self._closing is None:
            return
        if not self._closing.done():
            self._closing.set_result(None)
        if self._control is not None:
            await self._control.close()
        for link in (*self._leaders.values(), *self._group_links.values()):
            await link.close()
        await self._tasks.close()

    # --- what the cluster has -------------------------------------------------------------------

    async def topics(
        self,
        names: Iterable[str] | None,
        *,
        fresh: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, TopicMetadata]:
        """The topics by name, each with its own error; None stands for all there are.

        What was learned within `metadata.max.age.ms` is not asked again, unless `fresh` says so.
        """
        wanted = None if names is None else list(dict.fromkeys(names))
        if wanted is not None and not fresh:
            known = self._known(wanted)
            if known is not None:
                return known
        found = await self._refresh(wanted, self.deadline(timeout_s))
        return found if wanted is None else {name: found.get(name, absent(name)) for name in wanted}

    def _known(self, names: list[str]) -> dict[str, TopicMetadata] | None:
        oldest_s = self.clock.monotonic_s() - self.settings.metadata_max_age_ms / 1000
        found: dict[str, TopicMetadata] = {}
        for name in names:
            view, learned_s = self._topics.get(name, (None, 0.0))
            if view is None or view.error or learned_s < oldest_s:
                return None
            found[name] = view
        return found

    async def _refresh(
        self, names: Iterable[str] | None, deadline: RetryDeadline
    ) -> dict[str, TopicMetadata]:
        request = metadata_request(names, may_create=self.settings.allow_auto_create_topics)
        while True:
            answer = await self._call(request, MetadataResponse, deadline)
            view = parse_metadata(answer)
            if view.error == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._brokers = {}
                self._drop_control()
            if not view.error:
                break
            await self._pause(deadline, BrokerError(view.error, "Metadata"))
        self._brokers = view.brokers or self._brokers
        self.cluster_id = view.cluster_id
        self._controller = view.controller
        now_s = self.clock.monotonic_s()
        for topic in view.topics.values():
            self._topics[topic.name] = (topic, now_s)
            if topic.has_id:
                self.topic_names[topic.topic_id] = topic.name
        return view.topics

    # --- connections ----------------------------------------------------------------------------

    async def connection(self, node_id: int) -> BrokerConnection:
        """The connection to a broker, made if need be after the pause that earlier failures cost.

        Raises Unreachable, Untrusted, AuthenticationFailed or Closed after one attempt.
        """
        if node_id not in self._brokers:
            await self._refresh((), self.deadline())
        endpoint = self._brokers.get(node_id)
        if endpoint is None:
            raise Unreachable(f"the cluster has no broker {node_id}")
        return await self._link(self._leaders, node_id).connection(endpoint)

    async def any_connection(self, *, timeout_s: float | None = None) -> BrokerConnection:
        """A connection to some broker, for what any of them can answer."""
        return await self._any_connection(self.deadline(timeout_s))

    async def call_any(
        self,
        request: Struct,
        answer: type[AnswerT],
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
    ) -> AnswerT:
        """Ask some broker, and another one if it does not answer.

        A request may so be carried out twice: it must be one that does no harm twice.
        """
        return await self._call(request, answer, self.deadline(timeout_s), version_max)

    async def controller(self, *, timeout_s: float | None = None) -> BrokerConnection:
        """The connection to who takes changes of topics; to any broker where none is named."""
        if self._controller in self._brokers:
            return await self.connection(self._controller)
        return await self.any_connection(timeout_s=timeout_s)

    async def coordinator(
        self, group_id: str, *, timeout_s: float | None = None
    ) -> BrokerConnection:
        """The connection to a group's coordinator, which is remembered until it is forgotten.

        Raises BrokerError where the group may not be asked for.
        """
        deadline = self.deadline(timeout_s)
        while True:
            if group_id not in self._coordinators:
                self._coordinators[group_id] = await self._find_coordinator(group_id, deadline)
            node = self._coordinators[group_id]
            try:
                return await self._link(self._group_links, node.id).connection(node.address)
            except Unreachable as failure:
                self.forget_coordinator(group_id)
                await self._pause(deadline, failure)

    def known_coordinator(self, group_id: str) -> ClusterNode | None:
        """Who it was when it was asked last."""
        return self._coordinators.get(group_id)

    def forget_coordinator(self, group_id: str) -> None:
        """Ask again who it is the next time."""
        self._coordinators.pop(group_id, None)

    def deadline(
        self, timeout_s: float | None = None, *, failures_max: int | None = None
    ) -> RetryDeadline:
        """Until when to try: for so long, or for `default.api.timeout.ms`."""
        if timeout_s is None:
            timeout_s = self.settings.default_api_timeout_ms / 1000
        return RetryDeadline(self.clock, timeout_s, failures_max=failures_max)

    # --- inside ---------------------------------------------------------------------------------

    async def _find_coordinator(self, group_id: str, deadline: RetryDeadline) -> ClusterNode:
        request = FindCoordinatorRequest(
            key_type=GROUP_KEY, coordinator_keys=(group_id,), key=group_id
        )
        while True:
            answer = await self._call(request, FindCoordinatorResponse, deadline)
            found = _only(answer)
            failure = BrokerError(
                found.error_code, f"the coordinator of group {group_id!r}", found.error_message
            )
            if not found.error_code:
                return ClusterNode(found.node_id, BrokerAddress(found.host, found.port))
            if found.error_code not in COORDINATOR_MOVED:
                raise failure
            await self._pause(deadline, failure)

    async def _call(
        self,
        request: Struct,
        answer: type[AnswerT],
        deadline: RetryDeadline,
        version_max: int | None = None,
    ) -> AnswerT:
        while True:
            connection = await self._any_connection(deadline)
            # Half of what is left, so that there is time to ask another broker.
            attempt_s = min(max(deadline.left_s() / 2, ATTEMPT_S_MIN), deadline.left_s())
            try:
                return await connection.call(
                    request, answer, timeout_s=attempt_s, version_max=version_max
                )
            except (Unreachable, TimedOut, Closed) as failure:
                if self._is_closing():
                    raise Closed("the client was closed") from None
                self._drop_control(connection)
                await self._pause(deadline, failure)

    async def _any_connection(self, deadline: RetryDeadline) -> BrokerConnection:
        while True:
            async with self._control_turn:
                if self._is_closing():
                    raise Closed("the client was closed")
                if self._control is not None and self._control.is_open:
                    return self._control
                failure = await self._dial_any(deadline)
                if failure is None:
                    continue
            await self._pause(deadline, failure)

    async def _dial_any(self, deadline: RetryDeadline) -> ClientFailure | None:
        """Try every address once, known brokers first; returns why none would do."""
        assert self._dialer is not None, "start comes first"
        failures: list[ClientFailure] = []
        for endpoint in self._candidates():
            if failures and deadline.is_over():
                break
            try:
                timeout_s = max(deadline.left_s(), ATTEMPT_S_MIN)
                made = await self._dialer.connect(endpoint, timeout_s=timeout_s)
            except AuthenticationFailed:
                raise
            except ClientFailure as failure:
                failures.append(failure)
                continue
            if self._is_closing():
                made.abort()
                raise Closed("the client was closed")
            self._control = made
            return None
        return _all_failed(failures)

    def _candidates(self) -> list[BrokerAddress]:
        """Where to ask: the known brokers, then the bootstrap servers, each in any order."""
        known = self._shuffled(self._brokers.values())
        return list(dict.fromkeys((*known, *self._shuffled(self.settings.bootstrap_servers))))

    def _shuffled(self, endpoints: Iterable[BrokerAddress]) -> list[BrokerAddress]:
        return sorted(endpoints, key=lambda _: self.entropy.below(1 << 32))

    def _link(self, links: dict[int, BrokerLink], node_id: int) -> BrokerLink:
        assert self._dialer is not None, "start comes first"
        assert self._closing is not None, "start comes first"
        link = links.get(node_id)
        if link is None:
            link = links[node_id] = BrokerLink(self._dialer, self.clock, self._closing)
        return link

    def _drop_control(self, failed: BrokerConnection | None = None) -> None:
        control = self._control
        if control is not None and failed in (None, control):
            self._control = None
            control.abort()

    async def _pause(self, deadline: RetryDeadline, failure: ClientFailure) -> None:
        """Wait before the next attempt, or raise why there is none."""
        delay_s = self.settings.retry_backoff.delay_s(deadline.failed(), self.entropy)
        is_vain = isinstance(failure, Untrusted) or getattr(failure, "is_final", False)
        if is_vain or not deadline.allows(delay_s):
            raise failure
        assert self._closing is not None, "start comes first"
        await asyncio.wait([self._closing], timeout=delay_s)
        if self._closing.done():
            raise Closed("the client was closed")

    def _is_closing(self) -> bool:
        return self._closing is None or self._closing.done()


def _only(answer: FindCoordinatorResponse) -> Coordinator:
    """The one coordinator of an answer, which older versions have without a list."""
    if answer.coordinators:
        return answer.coordinators[0]
    return Coordinator(
        "", answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message
    )


def _all_failed(failures: list[ClientFailure]) -> ClientFailure:
    """One failure for all servers, with what each of them said."""
    said = "; ".join(dict.fromkeys(map(str, failures)))
    if failures and all(isinstance(failure, Untrusted) for failure in failures):
        return Untrusted(said)
    is_final = all(
        isinstance(failure, Untrusted) or getattr(failure, "is_final", False)
        for failure in failures
    )
    return Unreachable(f"no broker answers: {said}", is_final=is_final)
