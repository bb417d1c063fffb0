"""What is remembered of a table's snapshots, and how it is written down. Pure.

A fact is a snapshot without its files: id, time, operation and offset vector. Facts of snapshots
that expired are kept in pages, in the order in which they went; the newest page, the head, takes in
more until it is full and is sealed then. A vector is written as what changed since the fact before
it, and a page is compressed: of a thousand partitions 10 kB become one or two.

Rules: a page never changes once it is sealed; a fact may be written down twice and counts once; a
snapshot that somebody else made has no vector, and nothing is remembered of it.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from lakelog.catalog.port import SnapshotView
from lakelog.model.failures import Corrupt, Refused

FORMAT: Final = 1
PAGE_BYTES: Final = 8 << 10
PAGE_FACTS: Final = 16
"""A page is full when it would have more than so many of both: every commit writes the head."""

PAGE_BYTES_FULL: Final = 64 << 10
"""A page is full when it would be larger, however few facts it has, but for a single one."""

PAGE_BYTES_MAX: Final = 64 << 20
"""The most that a page may be when it is unpacked."""

OPERATION_LENGTH_MAX: Final = 64
FOR_EVER: Final = -1
_LEVEL: Final = 6

_Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Partition = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
ShapeT = TypeVar("ShapeT")


@dataclass(frozen=True, slots=True)
class SnapshotFact:
    """One snapshot of a table."""

    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    operation: str
    vector: Mapping[int, int]
    """The first offset of each partition that the snapshot does not hold."""
    expired_ms: int = 0
    """When it went; 0 while the table has it."""


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Snapshots in the order in which they expired."""

    facts: tuple[SnapshotFact, ...] = ()
    reached: int = -1
    """The greatest sequence number in all pages before: who has a greater one need not look there.

    Snapshots expire by age, but for those that a tag kept.
    """

    @property
    def reached_after(self) -> int:
        """The greatest sequence number in this page and all before."""
        return max(self.reached, *(one.sequence_number for one in self.facts), -1)


@dataclass(frozen=True, slots=True)
class Head:
    """The newest part of a table's history, and where the rest of it is."""

    first: int = 0
    end: int = 0
    """The sealed pages are [first, end); some of the first may be deleted already."""
    page: SnapshotPage = SnapshotPage()
    """What expired last."""
    live: tuple[SnapshotFact, ...] = ()
    """What the table had when it was changed last; of a catalog that brokers do not keep."""


class _Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    snapshot_id: _Long
    sequence_number: _Natural
    timestamp_ms: _Long
    operation: Annotated[str, Meta(max_length=OPERATION_LENGTH_MAX)]
    expired_ms: _Natural
    is_whole: bool
    """Whether the changes are since nothing, not since the fact before."""
    changes: dict[_Partition, _Long]


class _Page(Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    reached: Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
    rows: list[_Row]


class _Head(Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    first: _Natural
    end: _Natural
    page: bytes
    live: bytes


class _Format(Struct, frozen=True):
    format: int


def facts_of(snapshots: Iterable[SnapshotView], *, expired_ms: int = 0) -> list[SnapshotFact]:
    """What is to be remembered of a table's snapshots, in their order."""
    return [
        SnapshotFact(
            snapshot_id=one.snapshot_id,
            sequence_number=one.sequence_number,
            timestamp_ms=one.timestamp_ms,
            operation=one.operation[:OPERATION_LENGTH_MAX],
            vector=one.vector,
            expired_ms=expired_ms,
        )
        for one in snapshots
        if one.vector is not None
    ]


def kept_from(history_ms: int, *, now_ms: int) -> int:
    """What expired at this time or later is remembered, by a topic's setting."""
    if history_ms == FOR_EVER:
        return 0
    return now_ms - history_ms if history_ms else now_ms + 1


def remembered(head: Head, gone: Sequence[SnapshotFact]) -> tuple[bytes | None, Head]:
    """The head with what expires now, and the page to be sealed before it is put, if one is full.

    What is in the head already is left out, as after a commit that was refused and is repeated.
    """
    page = head.page
    known = {one.snapshot_id for one in page.facts}
    fresh = tuple(one for one in gone if one.snapshot_id not in known)
    if not fresh:
        return None, head
    grown = replace(page, facts=(*page.facts, *fresh))
    if not page.facts or not _is_full(grown):
        return None, replace(head, page=grown)
    return encode_page(page), replace(
        head, end=head.end + 1, page=SnapshotPage(fresh, page.reached_after)
    )


def _is_full(page: SnapshotPage) -> bool:
    size = len(encode_page(page))
    return size > (PAGE_BYTES if len(page.facts) > PAGE_FACTS else PAGE_BYTES_FULL)


def without(page: SnapshotPage, *, before_ms: int) -> SnapshotPage:
    """The page without what expired before that time."""
    facts = tuple(one for one in page.facts if one.expired_ms >= before_ms)
    return page if len(facts) == len(page.facts) else SnapshotPage(facts, page.reached)


def encode_page(page: SnapshotPage) -> bytes:
    """The page as its key's value."""
    rows = []
    before: Mapping[int, int] = {}
    for one in page.facts:
        is_whole = not before.keys() <= one.vector.keys()
        base: Mapping[int, int] = {} if is_whole else before
        changes = {
            partition: end - base.get(partition, 0)
            for partition, end in sorted(one.vector.items())
            if base.get(partition) != end
        }
        rows.append(
            _Row(
                one.snapshot_id,
                one.sequence_number,
                one.timestamp_ms,
                one.operation,
                one.expired_ms,
                is_whole,
                changes,
            )
        )
        before = one.vector
    return zlib.compress(msgspec.msgpack.encode(_Page(FORMAT, page.reached, rows)), _LEVEL)


def decode_page(value: bytes) -> SnapshotPage:
    """The page in a value; `Corrupt` when it is none, `Refused` when a newer version wrote it."""
    found = _decoded(_unpacked(value), _Page)
    facts = []
    before: Mapping[int, int] = {}
    for row in found.rows:
        vector = {} if row.is_whole else dict(before)
        for partition, change in row.changes.items():
            vector[partition] = vector.get(partition, 0) + change
        if any(not 0 <= end < 1 << 63 for end in vector.values()):
            raise Corrupt("not a page of snapshots: an offset that no log has")
        facts.append(
            SnapshotFact(
                row.snapshot_id,
                row.sequence_number,
                row.timestamp_ms,
                row.operation,
                vector,
                row.expired_ms,
            )
        )
        before = vector
    return SnapshotPage(tuple(facts), found.reached)


def encode_head(head: Head) -> bytes:
    """The head as its key's value."""
    page, live = encode_page(head.page), encode_page(SnapshotPage(head.live))
    return msgspec.msgpack.encode(_Head(FORMAT, head.first, head.end, page, live))


def decode_head(value: bytes) -> Head:
    """The head in a value; `Corrupt` and `Refused` as of a page."""
    found = _decoded(value, _Head)
    if found.first > found.end:
        raise Corrupt("not the head of a history: its pages end before they begin")
    return Head(found.first, found.end, decode_page(found.page), decode_page(found.live).facts)


def _unpacked(value: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(value, PAGE_BYTES_MAX)
    except zlib.error as error:
        raise Corrupt(f"not a page of snapshots: {error}") from error
    if not unpacking.eof or unpacking.unused_data:
        raise Corrupt("not a page of snapshots: it has another end")
    return found


def _decoded(value: bytes, kind: type[ShapeT]) -> ShapeT:
    try:
        said = msgspec.msgpack.decode(value, type=_Format).format
        if said > FORMAT:
            raise Refused(f"a history of snapshots in format {said}, of a newer version")
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Corrupt(f"not a history of snapshots: {error}") from error
