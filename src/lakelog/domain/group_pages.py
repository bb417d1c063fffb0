"""A checkpoint's pages of groups: the groups of one bucket as canonical bytes. Pure.

Groups stand by id and offsets by topic and partition, whatever the order in which they came (rule
13). Members stand in the order in which they came, because that order means something: the first
one leads.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from lakelog.groups.state import ClassicGroup, CommittedOffset, ConsumerGroup, Group
from lakelog.groups.table import GroupTable, Offsets, bucket_of
from lakelog.model.failures import Corrupt

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class GroupPage:
    """The groups of one bucket, by id, each with its offsets."""

    bucket: int
    groups: tuple[tuple[Group, Offsets], ...]


class _Row(msgspec.Struct, frozen=True, array_like=True):
    group: ClassicGroup | ConsumerGroup
    offsets: tuple[tuple[bytes, int, CommittedOffset], ...]


class _Body(msgspec.Struct, frozen=True, array_like=True):
    format: int
    bucket: int
    rows: tuple[_Row, ...]


def cut_group_pages(table: GroupTable, buckets: set[int]) -> list[GroupPage]:
    """The pages of these buckets."""
    found: dict[int, list[str]] = {bucket: [] for bucket in sorted(buckets)}
    for group_id in sorted(table.groups):
        if (bucket := bucket_of(group_id)) in found:
            found[bucket].append(group_id)
    return [
        GroupPage(
            bucket,
            tuple((table.groups[group_id], table.offsets.get(group_id, {})) for group_id in ids),
        )
        for bucket, ids in found.items()
    ]


def encode_group_page(page: GroupPage) -> bytes:
    """The page's bytes."""
    rows = tuple(
        _Row(group, tuple((*place, offsets[place]) for place in sorted(offsets)))
        for group, offsets in page.groups
    )
    return msgspec.msgpack.encode(_Body(FORMAT, page.bucket, rows))


def decode_group_page(data: bytes | memoryview) -> GroupPage:
    """The page; its bytes were verified against their hash before."""
    try:
        body = msgspec.msgpack.decode(data, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"a checkpoint page of groups cannot be read: {error}") from None
    if body.format != FORMAT:
        raise Corrupt(f"a checkpoint page of groups has format {body.format}; {FORMAT} is known")
    groups: list[tuple[Group, Offsets]] = []
    for row in body.rows:
        offsets = {(topic, partition): committed for topic, partition, committed in row.offsets}
        groups.append((row.group, offsets))
    return GroupPage(body.bucket, tuple(groups))
