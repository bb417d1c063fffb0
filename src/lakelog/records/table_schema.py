"""The columns of a topic's table, what does not fit them, and what is known of a data file.

The eleven columns of the specification and `raw`, which is null in all ordinary rows. It is set
where the columns cannot hold a record: a timestamp beyond the years 1 to 9999, which is clamped, or
a header key that is not UTF-8, whose bad bytes become U+FFFD. `raw` is then the exact timestamp in
milliseconds (eight bytes, big-endian) and the record's headers as they were sent, without their
count; whoever rebuilds a record uses it. Producer columns and `record_crc` are always null.

Ids are given breadth first, as Iceberg's libraries do; an external catalog may number otherwise, so
a writer takes them from the table that it writes for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_MS_MIN: Final = -62_135_424_000_000
"""The first millisecond of 0001-01-03. Python's dates begin with the year 1, and an engine that
shows local time takes up to a day from what it reads."""

TIMESTAMP_MS_MAX: Final = 253_402_127_999_999
"""The last millisecond of 9999-12-29, for the same reason at the other end."""

TIMESTAMP_US_MIN: Final = TIMESTAMP_MS_MIN * 1000
TIMESTAMP_US_MAX: Final = TIMESTAMP_MS_MAX * 1000 + 999
"""What an earlier and what a later timestamp is clamped to."""

RAW_TIMESTAMP_BYTES: Final = 8

FIELD_IDS: Final[Mapping[str, int]] = {
    "partition": 1,
    "offset": 2,
    "timestamp": 3,
    "key": 4,
    "value": 5,
    "headers": 6,
    "producer_id": 7,
    "producer_epoch": 8,
    "base_sequence": 9,
    "attributes": 10,
    "record_crc": 11,
    "raw": 12,
    "headers.element": 13,
    "headers.element.key": 14,
    "headers.element.value": 15,
}
"""The id of every column by its path, as a new table numbers them."""

REQUIRED: Final = frozenset(
    (
        "partition",
        "offset",
        "timestamp",
        "headers",
        "attributes",
        "headers.element",
        "headers.element.key",
    )
)
"""The columns that are never null."""

MEASURED: Final = ("partition", "offset", "timestamp")
"""The columns with statistics: keys and values have none, they would cost more than they prune."""

_FIELD_ID: Final = b"PARQUET:field_id"


def table_schema(field_ids: Mapping[str, int] = FIELD_IDS, *, views: bool = False) -> "pa.Schema":
    """The columns with their ids; with `views`, keys and values as rows in memory have them."""
    return _schema(tuple(field_ids.items()), views)


@lru_cache(maxsize=16)
def _schema(ids: tuple[tuple[str, int], ...], views: bool) -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    numbers = dict(ids)

    def field(path: str, kind: "pa.DataType") -> "pa.Field":
        name = path.rpartition(".")[2]
        marks = {_FIELD_ID: str(numbers[path]).encode()}
        return pa.field(name, kind, nullable=path not in REQUIRED, metadata=marks)

    blob = pa.binary_view() if views else pa.binary()
    header = pa.struct(
        [field("headers.element.key", pa.string()), field("headers.element.value", pa.binary())]
    )
    return pa.schema(
        [
            field("partition", pa.int32()),
            field("offset", pa.int64()),
            field("timestamp", pa.timestamp("us", tz="UTC")),
            field("key", blob),
            field("value", blob),
            field("headers", pa.list_(field("headers.element", header))),
            field("producer_id", pa.int64()),
            field("producer_epoch", pa.int32()),
            field("base_sequence", pa.int32()),
            field("attributes", pa.int32()),
            field("record_crc", pa.int32()),
            field("raw", pa.binary()),
        ]
    )


@dataclass(frozen=True, slots=True)
class TableFileOrigin:
    """Where the rows of a file come from; its footer says the same."""

    stream: int
    topic_id: bytes
    partition: int
    task: str
    start: int
    end: int
    """The offsets [start, end) that the file stands for, whether or not a row holds them."""
    batch_bytes_max: int
    """The largest batch that a fetch makes of the rows: the topic's `max.message.bytes`."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: it answers for the offsets [start, end) and is the bytes [.., ..) of its file.

    The first group answers from the file's start on, each one up to the next one's first row.
    """

    start: int
    end: int
    byte_start: int
    byte_end: int
    row_count: int
    first_offset: int
    max_timestamp_us: int
    """As its column holds it, so clamped."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One leaf column of a file; counts and bounds are None where nothing was measured."""

    path: str
    field_id: int
    size_bytes: int
    value_count: int
    null_count: int | None
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class TableFileFacts:
    """A finished file. Timestamps are exact, in milliseconds; of an empty file they are -1."""

    origin: TableFileOrigin
    size_bytes: int
    row_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    row_groups: tuple[RowGroup, ...]
    columns: tuple[ColumnFacts, ...]
