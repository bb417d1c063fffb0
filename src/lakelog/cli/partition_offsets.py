"""What the leaders of partitions know: where a log starts and ends, and where a time is in it.

A partition that cannot be asked does not stop the others: it is answered with the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from lakelog.cli.cluster import Cluster, Topic
from lakelog.cli.group_lag import TopicPartition
from lakelog.cli.topics import CONSUMER, EARLIEST, LATEST, TIMEOUT_MS
from lakelog.server.client import KafkaFailure, Unreachable
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

NO_TOPIC: Final = "no such topic"
NO_PARTITION: Final = "no such partition"


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partition holds: the offsets [start, end)."""

    start: int
    end: int


async def extents(
    cluster: Cluster, topics: Mapping[str, Topic], wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, Extent | str]:
    """What each partition holds, or why that is not known."""
    wanted = sorted(set(wanted))
    starts = await offsets_at(cluster, topics, wanted, EARLIEST)
    ends = await offsets_at(cluster, topics, wanted, LATEST)
    found: dict[TopicPartition, Extent | str] = {}
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
    cluster: Cluster,
    topics: Mapping[str, Topic],
    wanted: Iterable[TopicPartition],
    timestamp: int,
) -> dict[TopicPartition, int | str]:
    """The offset that a time, or -1 and -2, stands for in each partition, or why it is not known.

    The offset is -1 where no record is that late.
    """
    wanted = sorted(set(wanted))
    found: dict[TopicPartition, int | str] = {at: _missing(topics, at) for at in wanted}
    for leader, led in by_leader(topics, wanted).items():
        try:
            client = await cluster.leader(leader)
            answer = await client.call(_request(led, timestamp), ListOffsetsResponse)
        except (Unreachable, KafkaFailure) as reason:
            found.update(dict.fromkeys(led, str(reason)))
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                at = TopicPartition(topic.name, each.partition_index)
                code = each.error_code
                found[at] = str(KafkaFailure(code)) if code else each.offset
    return found


def by_leader(
    topics: Mapping[str, Topic], wanted: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """The partitions that each broker leads, in order; those that are not there are left out."""
    found: dict[int, list[TopicPartition]] = {}
    for at in sorted(wanted):
        topic = topics.get(at.topic)
        if topic is not None and at.partition in topic.leaders:
            found.setdefault(topic.leaders[at.partition], []).append(at)
    return found


def _missing(topics: Mapping[str, Topic], at: TopicPartition) -> str:
    return NO_TOPIC if at.topic not in topics else NO_PARTITION


def _request(led: list[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    asked = tuple(
        ListOffsetsTopic(
            name,
            tuple(ListOffsetsPartition(at.partition, timestamp=timestamp) for at in group),
        )
        for name, group in groupby(led, key=lambda at: at.topic)
    )
    return ListOffsetsRequest(CONSUMER, topics=asked, timeout_ms=TIMEOUT_MS)
