"""Where groups stand in a log: what it holds beside their commits, and how old the unread is.

- Leaders know where a log starts and ends, and where a time is in it. A partition that cannot be
  asked does not stop the others: it is answered with the reason.
- When the first unread record was written is read from the record itself. No API tells the
  timestamp of an offset, so the batch at the offset is fetched. Most batches are small: they are
  asked for many at a time, and only what did not fit is asked for again, at last alone, because the
  first batch of an answer comes whole whatever its size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from lakelog.cli.command import check
from lakelog.cli.group_view import Position
from lakelog.cli.record_clients import DECOMPRESSED_BYTES_MAX, WAIT_MS
from lakelog.kafka_client.admin import (
    EARLIEST_MS,
    LATEST_MS,
    LogBounds,
    OffsetOrFailure,
    TopicPartition,
    ask_offsets,
    by_leader,
)
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import BrokerError
from lakelog.kafka_client.metadata import TopicMetadata
from lakelog.model.errors import ErrorCode
from lakelog.records.columns import decode_columns
from lakelog.records.header import (
    BatchError,
    MalformedBatchError,
    batch_crc,
    parse_header,
    split_batches,
)
from lakelog.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from lakelog.wire.schema import ZERO_UUID

NO_TOPIC: Final = "no such topic"
NO_PARTITION: Final = "no such partition"


_GONE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)


async def known_topics(cluster: KafkaCluster, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Those of these topics that there are, by their names."""
    views = await cluster.topics(sorted(set(names)))
    found = {name: view for name, view in views.items() if view.error not in _GONE}
    for name, view in found.items():
        check(view.error, about=name)
    return found


async def log_bounds(
    cluster: KafkaCluster, topics: Mapping[str, TopicMetadata], wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, LogBounds | str]:
    """What each partition holds, or why that is not known."""
    wanted = sorted(set(wanted))
    starts = await offsets_at(cluster, topics, wanted, EARLIEST_MS)
    ends = await offsets_at(cluster, topics, wanted, LATEST_MS)
    found: dict[TopicPartition, LogBounds | str] = {}
    for at in wanted:
        start, end = starts[at], ends[at]
        if isinstance(start, str):
            found[at] = start
        elif isinstance(end, str):
            found[at] = end
        else:
            found[at] = LogBounds(start, max(start, end))
    return found


async def offsets_at(
    cluster: KafkaCluster,
    topics: Mapping[str, TopicMetadata],
    wanted: Iterable[TopicPartition],
    timestamp: int,
) -> dict[TopicPartition, int | str]:
    """The offset that a time, or -1 and -2, stands for in each partition, or why it is not known.

    The offset is -1 where no record is that late.
    """
    wanted = sorted(set(wanted))
    missing = {at: _missing(topics, at) for at in wanted}
    asked = {at: timestamp for at in wanted if not missing[at]}
    found = await ask_offsets(cluster, asked, cluster.deadline())
    return {at: missing[at] or _offset_or_reason(found[at]) for at in wanted}


def _missing(topics: Mapping[str, TopicMetadata], at: TopicPartition) -> str:
    topic = topics.get(at.topic)
    if topic is None:
        return NO_TOPIC
    return "" if at.partition in topic.leaders else NO_PARTITION


STAGES: Final = ((64 << 10, 64), (1_100_000, 8))
"""Bytes of each partition and partitions of a request; 1.1 MB holds Kafka's largest by default."""

ALONE_BYTES_MAX: Final = 1
"""The first batch comes whole, and then nothing more is wanted."""

ROUNDS_MAX: Final = 64
"""How many batches without a record, such as markers, are skipped before the search ends."""


async def first_unread(
    cluster: KafkaCluster,
    topics: Mapping[str, TopicMetadata],
    unread: Mapping[TopicPartition, range],
) -> dict[TopicPartition, int | None]:
    """The timestamp of the first record in each range of offsets.

    It is None where the range holds no record; a partition that could not be read is left out.
    """
    found: dict[TopicPartition, int | None] = {}
    for leader, led in by_leader([at for at, left in unread.items() if left], topics).items():
        connection = await cluster.connection(leader)
        search = _Search(connection, topics, {at: unread[at] for at in led})
        for bytes_max, count in STAGES:
            asked = list(search.left)
            for first in range(0, len(asked), count):
                await search.ask(asked[first : first + count], bytes_max)
        for at in list(search.left):
            await search.insist(at)
        found |= search.found
    return found


class _Search:
    """The partitions of one leader: what is found, and in which offsets the others are sought."""

    def __init__(
        self,
        connection: BrokerConnection,
        topics: Mapping[str, TopicMetadata],
        left: dict[TopicPartition, range],
    ) -> None:
        self._connection = connection
        self._topics = topics
        self.left = left
        self.found: dict[TopicPartition, int | None] = {}

    async def insist(self, at: TopicPartition) -> None:
        """Look at batch after batch until a record is found or nothing more is learnt."""
        for _ in range(ROUNDS_MAX):
            before = self.left.get(at)
            await self.ask([at], ALONE_BYTES_MAX)
            if self.left.get(at) in (before, None):
                return

    async def ask(self, asked: Sequence[TopicPartition], bytes_max: int) -> None:
        """Fetch once, and take out what is settled."""
        answer = await self._connection.call(self._request(asked, bytes_max), FetchResponse)
        names = {self._topics[at.topic].topic_id: at.topic for at in asked}
        for topic in answer.responses:
            is_named = topic.topic_id == ZERO_UUID
            name = topic.topic if is_named else names.get(topic.topic_id, "")
            for data in topic.partitions:
                at = TopicPartition(name, data.partition_index)
                if at in self.left:
                    self._take(at, data)

    def _take(self, at: TopicPartition, data: FetchPartitionData) -> None:
        unread = self.left.pop(at)
        if data.error_code:
            return
        assert isinstance(data.records, memoryview | bytes | None)
        try:
            timestamp_ms, rest = scan(memoryview(data.records or b""), unread)
        except BatchError:
            return  # an old format or a broken batch: the timestamp stays unknown
        if timestamp_ms is not None or not rest:
            self.found[at] = timestamp_ms
        else:
            self.left[at] = rest

    def _request(self, asked: Sequence[TopicPartition], bytes_max: int) -> FetchRequest:
        topics = tuple(
            FetchTopic(
                self._topics[name].topic_id,
                tuple(
                    FetchPartition(
                        at.partition,
                        fetch_offset=self.left[at].start,
                        partition_max_bytes=bytes_max,
                    )
                    for at in group
                ),
                topic=name,
            )
            for name, group in groupby(sorted(asked), key=lambda at: at.topic)
        )
        return FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=bytes_max * len(asked), topics=topics
        )


def scan(data: memoryview, unread: range) -> tuple[int | None, range]:
    """The timestamp of the first record whose offset is in the range, and where none was seen yet.

    Markers and gaps are no records. Raises BatchError for bytes that are no whole, good batches; a
    partial batch at the end is not looked at.
    """
    for batch in split_batches(data):
        header = parse_header(batch)
        after = header.base_offset + header.last_offset_delta + 1
        if after <= unread.start:
            continue
        if header.crc != batch_crc(batch):
            raise MalformedBatchError(f"wrong checksum at offset {header.base_offset}")
        if not header.control:
            columns = decode_columns(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
            wanted = max(0, unread.start - header.base_offset)
            index = int(np.searchsorted(columns.offset_deltas, wanted))
            if index < len(columns):
                return int(columns.timestamps_ms[index]), unread
        unread = range(after, unread.stop)
    return None, unread


async def positions(
    cluster: KafkaCluster,
    topics: Mapping[str, TopicMetadata],
    committed: Mapping[TopicPartition, int],
    wanted: Iterable[TopicPartition],
) -> list[Position]:
    """Where a group stands in each of these partitions, in order; how old it is, is not asked."""
    wanted = sorted(set(wanted))
    held = await log_bounds(cluster, topics, wanted)
    found = []
    for at in wanted:
        position = Position(at, committed.get(at))
        bounds = held[at]
        if isinstance(bounds, str):
            found.append(replace(position, trouble=bounds))
        else:
            found.append(replace(position, start=bounds.start, end=bounds.end))
    return found


async def dated(
    cluster: KafkaCluster, topics: Mapping[str, TopicMetadata], found: Iterable[Position]
) -> list[Position]:
    """The same positions with the time of the first record that is left to read."""
    found = list(found)
    unread = {each.at: each.unread for each in found if each.unread}
    times_ms = await first_unread(cluster, topics, unread)
    return [
        replace(
            each,
            unread_ms=times_ms.get(each.at),
            only_markers=each.at in times_ms and times_ms[each.at] is None,
        )
        for each in found
    ]


def _offset_or_reason(outcome: OffsetOrFailure) -> int | str:
    if isinstance(outcome, int):
        return outcome
    return outcome.name if isinstance(outcome, BrokerError) else str(outcome)
