"""Fetch (1), versions 4 to 18.

Topics by name up to v12, by id from v13 on. Sessions from v7 on (`fetch_sessions`). Checked:
`current_leader_epoch` from v9 on. Ignored: `rack_id`, `log_start_offset`, `last_fetched_epoch`,
`cluster_id`, `replica_directory_id` and the request's `high_watermark`: they are a replica's, or
choose one. `preferred_read_replica` is -1 and no leader hint is sent (rows 56, 60).

A fetch is answered as soon as it has `min_bytes`, or a read failed; otherwise it is parked until
data comes or `max_wait_ms` is over. A parked fetch does not hold up its connection: only its
place among the answers is kept. Unknown partitions wait with the others; alone they are answered
at once (row 55).

Data is served from any applied state. A partition that is said to be empty, OFFSET_OUT_OF_RANGE
and a stream that is not there need a proof of currency that began after the request arrived (rule
16), also beside partitions with data: clients take an empty partition for its end. The proof is
asked for only when such an answer is about to be given, and before data is read for it: a parked
fetch nearly always has it by then, from the tail's own rhythm. An incremental answer with data
leaves out what is not proved to be empty instead, because data should not wait for it. Without a
proof the client hears 6 and looks elsewhere (rule 17).
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Endpoint, Later
from lakelog.broker.errors import Attempt, failure_code
from lakelog.broker.fetch_read import FetchedPartition, FetchRead, never_read
from lakelog.broker.fetch_sessions import Asked, Context, Incremental, Key, Results
from lakelog.broker.lookup import TopicFinder, check_count, epoch_code
from lakelog.broker.loop_turn import ITEMS_PER_LOOK
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.log.watch import FetchWaiter
    from lakelog.topics.topic import Topic

FIRST_VERSION_BY_ID: Final = 13
RESPONSE_BYTES_MAX: Final = 57_671_680
"""Kafka's `fetch.max.bytes` of a broker: no answer holds more records, one first batch excepted."""

ANSWER_BYTES: Final = 8 << 20
"""What one answer holds, unless the client waits for more: one who catches up asks again at once.
Measured: more saves no CPU, and pushes what was read for the next answer out of memory."""

WAIT_MS_MAX: Final = 300_000
"""Nobody is parked for longer, whatever he asks for; an early answer is always allowed."""

PROOF_S_MAX: Final = 3.0
"""How long an answer may be late for want of a proof: as long as a state may go without (E1)."""

READ_S_MAX: Final = 10.0
"""How long the object store may take: well inside the 30 s that clients wait for an answer."""

LOOK_UP_S: Final = 1.0
"""A parked fetch looks up this often, to see whether the broker is going down."""


async def handle(broker: "Broker", call: Call, request: FetchRequest) -> Answer | Later:
    """Read what is there; without enough of it, promise an answer."""
    check_count(topic.partitions for topic in request.topics)
    context = broker.fetch_sessions.begin(
        request,
        by_id=call.version >= FIRST_VERSION_BY_ID,
        now_s=broker.clock.monotonic_s(),
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    asked = context.asked
    if _replica_id(request) >= 0:
        return _refused_replica(broker, context, asked)
    fetch = _Fetch(broker, call, request, context)
    await fetch.open(asked)
    if len(asked) > ITEMS_PER_LOOK:
        return Later(fetch.complete())  # looked at once, in parts, with a watch
    await fetch.reading.look()
    if not fetch.needs_proof():
        await fetch.reading.read(deadline_s=fetch.deadline_s + READ_S_MAX)
        if fetch.has_enough() and not fetch.needs_proof():
            return await fetch.answer()
    return Later(fetch.complete())


def _replica_id(request: FetchRequest) -> int:
    return max(request.replica_id, request.replica_state.replica_id)


def _refused_replica(broker: "Broker", context: Context, asked: Asked) -> FetchResponse:
    """There are no replicas: who says he is one gets what Kafka gives an unauthorised one."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    results = [(key, never_read(partition.partition, code)) for key, partition in asked.items()]
    return _respond(broker, context, results)


class _Fetch:
    """One fetch that is read once or more before it is answered."""

    __slots__ = (
        "_arrived_s",
        "_broker",
        "_bytes_max",
        "_context",
        "_in_full",
        "_min_bytes",
        "_request",
        "_version",
        "deadline_s",
        "reading",
    )

    reading: FetchRead

    def __init__(
        self, broker: "Broker", call: Call, request: FetchRequest, context: Context
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._version = call.version
        self._arrived_s = call.arrived_s
        self._in_full = not isinstance(context, Incremental)
        limit = min(request.max_bytes, RESPONSE_BYTES_MAX)
        self._bytes_max = max(0, min(limit, max(ANSWER_BYTES, request.min_bytes)))
        self._min_bytes = min(request.min_bytes, self._bytes_max)
        wait_ms = min(max(request.max_wait_ms, 0), WAIT_MS_MAX)
        self.deadline_s = call.arrived_s + wait_ms / 1000

    async def open(self, asked: Asked) -> None:
        """Find the stream of every partition, or its error."""
        finder = TopicFinder(self._broker, Attempt.READING)
        partitions: dict[str | bytes, list[int]] = {}
        for name_or_id, index in asked:
            partitions.setdefault(name_or_id, []).append(index)
        turn = self._broker.loop_turn
        topics: dict[str | bytes, Topic | ErrorCode] = {
            name_or_id: await finder.find(name_or_id, named)
            async for part in turn.parts(list(partitions.items()))
            for name_or_id, named in part
        }
        missing = finder.no_partition
        entries = [
            _entry(key, partition, topics[key[0]], missing)
            async for part in turn.parts(list(asked.items()))
            for key, partition in part
        ]
        self.reading = FetchRead(
            self._broker,
            entries,
            arrived_s=self._arrived_s,
            bytes_max=self._bytes_max,
            committed=self._request.isolation_level != 0,
            version=self._version,
        )
        await self._refuse_unreadable(entries)

    async def _refuse_unreadable(self, entries: list[FetchedPartition]) -> None:
        """Refuse partitions of a wrong epoch, and those whose state is too old (rule 17)."""
        log = self._broker.log
        refused = {}
        stale: dict[int, ErrorCode] = {}  # by domain: there are far fewer than partitions
        async for places in self._broker.loop_turn.parts(range(len(entries))):
            for at in places:
                entry = entries[at]
                if entry.stream < 0:
                    continue
                domain = log.domain_of(entry.stream)
                if domain not in stale:
                    stale[domain] = self._stale_code(entry.stream)
                code = stale[domain] or epoch_code(entry.asked.current_leader_epoch)
                if code:
                    refused[at] = code
        self.reading.refuse_for_good(refused)

    def _stale_code(self, stream: int) -> ErrorCode:
        """Why nothing may be said of the streams of this one's domain, if so."""
        try:
            self._broker.log.check_fresh(stream)
        except Failure as failure:
            return failure_code(failure, Attempt.READING)
        return ErrorCode.NONE

    def has_enough(self) -> bool:
        """Whether the last pass is an answer, time or not."""
        reading = self.reading
        return reading.failed or reading.size_bytes >= self._min_bytes or not reading.streams

    def needs_proof(self) -> bool:
        """Whether an answer made now would claim what is not proved."""
        return self.reading.needs_proof(in_full=self._in_full)

    async def complete(self) -> FetchResponse:
        """Wait for enough data or the end of the time, and answer."""
        reading = self.reading
        with self._broker.log.watch(reading.streams) as watch:
            # After the watch began: it tells of every change since then.
            await reading.look()
            while True:
                # Before the data is read, so that it is read once.
                if (reading.has_data or self._is_over()) and self.needs_proof():
                    await self._prove(watch)
                await reading.read(deadline_s=self.deadline_s + READ_S_MAX)
                if self._is_over():
                    if not self.needs_proof():
                        return await self.answer()
                    continue
                while not watch.changed and not self._time_is_over():
                    await watch.wait(min(self._left_s(), LOOK_UP_S))
                await reading.look(watch.take())

    def _is_over(self) -> bool:
        return self.has_enough() or self._time_is_over()

    def _left_s(self) -> float:
        return self.deadline_s - self._broker.clock.monotonic_s()

    def _time_is_over(self) -> bool:
        return self._left_s() <= 0 or self._broker.fetch_sessions.draining

    async def _prove(self, watch: "FetchWaiter") -> None:
        """Get a proof of what is about to be claimed, or take the claims back."""
        reading, log = self.reading, self._broker.log
        deadline_s = self._broker.clock.monotonic_s() + PROOF_S_MAX
        try:
            await log.prove(reading.unproven, arrived_s=self._arrived_s, deadline_s=deadline_s)
        except Failure as failure:
            reading.refuse_unproven(failure_code(failure, Attempt.READING))
        else:
            await reading.prove(watch.take())

    async def answer(self) -> FetchResponse:
        """The answer made of what was seen last."""
        reading, turn = self.reading, self._broker.loop_turn
        self._broker.metrics.fetched_bytes.inc(reading.size_bytes)
        if not reading.is_large:
            return _respond(self._broker, self._context, self._results())
        # A session takes the results whole, in a few milliseconds: but one fetch after another.
        await turn.take()
        began_s = turn.now_s()
        answer = _respond(self._broker, self._context, self._results())
        turn.spent(began_s)
        return answer

    def _results(self) -> Results:
        """What was found; of a session only what the client may have to hear."""
        context = self._context
        told = context.session.slots if isinstance(context, Incremental) else {}
        return self.reading.results(in_full=self._in_full, told=told)


def _entry(
    key: Key, asked: FetchPartition, topic: "Topic | ErrorCode", missing: ErrorCode
) -> FetchedPartition:
    if isinstance(topic, ErrorCode):
        return FetchedPartition(key, asked, -1, never_read(asked.partition, topic))
    stream = topic.stream(key[1])
    if stream is None:
        return FetchedPartition(key, asked, -1, never_read(asked.partition, missing))
    return FetchedPartition(key, asked, stream)


def _respond(broker: "Broker", context: Context, results: Results) -> FetchResponse:
    now_s = broker.clock.monotonic_s()
    settled = broker.fetch_sessions.settle(context, results, now_s=now_s)
    return FetchResponse(
        error_code=settled.code,
        session_id=settled.session_id,
        responses=_topics(settled.results),
    )


def _topics(results: Results) -> tuple[FetchableTopicResponse, ...]:
    """Neighbours of one topic together: the order is the session's, and it is kept."""
    groups: list[tuple[Key, list[FetchPartitionData]]] = []
    for key, data in results:
        if not groups or groups[-1][0][0] != key[0]:
            groups.append((key, []))
        groups[-1][1].append(data)
    return tuple(
        FetchableTopicResponse(topic=key[0], partitions=tuple(partitions))
        if isinstance(key[0], str)
        else FetchableTopicResponse(topic_id=key[0], partitions=tuple(partitions))
        for key, partitions in groups
    )


API: Final = Endpoint(ApiKey.FETCH, range(4, 19), handle)
