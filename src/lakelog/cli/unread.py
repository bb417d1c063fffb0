"""When the first unread record of a partition was written, read from the record itself.

No API tells the timestamp of an offset, so the batch at the offset is fetched. Most batches are
small: they are asked for many at a time, and only what did not fit is asked for again, at last
alone, because the first batch of an answer comes whole whatever its size.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from lakelog.cli.cluster import Cluster, Topic, has_id
from lakelog.cli.consuming import DECOMPRESSED_BYTES_MAX, WAIT_MS
from lakelog.cli.group_lag import TopicPartition
from lakelog.cli.partition_offsets import by_leader
from lakelog.records.columns import decode_columns
from lakelog.records.header import (
    BatchError,
    MalformedBatchError,
    batch_crc,
    parse_header,
    split_batches,
)
from lakelog.server.client import Client
from lakelog.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

STAGES: Final = ((64 << 10, 64), (1_100_000, 8))
"""Bytes of each partition and partitions of a request; 1.1 MB holds Kafka's largest by default."""

ALONE_BYTES_MAX: Final = 1
"""The first batch comes whole, and then nothing more is wanted."""

ROUNDS_MAX: Final = 64
"""How many batches without a record, such as markers, are skipped before the search ends."""


async def first_unread(
    cluster: Cluster, topics: Mapping[str, Topic], unread: Mapping[TopicPartition, range]
) -> dict[TopicPartition, int | None]:
    """The timestamp of the first record in each range of offsets.

    It is None where the range holds no record; a partition that could not be read is left out.
    """
    found: dict[TopicPartition, int | None] = {}
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
        self, client: Client, topics: Mapping[str, Topic], left: dict[TopicPartition, range]
    ) -> None:
        self._client = client
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
        answer = await self._client.call(self._request(asked, bytes_max), FetchResponse)
        names = {self._topics[at.topic].id: at.topic for at in asked}
        for topic in answer.responses:
            name = names.get(topic.topic_id, "") if has_id(topic.topic_id) else topic.topic
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
