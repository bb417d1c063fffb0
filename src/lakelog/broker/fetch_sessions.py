"""Incremental fetch sessions (KIP-227): who reads what, so that a poll names only changes.

`FetchSessions.begin` takes a request to a context: the partitions to read, in order.
`FetchSessions.settle` takes what was read to what the answer holds. Nothing here waits or reads a
clock; between the two calls other requests may come, and a session whose epoch moved meanwhile is
refused (row 54).

Rules (rows 51 to 54):
- epoch 0 opens a session, -1 goes without one; both drop the session they name;
- any other epoch must be the session's, which then moves on by one and wraps from 2^31 - 1 to 1;
- a session is of names (up to v12) or of ids (from v13 on) and never changes its kind;
- an incremental answer holds only partitions with records, an error or changed marks; a partition
  with an error is sent every time and once more when it heals;
- a partition that had records moves to the end, so that a full budget starves nobody.

A session belongs to whoever knows its random number, as in Kafka: a client may come back on
another connection. Slots are limited, and so are the partitions of all sessions together, because
a hostile client could fill any number of them; without a slot the answer's session id is 0, which
tells a client to go on with full requests.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakelog.clock import Entropy
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.fetch import FetchPartition, FetchPartitionData, FetchRequest
from lakelog.wire.schema import RecordParts

SESSIONS_MAX: Final = 1_000
IDLE_S_MAX: Final = 120.0
PARTITIONS_MAX: Final = 200_000
"""Of all sessions together: about 60 MB."""

SESSION_PARTITIONS_MAX: Final = 25_000
"""Of one session: as many as one request may name."""

NO_SESSION: Final = 0
OPENING_EPOCH: Final = 0
SESSIONLESS_EPOCH: Final = -1
EPOCH_MAX: Final = (1 << 31) - 1

Key: TypeAlias = tuple[str | bytes, int]
"""A topic's name, or its id from v13 on, and a partition."""

Asked: TypeAlias = dict[Key, FetchPartition]
"""What to read, in order."""

Results: TypeAlias = list[tuple[Key, FetchPartitionData]]
"""What was read, in the order it was asked for."""


def next_epoch(epoch: int) -> int:
    """The epoch that follows in a session."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class Slot:
    """A partition of a session: what the client asked last, and the marks it was told last."""

    __slots__ = ("asked", "high_watermark", "log_start")

    def __init__(self, asked: FetchPartition, *, high_watermark: int, log_start: int) -> None:
        self.asked = asked
        self.high_watermark = high_watermark
        self.log_start = log_start


class FetchSession:
    """One session: its partitions in the order they are served."""

    __slots__ = ("by_id", "epoch", "id", "slots", "used_s")

    def __init__(self, number: int, *, by_id: bool, slots: dict[Key, Slot], now_s: float) -> None:
        self.id = number
        self.by_id = by_id
        self.epoch = next_epoch(OPENING_EPOCH)
        self.slots = slots
        self.used_s = now_s

    def update(self, asked: Asked, forgotten: Iterable[Key]) -> None:
        """Take in what an incremental request names; what it does not name stays."""
        for key, partition in asked.items():
            slot = self.slots.get(key)
            if slot is None:
                self.slots[key] = Slot(partition, high_watermark=-1, log_start=-1)
            else:
                slot.asked = partition
        for key in forgotten:
            self.slots.pop(key, None)

    def select(self, results: Results) -> Results:
        """What of the results the client has to hear; the marks it hears are remembered."""
        selected = []
        for result in results:
            key, data = result
            slot = self.slots[key]
            has_records = records_bytes(data) > 0
            changed = (
                has_records
                or data.error_code != 0
                or slot.high_watermark != data.high_watermark
                or slot.log_start != data.log_start_offset
            )
            if not changed:
                continue
            selected.append(result)
            # An error's marks are -1, as no other answer's: the partition is sent when it heals.
            slot.high_watermark = data.high_watermark
            slot.log_start = data.log_start_offset
            if has_records:
                self.slots[key] = self.slots.pop(key)
        return selected


@dataclass(frozen=True, slots=True)
class Sessionless:
    """The request stands alone."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class FullFetch:
    """The request lists everything, and the answer opens a session if there is room."""

    asked: Asked
    by_id: bool


@dataclass(frozen=True, slots=True)
class Incremental:
    """The request goes on with a session; `epoch` is the session's after this request."""

    session: FetchSession
    epoch: int

    @property
    def asked(self) -> Asked:
        """All partitions of the session, in the order they are served."""
        return {key: slot.asked for key, slot in self.session.slots.items()}


Context: TypeAlias = Sessionless | FullFetch | Incremental


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What the answer to a fetch holds."""

    code: ErrorCode
    session_id: int
    results: Results


class FetchSessions:
    """The sessions of one broker; a restart forgets them, and clients begin again (row 54)."""

    def __init__(
        self,
        entropy: Entropy,
        *,
        sessions_max: int = SESSIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
        idle_s_max: float = IDLE_S_MAX,
    ) -> None:
        self._entropy = entropy
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._idle_s_max = idle_s_max
        self._sessions: dict[int, FetchSession] = {}  # the one used longest ago comes first
        self._partitions = 0
        self.draining = False
        """Set when the broker goes down: from then on no fetch waits for data (row 98)."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The partitions of all sessions together."""
        return self._partitions

    def begin(self, request: FetchRequest, *, by_id: bool, now_s: float) -> Context | ErrorCode:
        """What the request asks for, or the code it is refused with."""
        asked = _asked(request, by_id=by_id)
        if request.session_epoch in (OPENING_EPOCH, SESSIONLESS_EPOCH):
            self._close(request.session_id)
            if request.session_epoch == SESSIONLESS_EPOCH:
                return Sessionless(asked)
            return FullFetch(asked, by_id)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return self._go_on(session, asked, _forgotten(request, by_id=by_id), now_s)

    def settle(self, context: Context, results: Results, *, now_s: float) -> FetchAnswer:
        """What to answer, given what was read of each partition of the context."""
        if isinstance(context, Sessionless):
            return FetchAnswer(ErrorCode.NONE, NO_SESSION, results)
        if isinstance(context, FullFetch):
            return FetchAnswer(ErrorCode.NONE, self._open(context, results, now_s), results)
        session = context.session
        if session.epoch != context.epoch:
            return FetchAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, [])
        return FetchAnswer(ErrorCode.NONE, session.id, session.select(results))

    def _go_on(
        self, session: FetchSession, asked: Asked, forgotten: list[Key], now_s: float
    ) -> Context | ErrorCode:
        before = len(session.slots)
        session.update(asked, forgotten)
        self._partitions += len(session.slots) - before
        if not session.slots:
            self._close(session.id)
            return Sessionless(asked)
        if self._partitions > self._partitions_max or len(session.slots) > SESSION_PARTITIONS_MAX:
            # No room for what it added: the client starts over and learns that there is no slot.
            self._close(session.id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.used_s = now_s
        session.epoch = next_epoch(session.epoch)
        self._sessions[session.id] = self._sessions.pop(session.id)
        return Incremental(session, session.epoch)

    def _open(self, context: FullFetch, results: Results, now_s: float) -> int:
        self._evict(now_s)
        full = len(self._sessions) >= self._sessions_max
        if full or self._partitions + len(results) > self._partitions_max:
            return NO_SESSION
        slots = {
            key: Slot(
                context.asked[key],
                high_watermark=data.high_watermark,
                log_start=data.log_start_offset,
            )
            for key, data in results
        }
        session = FetchSession(self._number(), by_id=context.by_id, slots=slots, now_s=now_s)
        self._sessions[session.id] = session
        self._partitions += len(slots)
        return session.id

    def _number(self) -> int:
        while True:
            number = self._entropy.below(EPOCH_MAX) + 1
            if number not in self._sessions:
                return number

    def _evict(self, now_s: float) -> None:
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now_s - oldest.used_s <= self._idle_s_max:
                return
            self._close(oldest.id)

    def _close(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self._partitions -= len(session.slots)


def records_bytes(data: FetchPartitionData) -> int:
    """The record bytes of one partition's answer."""
    records = data.records
    if records is None:
        return 0
    return records.size if isinstance(records, RecordParts) else len(records)


def _asked(request: FetchRequest, *, by_id: bool) -> Asked:
    # A partition named twice is read once, as it was named last: Kafka keeps a map here too.
    return {
        (topic.topic_id if by_id else topic.topic, partition.partition): partition
        for topic in request.topics
        for partition in topic.partitions
    }


def _forgotten(request: FetchRequest, *, by_id: bool) -> list[Key]:
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
