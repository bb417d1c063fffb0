"""From snapshots of a topic's table to offsets of the topic, and back, for users.

    lakelog.tables.snapshots("orders", server="http://127.0.0.1:8080")
    lakelog.tables.offsets("orders", snapshot_id, server=…)        where a snapshot ends
    lakelog.tables.snapshot_at("orders", time=…, server=…)         which one was it
    lakelog.tables.seen_by("orders", "billing", server=…)          how far a group is
    lakelog.tables.read_seen("orders", "billing", server=…)        exactly the rows it has seen

A broker is asked over its HTTP port (`server`), or one that a configuration file leads to
(`config`), as in `lakelog.read`. Every failure has a name and says what is missing.

A table's own snapshots come first and its history after them, the newest page first; older pages
are asked for only while a newer snapshot may be in them. What a broker says is checked before it is
believed.
"""

import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.catalog.snapshot_page import SnapshotFact, SnapshotPage, decode_page
from lakelog.config.named_options import CONFIG, SERVER, BadOption, parse_cluster
from lakelog.index.http_client import BrokerClient, known_brokers
from lakelog.index.messages import (
    PAGES_PER_QUESTION,
    READ,
    GroupAnswer,
    GroupQuestion,
    Missing,
    PagesAnswer,
    PagesQuestion,
    SnapshotsAnswer,
    SnapshotsQuestion,
)
from lakelog.index.remote_index import HttpIndex
from lakelog.lake.read.arrow_reader import read, run_on_thread
from lakelog.lake.read.read_options import ASSIGN, ENDING_OFFSETS
from lakelog.lake.read.read_request import arrow_schema, chosen_columns, default_columns
from lakelog.lake.read.topic_source import find_cluster
from lakelog.model.failures import Unavailable
from lakelog.tables.values import (
    NoSnapshot,
    NoTable,
    NothingCommitted,
    Offsets,
    TableSnapshot,
    TopicNotFound,
    UnknownGroup,
    UnknownSnapshot,
    is_within,
    milliseconds,
    newest,
    offsets_of,
    snapshot_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS_MAX: Final = 1 << 20
TOPIC_ID_BYTES: Final = 16


class SnapshotClient:
    """Snapshots and groups of a running cluster, through whichever of these brokers answers."""

    def __init__(self, client: BrokerClient, brokers: Sequence[str]) -> None:
        self.brokers = tuple(brokers)
        """Whom to ask for more."""
        self.client = client

    async def found(self, topic: str) -> "SnapshotSearch":
        """The newest snapshots of a topic's table; raises `TopicNotFound` and `NoTable`."""
        answer = await self.client.ask("snapshots", SnapshotsQuestion(topic), SnapshotsAnswer)
        _check_there(answer.missing, topic)
        _check_topic(answer.topic_id, answer.partition_count)
        return SnapshotSearch(self, topic, answer)

    async def committed(self, group: str, topic: str) -> GroupAnswer:
        """What a group has committed in a topic.

        Raises `TopicNotFound`, `UnknownGroup` and `NothingCommitted`.
        """
        answer = await self.client.ask("group", GroupQuestion(group, topic), GroupAnswer)
        _check_there(answer.missing, topic, group)
        _check_topic(answer.topic_id, answer.partition_count)
        if any(partition < 0 or offset < 0 for partition, offset in answer.offsets.items()):
            raise Unavailable("the answer about a group makes no sense")
        return answer


class SnapshotSearch:
    """The snapshots of a table that were looked at so far, and the way to older ones."""

    def __init__(self, client: SnapshotClient, topic: str, answer: SnapshotsAnswer) -> None:
        self.topic = topic
        self.partition_count = answer.partition_count
        self.live = {one.snapshot_id: one for one in decode_page(answer.live).facts}
        self.expired: dict[int, SnapshotFact] = {}
        self.reached = -1
        """No snapshot that was not looked at has a greater sequence number."""
        self._client = client
        self._topic_id = answer.topic_id
        self._kept_from_ms = answer.kept_from_ms
        self._first, self._end = answer.first, answer.end
        self._pages: deque[SnapshotPage] = deque()
        self._pages_next = 1
        self._take(decode_page(answer.recent))

    def all(self) -> list[SnapshotFact]:
        """All that were looked at, the newest first."""
        found = [*self.live.values(), *self.expired.values()]
        return sorted(found, key=lambda one: one.sequence_number, reverse=True)

    def get(self, snapshot_id: int) -> SnapshotFact | None:
        """The snapshot with this id, if it was looked at."""
        return self.live.get(snapshot_id) or self.expired.get(snapshot_id)

    async def newest(self, wanted: Callable[[SnapshotFact], bool]) -> SnapshotFact | None:
        """The newest snapshot that is wanted; looks as far back as it must."""
        best = newest(one for one in self.all() if wanted(one))
        while best is None or best.sequence_number < self.reached:
            fresh = await self.older()
            if fresh is None:
                break
            late = newest(one for one in fresh if wanted(one))
            best = newest(one for one in (best, late) if one is not None)
        return best

    async def older(self) -> list[SnapshotFact] | None:
        """Look at one more page; what was new in it, or None when there is none."""
        while not self._pages:
            if self._end <= self._first:
                return None
            await self._ask()
        return self._take(self._pages.popleft())

    async def _ask(self) -> None:
        start = max(self._first, self._end - self._pages_next)
        question = PagesQuestion(self._topic_id, list(range(self._end - 1, start - 1, -1)))
        pages = (await self._client.client.ask("snapshot_pages", question, PagesAnswer)).pages
        if not 0 < len(pages) <= self._end - start:
            raise Unavailable("the answer about pages is not about those asked for")
        self._pages += [decode_page(page) for page in pages if page is not None]
        self._end -= len(pages)
        # Who looks further back is likely to look even further.
        self._pages_next = min(self._pages_next * 2, PAGES_PER_QUESTION)

    def _take(self, page: SnapshotPage) -> list[SnapshotFact]:
        fresh = []
        for one in page.facts:
            is_known = one.snapshot_id in self.live or one.snapshot_id in self.expired
            if not is_known and one.expired_ms >= self._kept_from_ms:
                self.expired[one.snapshot_id] = one
                fresh.append(one)
        self.reached = page.reached
        return fresh


def _check_there(missing: str, topic: str, group: str = "") -> None:
    match missing:
        case Missing.NOTHING:
            return
        case Missing.TOPIC:
            raise TopicNotFound(f"there is no topic {topic!r}")
        case Missing.TABLE:
            raise NoTable(
                f"{topic} has no table: its lakelog.format is not parquet, or tables are off"
            )
        case Missing.GROUP:
            raise UnknownGroup(f"there is no group {group!r}")
        case Missing.OFFSETS:
            raise NothingCommitted(f"group {group!r} has committed nothing in {topic}")
        case _:
            raise Unavailable(f"the broker lacks {missing!r}, whatever that is")


def _check_topic(topic_id: bytes, partition_count: int) -> None:
    if len(topic_id) != TOPIC_ID_BYTES or not 0 < partition_count <= PARTITIONS_MAX:
        raise Unavailable("the answer about a topic makes no sense")


ResultT = TypeVar("ResultT")


def snapshots(
    topic: str, *, server: str | None = None, config: str | None = None, limit: int | None = None
) -> tuple[TableSnapshot, ...]:
    """The snapshots of a topic's table, the oldest first, those too that it let go of.

    With a limit, the newest so many.
    """
    if limit is not None and limit < 0:
        raise BadOption("limit", f"limit is {limit}, but must not be negative")

    async def work(client: SnapshotClient) -> tuple[TableSnapshot, ...]:
        found = await client.found(topic)
        while not _is_enough(found, limit) and await found.older() is not None:
            continue
        return tuple(_snapshot(found, one) for one in reversed(found.all()[:limit]))

    return _asked(work, server=server, config=config)


def offsets(
    topic: str, snapshot: int, *, server: str | None = None, config: str | None = None
) -> Offsets:
    """Where a snapshot ends: for each partition the first offset that it does not hold."""

    async def work(client: SnapshotClient) -> Offsets:
        found = await client.found(topic)
        while found.get(snapshot) is None and await found.older() is not None:
            continue
        fact = found.get(snapshot)
        if fact is not None:
            return _snapshot(found, fact).offsets
        raise UnknownSnapshot(
            f"the table of {topic} has no snapshot {snapshot}: it never had, or it let go of it"
            " longer ago than the topic's lakelog.snapshots.history.ms"
        )

    return _asked(work, server=server, config=config)


def snapshot_at(
    topic: str,
    *,
    offsets: Mapping[int, int] | None = None,
    time: datetime | None = None,
    server: str | None = None,
    config: str | None = None,
) -> TableSnapshot:
    """The newest snapshot that holds nothing beyond these offsets, or that was there at a time.

    A partition that the offsets do not name holds nothing for them, and -1 stands for its end.
    """
    wanted, said = _wanted(offsets, time)

    async def work(client: SnapshotClient) -> TableSnapshot:
        found = await client.found(topic)
        best = await found.newest(wanted)
        if best is not None:
            return _snapshot(found, best)
        known = found.all()
        if not known:
            raise NoSnapshot(f"no snapshot of the table of {topic} is known")
        oldest = _snapshot(found, known[-1])
        raise NoSnapshot(
            f"no snapshot of the table of {topic} is at or before {said}: the oldest that is known"
            f" is {oldest.id} of {oldest.time.isoformat()}"
        )

    return _asked(work, server=server, config=config)


def seen_by(
    topic: str, group: str, *, server: str | None = None, config: str | None = None
) -> Offsets:
    """How far a group has committed, partition by partition; -2 where it committed nothing."""

    async def work(client: SnapshotClient) -> Offsets:
        found = await client.committed(group, topic)
        return offsets_of(topic, found.offsets, partition_count=found.partition_count)

    return _asked(work, server=server, config=config)


def read_seen(
    topic: str,
    group: str,
    *,
    columns: Sequence[str] | None = None,
    server: str | None = None,
    config: str | None = None,
) -> "pa.Table":
    """The rows before the offsets that a group has committed, as far as the log still has them."""
    chosen = default_columns(include_headers=False) if columns is None else chosen_columns(columns)
    ends = _asked(lambda client: _seen(client, topic, group), server=server, config=config)
    if not ends:
        return arrow_schema(chosen).empty_table()
    named = {str(partition): end for partition, end in ends.items()}
    options = {ASSIGN: json.dumps({topic: list(ends)}), ENDING_OFFSETS: json.dumps({topic: named})}
    return read(columns=chosen, options=options, server=server, config=config)


async def _seen(client: SnapshotClient, topic: str, group: str) -> dict[int, int]:
    """Where to end in each partition that has something which the group has seen."""
    committed = await client.committed(group, topic)
    index = HttpIndex(client.brokers)
    try:
        topics = await index.topics([topic])
        if not topics or topics[0].topic_id != committed.topic_id:
            raise Unavailable(f"{topic} was deleted, or made again, while it was asked about")
        streams = topics[0].streams
        bounds = await index.bounds(streams)
    finally:
        await index.close()
    ends = {}
    for partition, offset in sorted(committed.offsets.items()):
        found = bounds.get(streams[partition]) if partition < len(streams) else None
        if found is not None and found.log_start < min(offset, found.head):
            ends[partition] = min(offset, found.head)
    return ends


def _is_enough(found: SnapshotSearch, limit: int | None) -> bool:
    """Whether no older snapshot can be among the newest so many."""
    if limit is None:
        return False
    known = found.all()
    return len(known) >= limit and (not limit or known[limit - 1].sequence_number >= found.reached)


def _wanted(
    offsets: Mapping[int, int] | None, time: datetime | None
) -> tuple[Callable[[SnapshotFact], bool], str]:
    """Which snapshots are early enough, and how that is said."""
    if (offsets is None) == (time is None):
        raise BadOption("offsets", "give either offsets or time")
    if time is not None:
        try:
            time_ms = milliseconds(time)
        except ValueError as reason:
            raise BadOption("time", str(reason)) from reason
        return (lambda one: one.timestamp_ms <= time_ms), time.isoformat()
    given = dict(offsets or {})
    if not all(isinstance(one, int) for pair in given.items() for one in pair):
        raise BadOption("offsets", f"{given!r} is not offsets by partition, as {{0: 5}}")
    return (lambda one: is_within(one.vector, given)), f"{given}"


def _snapshot(found: SnapshotSearch, fact: SnapshotFact) -> TableSnapshot:
    return snapshot_of(
        fact,
        found.topic,
        partition_count=found.partition_count,
        is_live=fact.snapshot_id in found.live,
    )


def _asked(
    work: Callable[[SnapshotClient], Awaitable[ResultT]],
    *,
    server: str | None,
    config: str | None,
) -> ResultT:
    """Run it with a client of the cluster, on a thread: the caller's may have a loop already."""
    given = {name: text for name, text in ((SERVER, server), (CONFIG, config)) if text is not None}
    connection = parse_cluster(given, has_bootstrap=False)

    async def run() -> ResultT:
        environment = os.environ  # noqa: TID251 - a user's process has no other root
        brokers = (await find_cluster(connection, environment)).brokers
        brokers_client = BrokerClient(known_brokers(brokers), READ.path, serves="readers")
        try:
            return await work(SnapshotClient(brokers_client, brokers))
        finally:
            await brokers_client.close()

    return run_on_thread(run())
