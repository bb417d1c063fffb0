"""The state of all partitions, as Arrow and as numbers."""

from typing import TYPE_CHECKING

from lakelog.client.reader import Reader, Standing
from lakelog.client.rows import partition_state_schema
from lakelog.kafka_client.offsets import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


def partition_states(reader: Reader, paused: frozenset[int]) -> "pa.RecordBatch":
    """One row for each partition, by topic and number."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    schema = partition_state_schema()
    rows = [_state(reader, standing, paused) for standing in reader.current()]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def _state(
    reader: Reader, standing: Standing, paused: frozenset[int]
) -> dict[str, str | int | bool | None]:
    progress = standing.progress
    released = reader.released_offset(standing)
    return {
        "topic": standing.place.topic,
        "partition": standing.place.partition,
        "replay_start_offset": progress.start,
        "replay_end_offset": progress.end,
        "consumed_offset": max(progress.start, progress.position - 1),
        "released_offset": progress.start if released is None else released,
        "last_consumed_timestamp": standing.last_ms,
        "is_live": reader.is_partition_live(standing),
        "is_paused": progress.index in paused,
        "high_watermark": standing.partition.end,
        "lag": lag(reader, standing),
    }


def lag(reader: Reader, standing: Standing) -> int | None:
    """How many offsets are there that were not given out; None before a broker said."""
    end = standing.partition.end
    return None if end is None else max(0, end - reader.next_offset(standing))


def lags(reader: Reader) -> dict[TopicPartition, int]:
    """The lag of each partition that is known."""
    found = {each.place: lag(reader, each) for each in reader.current()}
    return {place: count for place, count in found.items() if count is not None}


def history(reader: Reader) -> tuple[int, int]:
    """How many offsets the history has, and how many of them are behind us."""
    total = done = 0
    for standing in reader.current():
        progress = standing.progress
        total += max(0, progress.end - progress.start)
        reached = min(progress.end, reader.next_offset(standing))
        done += max(0, reached - progress.start)
    return total, done
