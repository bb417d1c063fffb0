"""Rows become record batches, as a producer would have sent them and a broker accepted them. Pure.

Rules of batches:

- A record's timestamp is the time of its writing. On a topic with LogAppendTime the batch says so.
- A batch is compressed as the topic says; where the topic leaves it to the producer, as the writer
  asked; else with lz4. What does not shrink is not compressed.
- A batch is at most as large as the topic allows; a row that alone is larger is an error. So are a
  row without a key for a compacted topic, a header without a key, and a row without a topic.
- Batches hold no producer's numbers: what makes a write happen once is its transaction.

Rules of partitions, without a loop over records in Python:

- A partition that the row names is taken.
- Else the key decides, by the hash of the Java client: murmur2, as a positive number, modulo the
  number of partitions. So a key is where every producer of the Java family puts it.
- Without a key the value decides, by the same hash; a row with neither goes to partition 0. Kafka's
  clients spread such rows by chance. Here the content decides, because a batch that is written
  again, in another order or cut into other tasks, must send every row to the domain that may have
  taken it before: only then does refusing a version twice mean that each row is there once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from lakelog.index.messages import WriteTarget
from lakelog.lake.write.write_options import CODECS, TOPIC, BadRow, RowColumns
from lakelog.records import kernels
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX, AcceptedBatch
from lakelog.records.build import (
    BatchOptions,
    RecordBlock,
    build_from_block,
    murmur2,
    plan_batches,
    record_bytes_bound,
)
from lakelog.records.codecs import Codec
from lakelog.records.kernels import NO_TIMESTAMP_MS
from lakelog.records.table_batches import block_from_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from lakelog.records.build import RecordBlock
    from lakelog.records.kernels import Bytes, Longs

Hashes: TypeAlias = "NDArray[np.uint32]"


_POSITIVE: Final = 0x7FFFFFFF


def chosen_partitions(
    block: "RecordBlock", given: "Longs | None", *, topic: str, count: int
) -> "Longs":
    """The partition of every record; `given` is what rows name, below 0 where they name none."""
    if given is None:
        return _hashed_partitions(block, count)
    wrong = given >= count
    if wrong.any():
        raise BadRow(
            f"a row names partition {given[wrong][0]} of the topic {topic}, which has {count}"
        )
    unnamed = given < 0
    if not unnamed.any():
        return given
    return np.where(unnamed, _hashed_partitions(block, count), given)


def hash_in_python(data: "Bytes", starts: "Longs", ends: "Longs", hashes: "Hashes", /) -> None:
    """The kernel's twin: fill the murmur2 of every place [start, end) in the data."""
    view = data.data
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        hashes[at] = murmur2(view[start:end])


def _hashed_partitions(block: "RecordBlock", count: int) -> "Longs":
    numbers = block.numbers
    partitions = np.zeros(numbers.shape[1], np.int64)
    if count == 1:
        return partitions
    has_key = numbers[2] >= 0
    has_only_value = ~has_key & (numbers[4] >= 0)
    for rows, blob, start in ((has_key, 0, 2), (has_only_value, 1, 4)):
        if rows.all():
            return _positive(block, blob, numbers[start], numbers[start + 1]) % count
        if rows.any():
            starts, ends = numbers[start][rows], numbers[start + 1][rows]
            partitions[rows] = _positive(block, blob, starts, ends) % count
    return partitions


def _positive(block: "RecordBlock", blob: int, starts: "Longs", ends: "Longs") -> "Longs":
    hashes = np.empty(len(starts), np.uint32)
    native = kernels.native
    compute = hash_in_python if native is None else native.hash_places
    compute(block.blobs[blob], np.ascontiguousarray(starts), np.ascontiguousarray(ends), hashes)
    return (hashes & _POSITIVE).astype(np.int64)


BATCH_BYTES: Final = 1 << 20
"""Uncompressed bytes of a batch, if the topic's `max.message.bytes` is not less."""

DEFAULT_CODEC: Final = Codec.LZ4
NOBODYS: Final = -1
"""The partition of a row that names none."""

_UNCOMPRESSED: Final = "uncompressed"
_RADIX_END: Final = 1 << 15
"""Numbers below this sort in linear time."""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """What all rows of a write share."""

    columns: RowColumns
    topic: str | None
    codec: Codec | None = None


class StreamBatch(NamedTuple):
    """A batch, and where it belongs."""

    domain: int
    stream: int
    batch: AcceptedBatch


def topics_of(rows: "pa.RecordBatch", form: RowFormat) -> list[str]:
    """The topics that the rows go to; raises `BadRow`."""
    if form.topic is not None:
        return [form.topic]
    assert form.columns.topic is not None, "columns without topics were refused"
    column = rows.column(form.columns.topic)
    if column.null_count:
        raise BadRow(f"a row has null as its topic: set the option {TOPIC} to where all rows go")
    names: list[str] = column.unique().to_pylist()
    return names


def built_batches(
    rows: "pa.RecordBatch", form: RowFormat, targets: Mapping[str, WriteTarget], *, now_ms: int
) -> Iterator[StreamBatch]:
    """The batches of these rows, stream by stream; raises `BadRow`."""
    names = topics_of(rows, form)
    missing = [name for name in names if name not in targets]
    if missing:
        raise BadRow(f"the topic {missing[0]} does not exist: create it before it is written to")
    if not rows.num_rows:
        return
    block = _block(rows, form.columns, now_ms)
    partitions = _given_partitions(rows, form.columns)
    if len(names) == 1:
        yield from _of_topic(block, partitions, targets[names[0]], form.codec)
        return
    assert form.columns.topic is not None, "rows of several topics name them"
    encoded = rows.column(form.columns.topic).dictionary_encode()
    chosen = encoded.indices.to_numpy()
    for number, name in enumerate(encoded.dictionary.to_pylist()):
        some = np.flatnonzero(chosen == number)
        given = None if partitions is None else partitions[some]
        yield from _of_topic(_picked(block, some), given, targets[name], form.codec)


def _of_topic(
    block: RecordBlock, given: "Longs | None", target: WriteTarget, asked: Codec | None
) -> Iterator[StreamBatch]:
    if target.is_compacted and (block.numbers[2] < 0).any():
        raise BadRow(
            f"the topic {target.topic} is compacted: it takes no row without a key, and one has"
            " none"
        )
    count = len(target.streams)
    partitions = chosen_partitions(block, given, topic=target.topic, count=count)
    narrow: Longs = partitions.astype(np.int16 if count <= _RADIX_END else np.int32)
    if (narrow[1:] < narrow[:-1]).any():
        order = np.argsort(narrow, kind="stable")
        block, partitions = _picked(block, order), partitions[order]
    edges = [0, *(np.flatnonzero(partitions[1:] != partitions[:-1]) + 1).tolist(), len(partitions)]
    bytes_max = min(BATCH_BYTES, target.max_message_bytes)
    for low, high in pairwise(edges):
        partition = int(partitions[low])
        domain, stream = target.domains[partition], target.streams[partition]
        part = _part(block, low, high)
        for start, end in plan_batches(part, bytes_max):
            yield StreamBatch(domain, stream, _batch(_part(part, start, end), target, asked))


def _batch(part: RecordBlock, target: WriteTarget, asked: Codec | None) -> AcceptedBatch:
    count = part.numbers.shape[1]
    now_ms = int(part.numbers[0, 0])
    part.numbers[1] = np.arange(count)
    append_time_ms = now_ms if target.log_append_time else None
    options = BatchOptions(codec=_codec(target, asked), append_time_ms=append_time_ms)
    if count == 1 and int(record_bytes_bound(part)[0]) > DECOMPRESSED_BYTES_MAX:
        _refuse_size(int(record_bytes_bound(part)[0]), target.topic, DECOMPRESSED_BYTES_MAX)
    data = build_from_block(part, options)
    if len(data) > target.max_message_bytes and options.codec is not Codec.NONE:
        data = build_from_block(part, replace(options, codec=Codec.NONE))
    if len(data) > target.max_message_bytes:
        _refuse_size(len(data), target.topic, target.max_message_bytes)
    return AcceptedBatch(
        memoryview(data),
        count,
        count,
        -1,
        -1,
        -1,
        now_ms,
        now_ms,
        NO_TIMESTAMP_MS if append_time_ms is None else append_time_ms,
        False,
    )


def _refuse_size(size: int, topic: str, limit: int) -> None:
    raise BadRow(
        f"a row is a batch of {size} bytes, the topic {topic} allows {limit}: make the row smaller,"
        " or the topic's max.message.bytes greater"
    )


def _codec(target: WriteTarget, asked: Codec | None) -> Codec:
    if target.compression == _UNCOMPRESSED:
        return Codec.NONE
    of_topic = CODECS.get(target.compression)
    if of_topic is not None:
        return of_topic
    return DEFAULT_CODEC if asked is None else asked


def _block(rows: "pa.RecordBatch", columns: RowColumns, now_ms: int) -> RecordBlock:
    """The rows as packed columns, all with this timestamp."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    count = rows.num_rows
    nothing = pa.nulls(count, pa.binary())
    table = pa.table(
        {
            "timestamp": pa.array(np.full(count, now_ms * 1000), pa.timestamp("us", "UTC")),
            "key": nothing if columns.key is None else rows.column(columns.key),
            "value": rows.column(columns.value),
            "headers": _headers(rows, columns),
            "raw": nothing,
        }
    )
    return block_from_rows(table)


def _headers(rows: "pa.RecordBatch", columns: RowColumns) -> "pa.Array":
    """The headers of every row, none for null; raises `BadRow` where one has no key."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    header = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    if columns.headers is None:
        edges = pa.array(np.zeros(rows.num_rows + 1, np.int32))
        return pa.ListArray.from_arrays(edges, pa.array([], header))
    lists = rows.column(columns.headers)
    entries = lists.flatten()  # without what stands behind null
    if entries.null_count or entries.field("key").null_count:
        raise BadRow("the column headers has a header without a key: every header needs one")
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    edges = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(edges), entries)


def _given_partitions(rows: "pa.RecordBatch", columns: RowColumns) -> "Longs | None":
    """What the rows name, `NOBODYS` for null; raises `BadRow`."""
    if columns.partition is None:
        return None
    column = rows.column(columns.partition)
    given: Longs = column.fill_null(NOBODYS).to_numpy().astype(np.int64)
    negative = given < 0
    if negative.sum() > column.null_count:
        raise BadRow(
            f"the column partition has {given[negative].min()}, but a partition is at least 0, or"
            " null where the key decides"
        )
    return given


def _picked(block: RecordBlock, order: "Longs") -> RecordBlock:
    """These rows in this order, with their headers in the same."""
    numbers = block.numbers[:, order]
    if not block.headers.shape[1]:
        return replace(block, numbers=numbers)
    counts = numbers[7] - numbers[6]
    ends = np.cumsum(counts)
    starts = ends - counts
    chosen = np.repeat(numbers[6] - starts, counts) + np.arange(ends[-1])
    numbers[6], numbers[7] = starts, ends
    return RecordBlock(numbers, block.blobs, block.headers[:, chosen])


def _part(block: RecordBlock, low: int, high: int) -> RecordBlock:
    """The rows [low, high) with their own headers, which stand one after another."""
    numbers = block.numbers[:, low:high].copy()
    first, after = int(numbers[6, 0]), int(numbers[7, -1])
    numbers[6:8] -= first
    return RecordBlock(numbers, block.blobs, np.ascontiguousarray(block.headers[:, first:after]))
