"""The `range` assignor: each topic is cut into one range per reader, in the order of members. Pure.

Topics with the same readers and the same number of partitions are cut alike, so that partition n of
all of them goes to one member. The first members get the remainder. It looks at nobody's present
partitions: what stays is what the same order gives again, as in Kafka.
"""

from collections.abc import Mapping, Sequence

from lakelog.groups.assign_values import (
    Assignment,
    Subscriber,
    in_order,
    known_topics,
    readers_by_topic,
)
from lakelog.model.ids import TopicId


def assign_range(
    subscribers: Sequence[Subscriber], counts: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """Contiguous ranges of each topic, by member id."""
    ordered = in_order(subscribers)
    shares: list[Assignment] = [{} for _ in ordered]
    for topic, readers in readers_by_topic(known_topics(ordered, counts)).items():
        quota, extra = divmod(counts[topic], len(readers))
        start = 0
        for rank, index in enumerate(readers):
            end = start + quota + (1 if rank < extra else 0)
            if start < end:
                shares[index][topic] = tuple(range(start, end))
            start = end
    return {member.member_id: share for member, share in zip(ordered, shares, strict=True)}
