"""What a producer sent for one partition: one good batch, or a Kafka error code and the reason.

The order of the checks is Kafka's (ProduceRequest, then the log's analysis, then its validator), so
that a batch with several faults gets the code Kafka gives. Accepted bytes are the sender's own
view, uncopied; they are copied only where Kafka rewrites the header too: LogAppendTime, a
LogAppendTime bit on a CreateTime topic, and a max timestamp that the records contradict
(rows 61 and 62).

Where we differ, always on bytes that no client writes:
- Offset deltas other than 0..n-1 are refused; Kafka trusts them or rebuilds the batch.
- Unknown codecs and broken compressed data are INVALID_RECORD, where Kafka says -1 as if its own.
- A LogAppendTime bit on a CreateTime topic: the records' own timestamps are judged, because they
  are what a consumer sees once the bit is cleared.
- A producer id with a negative epoch is refused.
- Record errors are listed up to `64 + bytes / 256`: a refusal must not cost more than the batch.
- A batch that decompresses to more than `decompressed_bytes_max` is MESSAGE_TOO_LARGE; producers
  that can split a batch then do.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from lakelog.model.errors import ErrorCode
from lakelog.records.codecs import (
    Codec,
    DecompressionError,
    OutputTooLargeError,
    decompress_pieces,
)
from lakelog.records.header import (
    HEADER_BYTES,
    LAYOUT,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_OFFSET,
    BatchHeader,
    MalformedBatchError,
    batch_crc,
    first_batch_bytes,
    restamp,
)
from lakelog.records.kernels import (
    DONE,
    INT64_MAX,
    INT64_MIN,
    MISPLACED,
    NO_TIMESTAMP_MS,
    Limits,
    ScanOutcome,
)
from lakelog.records.scan import MISSING_KEY, find_bad, scan_pieces, scan_records

ZSTD_PRODUCE_VERSION: Final = 7
"""The first version of Produce whose clients know zstd."""

DECOMPRESSED_BYTES_MAX: Final = 64 << 20
RECORD_ERRORS_BASE: Final = 64
RECORD_ERROR_BYTES: Final = 256


class TimestampType(IntEnum):
    """Who sets a record's timestamp; the topic's `message.timestamp.type`."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


# Members of an enum are looked up by name at every use, which takes longer than comparing numbers.
_NONE: Final = int(Codec.NONE)
_ZSTD: Final = int(Codec.ZSTD)
_CREATE_TIME: Final = int(TimestampType.CREATE_TIME)


class BatchRules(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a topic and a request ask of a batch."""

    now_ms: int
    produce_version: int
    message_bytes_max: int = 1_048_588
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX


class AcceptedBatch(msgspec.Struct, frozen=True, gc=False):
    """One batch as it is to be stored, with what the log wants to know of it."""

    data: memoryview
    record_count: int
    offset_count: int
    producer_id: int
    """-1 when the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    append_time_ms: int
    """The broker's time that every record got, or -1 on a CreateTime topic."""
    transactional: bool


class RejectedBatch(msgspec.Struct, frozen=True, gc=False):
    """Why a batch is refused; nothing of it is stored."""

    code: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()
    """The index of a record in the batch, and what is wrong with it."""


Inspection: TypeAlias = AcceptedBatch | RejectedBatch


def inspect(data: memoryview, rules: BatchRules) -> Inspection:
    """Judge what a Produce request holds for one partition."""
    batch = data
    if (
        len(data) < HEADER_BYTES
        or data[MAGIC_OFFSET] != MAGIC
        or int.from_bytes(data[8:LENGTH_PREFIX_BYTES], "big") + LENGTH_PREFIX_BYTES != len(data)
    ):
        found = _first_of_odd(data, rules)
        if isinstance(found, RejectedBatch):
            return found
        batch = found
    header = BatchHeader(*LAYOUT.unpack_from(batch))
    problem = _transport_problem(header, batch, rules) or _producer_problem(header)
    if problem is not None:
        return problem
    limits = _limits(header, rules)
    try:
        outcome = _scan(header, batch, limits, rules)
        if outcome[0] != DONE or outcome[5] or header.attributes & LOG_APPEND_TIME_BIT:
            problem = _records_problem(header, batch, limits, outcome, rules)
            if problem is not None:
                return problem
    except OutputTooLargeError as error:
        return RejectedBatch(ErrorCode.MESSAGE_TOO_LARGE, f"Decompressed records: {error}")
    except DecompressionError as error:
        return RejectedBatch(ErrorCode.INVALID_RECORD, f"Records cannot be decompressed: {error}")
    return _accept(header, batch, outcome, rules)


def _first_of_odd(data: memoryview, rules: BatchRules) -> memoryview | RejectedBatch:
    """The only batch of bytes that are not plainly one; a partial tail or junk is cut off."""
    try:
        size = first_batch_bytes(data)
        if size == 0:
            return _invalid("There must be one complete record batch per partition")
        if data[MAGIC_OFFSET] != MAGIC:
            return _invalid("Only record batches with magic version 2 are allowed")
        if size < HEADER_BYTES:
            raise MalformedBatchError(f"A batch of {size} bytes is corrupt")  # noqa: TRY301 - one exit
        if _is_old_zstd(data[22], rules):
            return _old_zstd(rules)
        if first_batch_bytes(data[size:]):
            return _invalid("There must be exactly one record batch per partition")
    except MalformedBatchError as error:
        return RejectedBatch(ErrorCode.CORRUPT_MESSAGE, str(error))
    return data[:size]


def _transport_problem(
    header: BatchHeader, batch: memoryview, rules: BatchRules
) -> RejectedBatch | None:
    """What is wrong before anybody looks at offsets, producers or records."""
    if _is_old_zstd(header.attributes, rules):
        return _old_zstd(rules)
    if header.base_offset != 0:
        return _invalid(f"The base offset of a batch must be 0, it is {header.base_offset}")
    if len(batch) > rules.message_bytes_max:
        return RejectedBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch is {len(batch)} bytes, the topic allows {rules.message_bytes_max}",
        )
    crc = batch_crc(batch)
    if header.crc != crc:
        return RejectedBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}, computed crc = {crc})",
        )
    if header.codec > _ZSTD:
        return _invalid(f"Unknown compression type id: {header.codec}")
    return None


def _producer_problem(header: BatchHeader) -> RejectedBatch | None:
    """What is wrong with counts, kind of batch, or the producer's numbers."""
    if header.record_count <= 0:
        return _invalid(f"Invalid reported count for record batch: {header.record_count}")
    if header.record_count != header.last_offset_delta + 1:
        return _invalid(
            f"Last offset delta {header.last_offset_delta} does not fit"
            f" the count of records {header.record_count}"
        )
    if header.control:
        return _invalid("Clients are not allowed to write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return _invalid(f"Invalid sequence number {header.base_sequence} of an idempotent producer")
    if header.producer_id >= 0 and header.producer_epoch < 0:
        return _invalid(f"Invalid epoch {header.producer_epoch} of an idempotent producer")
    return None


def _limits(header: BatchHeader, rules: BatchRules) -> Limits:
    lower_ms, upper_ms = INT64_MIN, INT64_MAX
    if rules.timestamp_type == _CREATE_TIME:
        lower_ms = max(lower_ms, rules.now_ms - rules.timestamp_before_max_ms)
        upper_ms = min(upper_ms, rules.now_ms + rules.timestamp_after_max_ms)
    return header.base_timestamp_ms, lower_ms, upper_ms, 1 if rules.compacted else 0


def _scan(header: BatchHeader, batch: memoryview, limits: Limits, rules: BatchRules) -> ScanOutcome:
    if header.codec == _NONE:
        return scan_records(batch[HEADER_BYTES:], header.record_count, limits)
    return scan_pieces(_pieces(header, batch, rules), header.record_count, limits)


def _pieces(header: BatchHeader, batch: memoryview, rules: BatchRules) -> Iterator[memoryview]:
    records = batch[HEADER_BYTES:]
    return decompress_pieces(Codec(header.codec), records, rules.decompressed_bytes_max)


def _records_problem(
    header: BatchHeader,
    batch: memoryview,
    limits: Limits,
    outcome: ScanOutcome,
    rules: BatchRules,
) -> RejectedBatch | None:
    """What the scan found, or None when only the LogAppendTime bit was worth a second look."""
    verdict, _, index, _, _, bad = outcome
    if verdict == MISPLACED:
        return _invalid(f"The offset delta of record {index} is not {index}")
    if verdict != DONE:
        return _invalid(f"Record {index} of {header.record_count} is malformed")
    errors_max = RECORD_ERRORS_BASE + len(batch) // RECORD_ERROR_BYTES
    if header.log_append_time and (
        rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        or header.max_timestamp_ms == NO_TIMESTAMP_MS
    ):
        reason = "Producer should not set timestamp type to LogAppendTime."
        listed = range(min(header.record_count, errors_max))
        return _bad_records(tuple((index, reason) for index in listed), timestamps=True)
    if not bad:
        return None
    found = find_bad(_pieces(header, batch, rules), header.record_count, limits, errors_max)
    errors = tuple((index, _explain(index, timestamp_ms, limits)) for index, timestamp_ms in found)
    return _bad_records(errors, timestamps=any(ms != MISSING_KEY for _, ms in found))


def _explain(index: int, timestamp_ms: int, limits: Limits) -> str:
    if timestamp_ms == MISSING_KEY:
        return "Compacted topic cannot accept message without key"
    _, lower_ms, upper_ms, _ = limits
    return (
        f"Timestamp {timestamp_ms} of message with offset {index} is out of range."
        f" The timestamp should be within [{lower_ms}, {upper_ms}]"
    )


def _bad_records(errors: tuple[tuple[int, str], ...], *, timestamps: bool) -> RejectedBatch:
    if timestamps:
        reason = "One or more records have been rejected due to invalid timestamp"
        return RejectedBatch(ErrorCode.INVALID_TIMESTAMP, reason, errors)
    index, text = errors[0]
    reason = f"One or more records have been rejected; the first is record {index}: {text}"
    return RejectedBatch(ErrorCode.INVALID_RECORD, reason, errors)


def _accept(
    header: BatchHeader, batch: memoryview, outcome: ScanOutcome, rules: BatchRules
) -> AcceptedBatch:
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        least_ms = greatest_ms = append_time_ms = rules.now_ms
        attributes = header.attributes | LOG_APPEND_TIME_BIT
    else:
        least_ms, append_time_ms = outcome[3], NO_TIMESTAMP_MS
        greatest_ms = max(outcome[4], NO_TIMESTAMP_MS)
        attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if attributes != header.attributes or greatest_ms != header.max_timestamp_ms:
        batch = restamp(batch, attributes=attributes, max_timestamp_ms=greatest_ms)
    return AcceptedBatch(
        batch,
        header.record_count,
        header.last_offset_delta + 1,
        max(header.producer_id, -1),
        header.producer_epoch,
        header.base_sequence,
        least_ms,
        greatest_ms,
        append_time_ms,
        header.transactional,
    )


def _is_old_zstd(attributes: int, rules: BatchRules) -> bool:
    return rules.produce_version < ZSTD_PRODUCE_VERSION and attributes & 7 == Codec.ZSTD


def _old_zstd(rules: BatchRules) -> RejectedBatch:
    return RejectedBatch(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"Produce version {rules.produce_version} is not allowed to use ZStandard compression",
    )


def _invalid(message: str) -> RejectedBatch:
    return RejectedBatch(ErrorCode.INVALID_RECORD, message)
