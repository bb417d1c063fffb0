"""Rows that were taken, as Arrow: the columns of messages, and those of the partitions' state.

Keys and values are copied once, by Arrow, from where they were received: the batch then has memory
of its own, and what brokers sent is let go. With `views` nothing is copied, and the batch keeps all
that was received together with its rows. Columns whose rows are all alike, such as the name of one
topic, are parts of one array that is made once.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.client.merge_buffer import MergedRows
from lakelog.client.reader import OrderedReader
from lakelog.client.watermark import ReleaseState
from lakelog.kafka_client.admin import TopicPartition
from lakelog.records.ordering import (
    KEY_NULLS,
    KEY_VIEWS,
    VALUE_NULLS,
    VALUE_VIEWS,
    gather_nulls,
    gather_offsets,
    gather_views,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Ints, Longs

_ALIKE_ROWS_MIN: Final = 1 << 14
_ALIKE_TOPICS_MAX: Final = 64


@lru_cache(maxsize=4)
def message_schema(*, views: bool = False, headers: bool = True) -> "pa.Schema":
    """The columns of messages; the first six are those that every user of kafkars knows."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    content = pa.binary_view() if views else pa.binary()
    fields = [
        pa.field("key", content),
        pa.field("value", content),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
    ]
    if headers:
        fields.append(pa.field("headers", _header_type(), nullable=False))
    return pa.schema(fields)


@lru_cache(maxsize=1)
def partition_state_schema() -> "pa.Schema":
    """The columns of the partitions' state: those of kafkars, the high watermark and the lag."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("replay_start_offset", pa.int64(), nullable=False),
            pa.field("replay_end_offset", pa.int64(), nullable=False),
            pa.field("consumed_offset", pa.int64(), nullable=False),
            pa.field("released_offset", pa.int64(), nullable=False),
            pa.field("last_consumed_timestamp", pa.timestamp("ms", tz="UTC")),
            pa.field("is_live", pa.bool_(), nullable=False),
            pa.field("is_paused", pa.bool_(), nullable=False),
            pa.field("high_watermark", pa.int64()),
            pa.field("lag", pa.int64()),
        ]
    )


def _header_type() -> "pa.DataType":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    key = pa.field("key", pa.string(), nullable=False)
    return pa.list_(pa.struct([key, pa.field("value", pa.binary())]))


class MessageRows:
    """Builds record batches of messages; `names` gives the topic and partition of every index.

    The mapping is read when a batch is built, so its owner may add to it.
    """

    def __init__(
        self,
        names: Mapping[int, tuple[str, int]],
        *,
        views: bool = False,
        headers: bool = True,
    ) -> None:
        self._names: Final = names
        self._views: Final = views
        self._headers: Final = headers
        self._topics: dict[str, pa.Array] = {}
        self._no_headers: pa.Array | None = None

    def empty(self) -> "pa.RecordBatch":
        """A batch without rows."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        schema = message_schema(views=self._views, headers=self._headers)
        return pa.RecordBatch.from_arrays(
            [pa.nulls(0, kind) for kind in schema.types], schema=schema
        )

    def build(self, taken: MergedRows) -> "pa.RecordBatch":
        """The batch of these rows, in their order."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        schema = message_schema(views=self._views, headers=self._headers)
        columns = [
            self._content(taken, KEY_VIEWS, KEY_NULLS),
            self._content(taken, VALUE_VIEWS, VALUE_NULLS),
            self._topic(taken),
            self._partition(taken),
            _plain(pa.int64(), gather_offsets(taken.sources, taken.merged)),
            _plain(pa.timestamp("ms", tz="UTC"), taken.merged.timestamps_ms),
        ]
        if self._headers:
            columns.append(self._header_lists(taken))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _content(self, taken: MergedRows, views_field: int, nulls_field: int) -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        views = gather_views(taken.sources, taken.merged, views_field)
        nulls = gather_nulls(taken.sources, taken.merged, nulls_field)
        valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        buffers = [valid, pa.py_buffer(views), *(run.buffer for run in taken.runs)]
        column = pa.Array.from_buffers(pa.binary_view(), len(views), buffers)
        return column if self._views else column.cast(pa.binary())

    def _topic(self, taken: MergedRows) -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        topics = [self._names[run.index][0] for run in taken.runs]
        different = sorted(set(topics))
        if len(different) == 1:
            return self._alike(different[0], len(taken))
        codes = {topic: code for code, topic in enumerate(different)}
        of_runs = np.array([codes[topic] for topic in topics], np.int32)
        names = pa.concat_arrays([_repeated(topic, 1) for topic in different])
        return names.take(_plain(pa.int32(), of_runs.take(taken.merged.numbers)))

    def _alike(self, topic: str, count: int) -> "pa.Array":
        """The name of one topic so many times."""
        known = self._topics.get(topic)
        if known is None or len(known) < count:
            if len(self._topics) >= _ALIKE_TOPICS_MAX:
                self._topics.clear()
            known = _repeated(topic, max(count, _ALIKE_ROWS_MIN))
            self._topics[topic] = known
        return known.slice(0, count)

    def _partition(self, taken: MergedRows) -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        of_runs = np.array([self._names[run.index][1] for run in taken.runs], np.int32)
        return _plain(pa.int32(), of_runs.take(taken.merged.numbers))

    def _header_lists(self, taken: MergedRows) -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        if all(run.rows.header_counts is None for run in taken.runs):
            return self._without_headers(len(taken))
        numbers, rows, _ = taken.merged
        by_run = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[by_run], np.arange(len(taken.runs) + 1))
        parts = [
            run.rows.header_lists(rows[by_run[edges[number] : edges[number + 1]]])
            for number, run in enumerate(taken.runs)
        ]
        back = np.empty(len(taken), np.int64)
        back[by_run] = np.arange(len(taken))
        lists = pa.concat_arrays(parts).take(_plain(pa.int64(), back))
        return pa.ListArray.from_arrays(lists.offsets, lists.values, type=_header_type())

    def _without_headers(self, count: int) -> "pa.Array":
        """So many empty lists."""
        if self._no_headers is None or len(self._no_headers) < count:
            import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

            edges = np.zeros(max(count, _ALIKE_ROWS_MIN) + 1, np.int32)
            kind = _header_type()
            nobody = pa.nulls(0, kind.value_type)
            self._no_headers = pa.ListArray.from_arrays(
                _plain(pa.int32(), edges), nobody, type=kind
            )
        return self._no_headers.slice(0, count)


# Arrays are made from buffers: `pa.array` imports pandas where it is installed, a second and 60 MB.


def _plain(kind: "pa.DataType", values: "Ints | Longs") -> "pa.Array":
    """The numbers as they lie there; none is null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _repeated(text: str, count: int) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    encoded = text.encode()
    edges = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(encoded * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def partition_states(reader: OrderedReader, paused: frozenset[int]) -> "pa.RecordBatch":
    """One row for each partition, by topic and number."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    schema = partition_state_schema()
    rows = [_state(reader, state, paused) for state in reader.current()]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def _state(
    reader: OrderedReader, state: ReleaseState, paused: frozenset[int]
) -> dict[str, str | int | bool | None]:
    progress = state.progress
    released = reader.released_offset(state)
    return {
        "topic": state.place.topic,
        "partition": state.place.partition,
        "replay_start_offset": progress.start,
        "replay_end_offset": progress.end,
        "consumed_offset": max(progress.start, progress.position - 1),
        "released_offset": progress.start if released is None else released,
        "last_consumed_timestamp": state.last_ms,
        "is_live": reader.is_partition_live(state),
        "is_paused": progress.index in paused,
        "high_watermark": state.partition.end,
        "lag": lag(reader, state),
    }


def lag(reader: OrderedReader, state: ReleaseState) -> int | None:
    """How many offsets are there that were not given out; None before a broker said."""
    end = state.partition.end
    return None if end is None else max(0, end - reader.next_offset(state))


def lags(reader: OrderedReader) -> dict[TopicPartition, int]:
    """The lag of each partition that is known."""
    found = {state.place: lag(reader, state) for state in reader.current()}
    return {place: count for place, count in found.items() if count is not None}


def history(reader: OrderedReader) -> tuple[int, int]:
    """How many offsets the history has, and how many of them are behind us."""
    total = done = 0
    for state in reader.current():
        progress = state.progress
        total += max(0, progress.end - progress.start)
        reached = min(progress.end, reader.next_offset(state))
        done += max(0, reached - progress.start)
    return total, done
