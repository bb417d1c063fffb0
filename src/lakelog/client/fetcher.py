"""The fetches: requests to all leaders at once, and what their answers mean.

Rules:

- It runs on one loop, and nothing here waits: `pump` sends what the scheduler allows, an answer
  moves positions on and asks for more before anybody has decoded it.
- A position moves only by whole batches that were received. When a connection breaks, the same
  position is asked for again; when a partition jumps, answers to what was asked before are dropped.
- What a repeat can heal is left to the error handler, which learns new metadata; what it cannot is
  told to the reader.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from lakelog.client.decoder import Decoded, MemoryAccount, Slice, Work
from lakelog.client.events import BufferFull
from lakelog.client.fetch_plan import (
    TOPIC_ID_VERSION,
    InFlight,
    PlannedFetch,
    SentPartition,
    build_request,
    has_ids,
)
from lakelog.client.fetch_scheduler import BufferUsage, Demand, FetchScheduler
from lakelog.client.watermark import PartitionState
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import BrokerError, ClientFailure, Closed, CorruptBatch
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.records.fetched_batches import FetchedBatches, walk_batches
from lakelog.records.header import BatchError
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.fetch import FetchPartitionData, FetchResponse

NO_REPLICA: Final = -1

SHARED_BY_MAX: Final = 16
"""An answer of more partitions than this is not kept for the rows of some of them."""


class FetchErrorHandler(Protocol):
    """Who deals with what fetching cannot; the partition is stopped before it is told."""

    def trouble(self, partition: PartitionState, failure: ClientFailure) -> None:
        """New metadata may heal this."""

    def out_of_range(self, partition: PartitionState) -> None:
        """The position is not in the log."""

    def give_up(self, partition: PartitionState, failure: ClientFailure) -> None:
        """Nothing heals this."""


@dataclass(slots=True)
class FetchCounts:
    """What happened to fetches, so far."""

    fetches: int = 0
    fetches_failed: int = 0
    bytes_received: int = 0
    batches_refetched: int = 0


class _Leader:
    """One broker that partitions are read from."""

    __slots__ = ("connection", "is_connecting", "node_id", "timer")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: BrokerConnection | None = None
        self.is_connecting = False
        self.timer: asyncio.TimerHandle | None = None


class Fetcher:
    """The fetches of one consumer; `error_handler` is set before the first partition is placed."""

    error_handler: FetchErrorHandler

    def __init__(
        self,
        cluster: KafkaCluster,
        scheduler: FetchScheduler,
        memory: MemoryAccount,
        decode: Callable[[Work], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.counts = FetchCounts()
        self.partitions: dict[int, PartitionState] = {}
        self._cluster = cluster
        self._scheduler = scheduler
        self._memory = memory
        self._decode = decode
        self._spawn = spawn
        self._leaders: dict[int, _Leader] = {}
        self._is_closed = False

    # What is read.

    def add(self, partition: PartitionState, *, is_waited_for: bool) -> None:
        """Read this partition as well, once it is placed."""
        self.partitions[partition.index] = partition
        self._scheduler.add(partition.index, is_waited_for=is_waited_for)

    def remove(self, partition: PartitionState) -> None:
        """Read this partition no more."""
        del self.partitions[partition.index]
        partition.version += 1
        self._scheduler.remove(partition.index)

    def place(self, partition: PartitionState, node_id: int | None) -> None:
        """Read a partition from this broker."""
        self._scheduler.place(partition.index, node_id)
        if node_id is not None and node_id not in self._leaders:
            self._leaders[node_id] = _Leader(node_id)

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        for leader in self._leaders.values():
            if leader.timer is not None:
                leader.timer.cancel()

    # Out.

    def pump(self) -> None:
        """Send whatever may be sent now."""
        for leader in tuple(self._leaders.values()):
            self._pump(leader)

    def _pump(self, leader: _Leader) -> None:
        if self._is_closed:
            return
        connection = leader.connection
        if connection is None or not connection.is_open:
            self._connect(leader)
            return
        while (fetch := self._plan(leader)) is not None:
            self._send(leader, connection, fetch)
        self._set_timer(leader)

    def _plan(self, leader: _Leader) -> PlannedFetch | None:
        while True:
            memory, now_s = self._memory, self._cluster.clock.monotonic_s()
            demand = memory.demand
            usage = BufferUsage(
                held_bytes=memory.held_bytes(), held_rows=memory.held_rows(), demand=demand
            )
            fetch = self._scheduler.plan(leader.node_id, usage, now_s)
            if fetch is not None and fetch.is_on_demand:
                memory.demand = Demand.NONE  # one request for each time that the reader has nothing
            elif self._scheduler.is_blocked:
                memory.demand = Demand.NONE
                self._decode([BufferFull()])
            if fetch is not None or demand >= memory.demand:
                return fetch
            # The reader ran out of rows meanwhile, perhaps before it could see that we paused.

    def _send(self, leader: _Leader, connection: BrokerConnection, fetch: PlannedFetch) -> None:
        newest = None if has_ids(fetch, self.partitions) else TOPIC_ID_VERSION - 1
        version = connection.version(ApiKey.FETCH, newest)
        request, sent = build_request(
            fetch, self.partitions, self._cluster.settings, version=version
        )
        now_s = self._cluster.clock.monotonic_s()
        for asked in sent.values():
            if asked.partition.waiting_since_s is None:
                asked.partition.waiting_since_s = now_s
        future = connection.send(request, FetchResponse, version=version)
        future.add_done_callback(partial(self._ended, leader, connection, fetch, sent))

    def _set_timer(self, leader: _Leader) -> None:
        """Look again when partitions at their end are due, if nothing else happens before."""
        due_s = self._scheduler.tail_due_s(leader.node_id)
        if due_s is not None and leader.timer is None:
            delay_s = max(0.0, due_s - self._cluster.clock.monotonic_s())
            loop = asyncio.get_running_loop()
            leader.timer = loop.call_later(delay_s, self._on_timer, leader)

    def _on_timer(self, leader: _Leader) -> None:
        leader.timer = None
        self._pump(leader)

    def _connect(self, leader: _Leader) -> None:
        if not leader.is_connecting and self._scheduler.serves(leader.node_id):
            leader.is_connecting = True
            self._spawn(self._connect_to(leader))

    async def _connect_to(self, leader: _Leader) -> None:
        try:
            connection = await self._cluster.connection(leader.node_id)
            connection.version(ApiKey.FETCH)
        except Closed:
            return
        except ClientFailure as failure:
            self._lost(leader, failure)
        else:
            leader.connection = connection
        finally:
            leader.is_connecting = False
        if leader.connection is not None:
            self._pump(leader)

    def _lost(self, leader: _Leader, failure: ClientFailure) -> None:
        """A broker cannot be reached: all its partitions hear of it."""
        for partition in tuple(self.partitions.values()):
            if self._scheduler.leader(partition.index) == leader.node_id:
                self._trouble(partition, failure)

    # In.

    def _ended(
        self,
        leader: _Leader,
        connection: BrokerConnection,
        fetch: PlannedFetch,
        sent: InFlight,
        future: "asyncio.Future[FetchResponse]",
    ) -> None:
        """A request has its answer, or will never have one."""
        if self._is_closed or future.cancelled():
            return
        self.counts.fetches += 1
        failure = future.exception()
        work: Work = []
        if failure is None:
            self._take(future.result(), sent, work)
        for asked in sent.values():  # what the answer does not speak of
            self._scheduler.unanswered(asked.partition.index)
        wire_bytes = sum(len(item.records) for item in work if isinstance(item, Slice))
        self.counts.bytes_received += wire_bytes
        self._scheduler.closed(leader.node_id, fetch, wire_bytes)
        if work:
            self._decode(work)
        if failure is not None:
            self.counts.fetches_failed += 1
            assert isinstance(failure, ClientFailure), failure
            if leader.connection is connection:
                leader.connection = None
                self._lost(leader, failure)
        self._pump(leader)

    def _take(self, answer: FetchResponse, sent: InFlight, work: Work) -> None:
        """Move on by an answer, and take what it speaks of out of `sent`."""
        is_crowded = self._scheduler.is_priming and len(sent) > SHARED_BY_MAX
        for topic in answer.responses:
            for data in topic.partitions:
                key = topic.topic or bytes(topic.topic_id)
                asked = sent.pop((key, data.partition_index), None)
                if asked is None:
                    continue
                partition = asked.partition
                # It was moved while the request was under way: the answer is about where it was.
                if asked.version != partition.version:
                    self._scheduler.unanswered(partition.index)
                    continue
                assert asked.position == partition.position, "it was asked for twice"
                decodable = self._take_partition(asked, data)
                if decodable is not None:
                    work.append(replace(decodable, is_copied=True) if is_crowded else decodable)
        if answer.error_code:
            failure = BrokerError(answer.error_code, "Fetch")
            for asked in sent.values():
                self._trouble(asked.partition, failure)

    def _take_partition(self, asked: SentPartition, data: FetchPartitionData) -> Slice | None:
        partition = asked.partition
        if data.error_code:
            self._scheduler.unanswered(partition.index)
            self._take_error(partition, data.error_code)
            return None
        partition.healed()
        is_committed = self._cluster.settings.is_read_committed
        partition.log_start = data.log_start_offset
        partition.end = data.last_stable_offset if is_committed else data.high_watermark
        if data.preferred_read_replica != NO_REPLICA:
            partition.replica = data.preferred_read_replica
            self.place(partition, data.preferred_read_replica)
        assert not isinstance(data.records, str)
        records = memoryview(data.records or b"")  # type: ignore[arg-type]  # decoded: one buffer
        try:
            batches = walk_batches(records)
        except BatchError:
            self._scheduler.unanswered(partition.index)
            self._corrupt(partition, partition.position)
            return None
        return self._move(asked, records, batches, data)

    def _move(
        self,
        asked: SentPartition,
        records: memoryview,
        batches: FetchedBatches,
        data: FetchPartitionData,
    ) -> Slice | None:
        """Advance a partition by the whole batches that came."""
        partition, position = asked.partition, asked.position
        next_offset = batches.next_offset(position)
        if len(batches) and next_offset <= position:
            self._scheduler.unanswered(partition.index)
            self._corrupt(partition, position)
            return None
        partition.position = next_offset
        is_behind = partition.end is not None and next_offset < partition.end
        if not len(batches):
            if batches.is_cut or is_behind:
                self._scheduler.too_small(
                    partition.index, asked.bytes_max, is_certain=batches.is_cut
                )
            self._scheduler.answered_empty(partition.index, is_behind=is_behind)
            return None
        partition.waiting_since_s = None
        self._scheduler.answered(
            partition.index,
            frontier_ms=int(batches.max_timestamps_ms[-1]),
            wire_bytes=len(records),
            batch_bytes=int((batches.ends - batches.starts).max()),
            is_behind=is_behind,
        )
        aborted = tuple(
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions or ()
        )
        return Slice(
            partition,
            asked.version,
            position,
            next_offset,
            records,
            batches,
            aborted,
            is_copied=self._scheduler.is_ahead(partition.index),
        )

    def _take_error(self, partition: PartitionState, code: int) -> None:
        failure = BrokerError(code, f"{partition.place}")
        is_gone = code == ErrorCode.OFFSET_OUT_OF_RANGE
        if is_gone and partition.replica is None:
            self._scheduler.stop(partition.index)
            self.error_handler.out_of_range(partition)
        elif is_gone or code in RETRIABLE or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._trouble(partition, failure)
        else:
            self._scheduler.stop(partition.index)
            self.error_handler.give_up(partition, failure)

    def _trouble(self, partition: PartitionState, failure: ClientFailure) -> None:
        partition.replica = None
        self._scheduler.stop(partition.index)
        self.error_handler.trouble(partition, failure)

    # Decoded.

    def decoded(self, done: Decoded) -> None:
        """The decoder is through with an answer."""
        self._scheduler.decoded(done.wire_bytes, memory_bytes=done.memory_bytes, rows=done.rows)
        for part, offset in done.corrupt:
            if part.partition.version == part.version:
                self._corrupt(part.partition, offset)
        self.pump()

    def _corrupt(self, partition: PartitionState, offset: int) -> None:
        """A batch is not what was written: ask once more, for it may be the way that broke it."""
        partition.jump(offset)
        if partition.corrupt_offset == offset:
            self._scheduler.stop(partition.index)
            place = partition.place
            self.error_handler.give_up(
                partition, CorruptBatch(place.topic, place.partition, offset)
            )
            return
        self.counts.batches_refetched += 1
        partition.corrupt_offset = offset
