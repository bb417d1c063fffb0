"""Plain Produce requests, many at once: from the bytes of a connection to rows, and to answers.

Most of what producers send needs no thought: acks 1 or all, known topics, one good batch for each
partition. A kernel (native/produce.c) walks all complete frames of a read, checks their batches and
makes a row of numbers of each; the log takes the rows as they are, and the answers of all requests
are written by one call. Python's work is then by the read and not by the request.

The kernel declines and never refuses. A request that is not plain, for whatever reason, takes the
ordinary way through `produce`, in its turn: every code and every text stands there alone. The two
ways give the same answers to the byte; a test compares them over recorded and generated traffic.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from lakelog.broker.errors import Attempt, failure_code, verdict_code
from lakelog.broker.produce_checks import (
    FIRST_VERSION_BY_ID,
    SLOW_BYTES_MIN,
    batch_rules,
    bounded_timeout_ms,
)
from lakelog.broker.produce_topics import ProduceTopics, TopicTable
from lakelog.domain.state import Verdict
from lakelog.model.failures import Failure
from lakelog.records import kernels
from lakelog.records.acceptance import AcceptedBatch, TimestampType, inspect
from lakelog.records.batch_rows import COLUMNS, BatchColumn, BatchRows
from lakelog.wire.apis import ApiKey
from lakelog.wire.frame_runs import FrameRun
from lakelog.wire.framing import RequestHeader, encode_response
from lakelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.wire.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.broker.call import Broker
    from lakelog.log.values import Settle, Settled

PLAIN_VERSIONS: Final = range(3, 14)
REQUESTS_MAX: Final = 1_024
ROWS_MAX: Final = 2_048
"""Of one call: a few hundred kilobytes of scratch room, and a millisecond of the loop."""

FRAME_BYTES_MAX: Final = 4 << 20
"""A larger request takes the ordinary way, which pauses between its batches (R2)."""

LOOP_HELD_S_MAX: Final = 0.01
"""Unpacking goes on in the next turn of the loop after so long."""

_CODES: Final = {
    by_id: np.array([verdict_code(verdict, by_id=by_id) for verdict in Verdict], dtype=np.int16)
    for by_id in (False, True)
}
_DUPLICATE: Final = int(Verdict.DUPLICATE)
_UNKNOWN_TOPIC: Final = 2
"""Why the kernel took no more requests: the next one names a topic that is not in the table."""


class RequestColumn(IntEnum):
    """What a row says of its request (native/rows.h)."""

    CORRELATION = 0
    TIMEOUT_MS = 1
    ROWS_END = 2
    END = 3


class PlainRequests(Struct, frozen=True):
    """Requests of one connection that are answered together: one version, one time-out."""

    version: int
    data: memoryview
    requests: "NDArray[np.int64]"
    batches: BatchRows
    timeout_ms: int

    def __len__(self) -> int:
        return len(self.requests)


class ProduceRows:
    """Takes plain requests for a broker and writes their answers."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._topics = ProduceTopics(broker)
        self._requests = np.zeros((REQUESTS_MAX, len(RequestColumn)), dtype=np.int64)
        self._rows = np.zeros((ROWS_MAX, COLUMNS), dtype=np.int64)

    def take(self, run: FrameRun) -> PlainRequests | None:
        """The plain requests that the run goes on with, which moves behind them.

        None when its next request takes the ordinary way. Nothing is handed over yet.
        """
        broker = self._broker
        version = run.version
        if kernels.native is None or version not in PLAIN_VERSIONS:
            return None
        table = self._topics.table(version)
        now_ms = broker.clock.now_ms()
        while True:
            count, row_count, _, why, start, length, table.serial = kernels.native.parse_produce(
                run.data,
                (run.position, run.end, run.bare),
                table.kernel_table(),
                (
                    version,
                    now_ms,
                    self._producers_end(),
                    FRAME_BYTES_MAX,
                    SLOW_BYTES_MIN,
                    table.serial,
                ),
                self._requests,
                self._rows,
            )
            if count or why != _UNKNOWN_TOPIC:
                break
            if not self._topics.learn(table, bytes(run.data[start : start + length])):
                return None
        if self._rows[:row_count, BatchColumn.CODEC].any():
            count = self._unpacked(run.data, count, table, version, now_ms)
        return self._group(run, count) if count else None

    def hand_over(self, plain: PlainRequests, *, arrived_s: float, settle: "Settle") -> None:
        """Take the next places in the log for these requests; `settle` hears the outcome."""
        self._broker.log.hand_over(
            plain.batches,
            deadline_s=arrived_s + plain.timeout_ms / 1000,
            settle=settle,
            requests=len(plain),
        )
        self._broker.metrics.produced_bytes.inc(plain.batches.size_bytes)

    def answer(self, plain: PlainRequests, settled: "Settled") -> list[Buffer]:
        """The answers of all requests, in their order."""
        if kernels.native is None or isinstance(settled, Failure) or settled.failures:
            return encode_answers(plain, self._responses(plain, settled))
        verdicts = np.array(settled.verdicts, dtype=np.int8)
        offsets = np.array(settled.offsets, dtype=np.int64)
        times = plain.batches.column(BatchColumn.APPEND_MS).copy()
        starts = self._broker.log.log_starts(plain.batches.column(BatchColumn.STREAM))
        codes = _CODES[plain.version >= FIRST_VERSION_BY_ID][verdicts]
        if verdicts.any():
            # Row 20: a duplicate carries the original's timestamp, also with CreateTime.
            duplicates = np.flatnonzero(verdicts == _DUPLICATE)
            times[duplicates] = np.array(settled.timestamps, dtype=np.int64)[duplicates]
            refused = verdicts > _DUPLICATE  # their offsets are -1 already
            times[refused] = starts[refused] = -1
        encoded = kernels.native.answer_produce(
            plain.version,
            plain.data,
            plain.requests,
            plain.batches.rows,
            codes,
            offsets,
            times,
            starts,
        )
        return [encoded]

    def _responses(
        self, plain: PlainRequests, settled: "Settled"
    ) -> list[PartitionProduceResponse]:
        """What becomes of each row, as the ordinary way says it."""
        by_id = plain.version >= FIRST_VERSION_BY_ID
        partitions = plain.batches.column(BatchColumn.PARTITION).tolist()
        if isinstance(settled, Failure):
            return [_failed(partition, settled) for partition in partitions]
        append_times = plain.batches.column(BatchColumn.APPEND_MS).tolist()
        starts = self._broker.log.log_starts(plain.batches.column(BatchColumn.STREAM)).tolist()
        responses = []
        for number, partition in enumerate(partitions):
            verdict = settled.verdicts[number]
            if number in settled.failures:
                responses.append(_failed(partition, settled.failures[number]))
            elif verdict > _DUPLICATE:
                code = verdict_code(Verdict(verdict), by_id=by_id)
                responses.append(PartitionProduceResponse(partition, code, -1))
            else:
                time_ms = (settled.timestamps if verdict else append_times)[number]
                offset, start = settled.offsets[number], starts[number]
                responses.append(PartitionProduceResponse(partition, 0, offset, time_ms, start))
        return responses

    def _producers_end(self) -> int:
        """Idempotent producers with ids below this one are let in without asking anybody."""
        broker = self._broker
        if not broker.options.idempotence or not broker.log.has_producer_room():
            return 0
        return broker.cluster.producer_ids.known_end

    def _unpacked(
        self, data: memoryview, count: int, table: TopicTable, version: int, now_ms: int
    ) -> int:
        """Look into compressed batches; how many requests are still plain, or have their turn.

        A request that alone takes too long goes the ordinary way, which pauses between batches.
        """
        clock = self._broker.clock
        began_s = clock.monotonic_s()
        ends = self._requests[:count, RequestColumn.ROWS_END]
        for at in np.flatnonzero(self._rows[: int(ends[-1]), BatchColumn.CODEC]).tolist():
            is_late = clock.monotonic_s() - began_s > LOOP_HELD_S_MAX
            if is_late or not self._look_into(data, self._rows[at], table, version, now_ms):
                return int(np.searchsorted(ends, at, side="right"))
        return count

    def _look_into(
        self,
        data: memoryview,
        row: "NDArray[np.int64]",
        table: TopicTable,
        version: int,
        now_ms: int,
    ) -> bool:
        """Whether the batch needs no second look; its row then has its timestamps."""
        numbers = row.tolist()
        topic_start = numbers[BatchColumn.TOPIC_START]
        key = bytes(data[topic_start : topic_start + numbers[BatchColumn.TOPIC_LENGTH]])
        settings = table.topic(key).settings
        start = numbers[BatchColumn.START]
        batch = data[start : start + numbers[BatchColumn.LENGTH]]
        found = inspect(batch, batch_rules(settings, now_ms=now_ms, version=version))
        if not isinstance(found, AcceptedBatch):
            return False
        if settings.timestamp_type is TimestampType.CREATE_TIME and found.data is not batch:
            return False  # its header is to be written anew
        row[BatchColumn.LEAST_MS] = found.min_timestamp_ms
        row[BatchColumn.GREATEST_MS] = found.max_timestamp_ms
        return True

    def _group(self, run: FrameRun, count: int) -> PlainRequests | None:
        """The first requests as a value of their own, if the log has room for them."""
        version = run.version
        requests = self._requests[:count].copy()
        rows = self._rows[: int(requests[-1, RequestColumn.ROWS_END])].copy()
        size_bytes = int(rows[:, BatchColumn.LENGTH].sum())
        if not self._broker.log.has_room(size_bytes):
            return None
        run.skip_to(int(requests[-1, RequestColumn.END]), count)
        timeout_ms = bounded_timeout_ms(int(requests[0, RequestColumn.TIMEOUT_MS]))
        batches = BatchRows([run.data], rows, size_bytes)
        return PlainRequests(version, run.data, requests, batches, timeout_ms)


def encode_answers(
    plain: PlainRequests, responses: Sequence[PartitionProduceResponse]
) -> list[Buffer]:
    """The answers by the codec, which texts need; the twin of the kernel."""
    parts: list[Buffer] = []
    rows = plain.batches.rows.tolist()
    first = 0
    for correlation, _, end, _ in plain.requests.tolist():
        topics = []
        while first < end:
            start, length = rows[first][BatchColumn.TOPIC_START : BatchColumn.TOPIC_LENGTH + 1]
            last = first + 1
            while last < end and rows[last][BatchColumn.TOPIC_START] == start:
                last += 1
            key = bytes(plain.data[start : start + length])
            some = tuple(responses[first:last])
            topics.append(
                TopicProduceResponse(topic_id=key, partition_responses=some)
                if plain.version >= FIRST_VERSION_BY_ID
                else TopicProduceResponse(name=key.decode(), partition_responses=some)
            )
            first = last
        header = RequestHeader(ApiKey.PRODUCE, plain.version, correlation, None, 0)
        parts += encode_response(header, ProduceResponse(responses=tuple(topics)))
    return parts


def _failed(partition: int, failure: Failure) -> PartitionProduceResponse:
    code = failure_code(failure, Attempt.APPENDING)
    return PartitionProduceResponse(partition, code, -1, error_message=str(failure) or None)
