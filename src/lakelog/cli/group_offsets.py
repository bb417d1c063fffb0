"""The offsets that group commands need: committed ones, and what the log holds beside them.

- Leaders know where a log starts and ends, and where a time is in it. A partition that cannot be
  asked does not stop the others: it is answered with the reason.
- When the first unread record was written is read from the record itself. No API tells the
  timestamp of an offset, so the batch at the offset is fetched. Most batches are small: they are
  asked for many at a time, and only what did not fit is asked for again, at last alone, because the
  first batch of an answer comes whole whatever its size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeAlias

import numpy as np

from lakelog.cli.cluster import MOVING, ClusterConnections, TopicLeaders, has_id
from lakelog.cli.command import check
from lakelog.cli.group_view import NamedPartition, Position
from lakelog.cli.record_clients import DECOMPRESSED_BYTES_MAX, WAIT_MS
from lakelog.cli.topics import CONSUMER, EARLIEST, LATEST, TIMEOUT_MS
from lakelog.records.columns import decode_columns
from lakelog.records.header import (
    BatchError,
    MalformedBatchError,
    batch_crc,
    parse_header,
    split_batches,
)
from lakelog.server.client import Client, KafkaFailure, Unreachable
from lakelog.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

NO_TOPIC: Final = "no such topic"
NO_PARTITION: Final = "no such partition"


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partition holds: the offsets [start, end)."""

    start: int
    end: int


async def extents(
    cluster: ClusterConnections,
    topics: Mapping[str, TopicLeaders],
    wanted: Iterable[NamedPartition],
) -> dict[NamedPartition, Extent | str]:
    """What each partition holds, or why that is not known."""
    wanted = sorted(set(wanted))
    starts = await offsets_at(cluster, topics, wanted, EARLIEST)
    ends = await offsets_at(cluster, topics, wanted, LATEST)
    found: dict[NamedPartition, Extent | str] = {}
    for at in wanted:
        start, end = starts[at], ends[at]
        if isinstance(start, str):
            found[at] = start
        elif isinstance(end, str):
            found[at] = end
        else:
            found[at] = Extent(start, max(start, end))
    return found


async def offsets_at(
    cluster: ClusterConnections,
    topics: Mapping[str, TopicLeaders],
    wanted: Iterable[NamedPartition],
    timestamp: int,
) -> dict[NamedPartition, int | str]:
    """The offset that a time, or -1 and -2, stands for in each partition, or why it is not known.

    The offset is -1 where no record is that late.
    """
    wanted = sorted(set(wanted))
    found: dict[NamedPartition, int | str] = {at: _missing(topics, at) for at in wanted}
    for leader, led in by_leader(topics, wanted).items():
        try:
            client = await cluster.leader(leader)
            answer = await client.call(_request(led, timestamp), ListOffsetsResponse)
        except (Unreachable, KafkaFailure) as reason:
            found.update(dict.fromkeys(led, str(reason)))
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                at = NamedPartition(topic.name, each.partition_index)
                code = each.error_code
                found[at] = str(KafkaFailure(code)) if code else each.offset
    return found


def by_leader(
    topics: Mapping[str, TopicLeaders], wanted: Iterable[NamedPartition]
) -> dict[int, list[NamedPartition]]:
    """The partitions that each broker leads, in order; those that are not there are left out."""
    found: dict[int, list[NamedPartition]] = {}
    for at in sorted(wanted):
        topic = topics.get(at.topic)
        if topic is not None and at.partition in topic.leaders:
            found.setdefault(topic.leaders[at.partition], []).append(at)
    return found


def _missing(topics: Mapping[str, TopicLeaders], at: NamedPartition) -> str:
    return NO_TOPIC if at.topic not in topics else NO_PARTITION


def _request(led: list[NamedPartition], timestamp: int) -> ListOffsetsRequest:
    asked = tuple(
        ListOffsetsTopic(
            name,
            tuple(ListOffsetsPartition(at.partition, timestamp=timestamp) for at in group),
        )
        for name, group in groupby(led, key=lambda at: at.topic)
    )
    return ListOffsetsRequest(CONSUMER, topics=asked, timeout_ms=TIMEOUT_MS)


STAGES: Final = ((64 << 10, 64), (1_100_000, 8))
"""Bytes of each partition and partitions of a request; 1.1 MB holds Kafka's largest by default."""

ALONE_BYTES_MAX: Final = 1
"""The first batch comes whole, and then nothing more is wanted."""

ROUNDS_MAX: Final = 64
"""How many batches without a record, such as markers, are skipped before the search ends."""


async def first_unread(
    cluster: ClusterConnections,
    topics: Mapping[str, TopicLeaders],
    unread: Mapping[NamedPartition, range],
) -> dict[NamedPartition, int | None]:
    """The timestamp of the first record in each range of offsets.

    It is None where the range holds no record; a partition that could not be read is left out.
    """
    found: dict[NamedPartition, int | None] = {}
    for leader, led in by_leader(topics, [at for at, left in unread.items() if left]).items():
        client = await cluster.leader(leader)
        search = _Search(client, topics, {at: unread[at] for at in led})
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
        self, client: Client, topics: Mapping[str, TopicLeaders], left: dict[NamedPartition, range]
    ) -> None:
        self._client = client
        self._topics = topics
        self.left = left
        self.found: dict[NamedPartition, int | None] = {}

    async def insist(self, at: NamedPartition) -> None:
        """Look at batch after batch until a record is found or nothing more is learnt."""
        for _ in range(ROUNDS_MAX):
            before = self.left.get(at)
            await self.ask([at], ALONE_BYTES_MAX)
            if self.left.get(at) in (before, None):
                return

    async def ask(self, asked: Sequence[NamedPartition], bytes_max: int) -> None:
        """Fetch once, and take out what is settled."""
        answer = await self._client.call(self._request(asked, bytes_max), FetchResponse)
        names = {self._topics[at.topic].id: at.topic for at in asked}
        for topic in answer.responses:
            name = names.get(topic.topic_id, "") if has_id(topic.topic_id) else topic.topic
            for data in topic.partitions:
                at = NamedPartition(name, data.partition_index)
                if at in self.left:
                    self._take(at, data)

    def _take(self, at: NamedPartition, data: FetchPartitionData) -> None:
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

    def _request(self, asked: Sequence[NamedPartition], bytes_max: int) -> FetchRequest:
        topics = tuple(
            FetchTopic(
                self._topics[name].id,
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


NOT_COMMITTED: Final = -1

_Committed: TypeAlias = tuple[OffsetFetchResponsePartition | OffsetFetchResponsePartitions, ...]


async def committed_offsets(cluster: ClusterConnections, group: str) -> dict[NamedPartition, int]:
    """What a group has committed, by partition; a group that is not there has committed nothing."""

    async def ask(client: Client) -> OffsetFetchResponse:
        wanted = OffsetFetchRequestGroup(group, topics=None)
        request = OffsetFetchRequest((wanted,), group_id=group, topics=None)
        answer = await client.call(request, OffsetFetchResponse)
        check(answer.error_code, about=group)
        for each in answer.groups:
            check(each.error_code, about=group)
        return answer

    _, answer = await cluster.at_coordinator(group, ask)
    if not answer.groups:  # one group before v8
        return _offsets((topic.name, topic.partitions) for topic in answer.topics)
    topics = answer.groups[0].topics
    # From v10 on topics have ids only; what has no name any more was deleted just now.
    ids = [topic.topic_id for topic in topics if has_id(topic.topic_id)]
    names = {topic.id: topic.name for topic in (await cluster.topics(ids=ids)).values()}
    return _offsets((names.get(topic.topic_id, topic.name), topic.partitions) for topic in topics)


async def commit_offsets(
    cluster: ClusterConnections,
    group: str,
    topics: Mapping[str, TopicLeaders],
    offsets: Mapping[NamedPartition, int],
) -> dict[NamedPartition, int]:
    """Commit as an administrator, for no member and no generation; returns the refusals' codes."""
    request = OffsetCommitRequest(group, topics=_by_topic(topics, offsets))

    async def ask(client: Client) -> dict[NamedPartition, int]:
        answer = await client.call(request, OffsetCommitResponse)
        names = {topic.id: topic.name for topic in topics.values()}
        refused = {}
        for topic in answer.topics:
            name = names.get(topic.topic_id, "") if has_id(topic.topic_id) else topic.name
            for each in topic.partitions:
                if each.error_code in MOVING:
                    raise KafkaFailure(each.error_code, about=group)
                if each.error_code:
                    refused[NamedPartition(name, each.partition_index)] = each.error_code
        return refused

    _, refused = await cluster.at_coordinator(group, ask)
    return refused


async def positions(
    cluster: ClusterConnections,
    topics: Mapping[str, TopicLeaders],
    committed: Mapping[NamedPartition, int],
    wanted: Iterable[NamedPartition],
) -> list[Position]:
    """Where a group stands in each of these partitions, in order; how old it is, is not asked."""
    wanted = sorted(set(wanted))
    held = await extents(cluster, topics, wanted)
    found = []
    for at in wanted:
        position = Position(at, committed.get(at))
        extent = held[at]
        if isinstance(extent, str):
            found.append(replace(position, trouble=extent))
        else:
            found.append(replace(position, start=extent.start, end=extent.end))
    return found


async def dated(
    cluster: ClusterConnections, topics: Mapping[str, TopicLeaders], found: Iterable[Position]
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


def _offsets(topics: Iterable[tuple[str, _Committed]]) -> dict[NamedPartition, int]:
    found = {}
    for name, partitions in topics:
        for each in partitions:
            check(each.error_code, about=f"{name}, partition {each.partition_index}")
            if name and each.committed_offset != NOT_COMMITTED:
                found[NamedPartition(name, each.partition_index)] = each.committed_offset
    return found


def _by_topic(
    topics: Mapping[str, TopicLeaders], offsets: Mapping[NamedPartition, int]
) -> tuple[OffsetCommitRequestTopic, ...]:
    return tuple(
        OffsetCommitRequestTopic(
            topics[name].id,
            tuple(OffsetCommitRequestPartition(at.partition, offsets[at]) for at in group),
            name,
        )
        for name, group in groupby(sorted(offsets), key=lambda at: at.topic)
    )
