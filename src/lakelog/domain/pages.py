"""A checkpoint's pages: the streams of one bucket, or its groups, as canonical bytes. Pure.

A page depends on nothing but the meaning of the state: streams by id, entries by offset, producers
by id, objects by name, never on row numbers or on the way the state came about (rule 13). A page
whose streams did not change since the last checkpoint has the same bytes, hence the same name, and
is not written again (C9).

Groups stand by id and offsets by topic and partition, whatever the order in which they came (rule
13). Members stand in the order in which they came, because that order means something: the first
one leads.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lakelog.domain.state import DomainState
from lakelog.groups.state import ClassicGroup, CommittedOffset, ConsumerGroup, Group
from lakelog.groups.table import GroupTable, Offsets, bucket_of
from lakelog.model.failures import Corrupt
from lakelog.model.ids import TopicId
from lakelog.streams.objects import FileKind
from lakelog.streams.producers import BATCH_FIELDS, WINDOW_BATCHES
from lakelog.streams.table import BUCKET_BITS, NONE, Int64s

_MAGIC: Final = b"LDPAGE1\x00"
_HEAD: Final = struct.Struct("<8sqIIIII")
_STREAM: Final = (
    ("id", "<i8"),
    ("partition", "<i4"),
    ("head", "<i8"),
    ("log_start", "<i8"),
    ("live_bytes", "<i8"),
    ("gone_bytes", "<i8"),
)
_ENTRY: Final = (
    ("start", "<i8"),
    ("end", "<i8"),
    ("object", "<i4"),
    ("byte_start", "<i8"),
    ("byte_length", "<i8"),
    ("max_timestamp", "<i8"),
)
_OBJECT: Final = (
    ("kind", "<i1"),
    ("high", "<u8"),
    ("low", "<u8"),
    ("zone", "<i4"),
    ("size_bytes", "<i8"),
)
_PRODUCER: Final = (("producer", "<i8"), ("epoch", "<i2"), ("time_ms", "<i8"))
_WINDOW: Final = tuple((name, np.dtype(("<i8", WINDOW_BATCHES))) for name in BATCH_FIELDS)

Table = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """The streams of one bucket, as tables with row numbers of their own.

    `entry_counts` and `producer_counts` say how many rows of those tables belong to each stream,
    in order. `names` are the zones of WAL objects and the keys of files; an object's `zone` is
    its place in there.
    """

    bucket: int
    topics: tuple[TopicId, ...]
    streams: Table
    entry_counts: Int64s
    entries: Table
    objects: Table
    names: tuple[str, ...]
    producer_counts: Int64s
    producers: Table


def encode_page(page: Page) -> bytes:
    """The page's bytes."""
    names = [name.encode() for name in page.names]
    counts = (len(page.topics), len(page.entries["start"]), len(page.objects["kind"]), len(names))
    parts = [_HEAD.pack(_MAGIC, page.bucket, *counts, len(page.producers["producer"]))]
    parts += [b"".join(page.topics), *_columns(page.streams, _STREAM)]
    parts += [page.entry_counts.astype("<i8").tobytes(), *_columns(page.entries, _ENTRY)]
    parts += _columns(page.objects, _OBJECT)
    parts += [struct.pack("<H", len(name)) + name for name in names]
    parts += [page.producer_counts.astype("<i8").tobytes()]
    parts += _columns(page.producers, (*_PRODUCER, *_WINDOW))
    return b"".join(parts)


def decode_page(data: bytes | memoryview) -> Page:
    """The page; its bytes were verified against their hash before."""
    reader = _Reader(memoryview(data))
    magic, bucket, streams, entries, objects, names, producers = reader.head()
    if magic != _MAGIC:
        raise Corrupt("a checkpoint page of an unknown format")
    topics = tuple(TopicId(bytes(reader.take(16))) for _ in range(streams))
    return Page(
        bucket=bucket,
        topics=topics,
        streams=reader.table(_STREAM, streams),
        entry_counts=reader.column("<i8", streams),
        entries=reader.table(_ENTRY, entries),
        objects=reader.table(_OBJECT, objects),
        names=tuple(reader.name() for _ in range(names)),
        producer_counts=reader.column("<i8", streams),
        producers=reader.table((*_PRODUCER, *_WINDOW), producers),
    )


def cut_pages(state: DomainState, buckets: Sequence[int]) -> Iterator[Page]:
    """The pages of these buckets, one after another."""
    live = np.flatnonzero(state.index.columns["stream"] != NONE)
    ids = state.streams.columns["id"]
    entry_ids = ids[state.index.columns["stream"][live]]
    order = np.lexsort((state.index.columns["start"][live], entry_ids))
    entries, entry_ids = live[order], entry_ids[order]
    known = np.flatnonzero(state.producers.columns["stream"] != NONE)
    producer_ids = ids[state.producers.columns["stream"][known]]
    order = np.lexsort((state.producers.columns["producer"][known], producer_ids))
    producers, producer_ids = known[order], producer_ids[order]
    rows = state.streams.live_rows()
    for bucket in buckets:
        bounds = (bucket << BUCKET_BITS, (bucket + 1) << BUCKET_BITS)
        some_rows = rows[slice(*np.searchsorted(ids[rows], bounds))]
        some_entries = entries[slice(*np.searchsorted(entry_ids, bounds))]
        some_producers = producers[slice(*np.searchsorted(producer_ids, bounds))]
        yield _cut_page(state, bucket, some_rows, some_entries, some_producers)


def _cut_page(
    state: DomainState, bucket: int, rows: Int64s, entries: Int64s, producers: Int64s
) -> Page:
    streams = {name: state.streams.columns[name][rows] for name, _ in _STREAM}
    table = {name: state.index.columns[name][entries] for name, _ in _ENTRY}
    objects, names, places = _cut_objects(state, table["object"])
    table["object"] = places
    windows = {name: state.producers.columns[name][producers] for name, _ in _PRODUCER}
    windows |= state.producers.ordered_windows(producers)
    entry_owners = state.streams.columns["id"][state.index.columns["stream"][entries]]
    window_owners = state.streams.columns["id"][state.producers.columns["stream"][producers]]
    return Page(
        bucket=bucket,
        topics=tuple(state.streams.topics[row] for row in rows),
        streams=streams,
        entry_counts=_counts(streams["id"], entry_owners),
        entries=table,
        objects=objects,
        names=names,
        producer_counts=_counts(streams["id"], window_owners),
        producers=windows,
    )


def _cut_objects(
    state: DomainState, used: npt.NDArray[Any]
) -> tuple[Table, tuple[str, ...], npt.NDArray[Any]]:
    """The objects that a page names, sorted by name, each once, and where each entry's is."""
    rows, places = np.unique(used, return_inverse=True)
    table = {name: state.objects.columns[name][rows] for name, _ in _OBJECT}
    labels = [
        state.objects.keys[row] if kind != FileKind.WAL else state.objects.zones[zone]
        for row, kind, zone in zip(
            rows.tolist(), table["kind"].tolist(), table["zone"].tolist(), strict=True
        )
    ]
    names = sorted(set(labels))
    number = {name: at for at, name in enumerate(names)}
    table["zone"] = np.array([number[label] for label in labels], dtype=np.int64)
    order = np.lexsort((table["zone"], table["low"], table["high"], table["kind"]))
    moved = np.empty(len(order), dtype=np.int64)
    moved[order] = np.arange(len(order))
    return {name: values[order] for name, values in table.items()}, tuple(names), moved[places]


def _counts(ids: npt.NDArray[Any], owners: npt.NDArray[Any]) -> Int64s:
    return np.searchsorted(owners, ids, side="right") - np.searchsorted(owners, ids)


def _columns(table: Table, kinds: Sequence[tuple[str, Any]]) -> list[bytes]:
    return [
        np.ascontiguousarray(table[name]).astype(np.dtype(kind).base, copy=False).tobytes()
        for name, kind in kinds
    ]


class _Reader:
    """Takes a page apart from front to back."""

    __slots__ = ("_data", "_place")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._place = 0

    def head(self) -> tuple[Any, ...]:
        return _HEAD.unpack(self.take(_HEAD.size))

    def take(self, count: int) -> memoryview:
        start, self._place = self._place, self._place + count
        if self._place > len(self._data):
            raise Corrupt("a checkpoint page ends too soon")
        return self._data[start : self._place]

    def column(self, kind: Any, count: int) -> npt.NDArray[Any]:
        element = np.dtype(kind)
        return np.frombuffer(self.take(element.itemsize * count), dtype=element)

    def table(self, kinds: Sequence[tuple[str, Any]], count: int) -> Table:
        return {name: self.column(kind, count) for name, kind in kinds}

    def name(self) -> str:
        (length,) = struct.unpack("<H", self.take(2))
        return str(self.take(length), "utf-8")


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
