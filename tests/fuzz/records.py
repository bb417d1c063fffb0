"""Hostile record batches, records, codecs and columns, each with its oracle.

Every target is one input: only the named errors may come back, caps hold, the compiled kernels and
their twins agree, and whatever is accepted is exactly what a consumer can read.
"""

import random
from collections.abc import Callable

import numpy as np
from tests.sides import native

from lakelog.records.acceptance import (
    AcceptedBatch,
    BatchRules,
    RejectedBatch,
    TimestampType,
    inspect,
)
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec, DecompressionError, compress, decompress
from lakelog.records.columns import PLACES, decode_columns, fill_columns_in_python
from lakelog.records.header import (
    CRC_OFFSET,
    HEADER_BYTES,
    BatchError,
    batch_crc,
    parse_header,
    split_batches,
)
from lakelog.records.kernels import DONE, Limits
from lakelog.records.scan import scan_in_python, scan_pieces

NOW_MS = 1_700_000_000_000
OUTPUT_BYTES_MAX = 1 << 20
EDGE_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def random_blob(chance: random.Random) -> bytes | None:
    kind = chance.randrange(5)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    return chance.randbytes(chance.choice((1, 3, 63, 64, 100, 300)))


def random_records(chance: random.Random) -> list[Record]:
    records = []
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        headers = [
            (chance.choice((b"", b"a", b"a", b"trace")), random_blob(chance))
            for _ in range(chance.choice((0, 0, 0, 1, 3)))
        ]
        timestamp_ms = NOW_MS + chance.choice((0, 1, -5, 100_000, -(1 << 40)))
        records.append(Record(random_blob(chance), random_blob(chance), timestamp_ms, headers))
    return records


def random_batch(chance: random.Random) -> bytearray:
    producer = chance.choice((-1, -1, 7))
    options = BatchOptions(
        codec=Codec(chance.randrange(5)),
        producer_id=producer,
        producer_epoch=min(producer, 0),
        base_sequence=min(producer, 0),
    )
    return bytearray(build_batch(random_records(chance), options))


def mutate(chance: random.Random, data: bytearray) -> None:
    """A few small changes: bits, bytes, numbers at the edge, cuts, repeats."""
    for _ in range(chance.choice((1, 1, 2, 8))):
        if not data:
            return
        place = chance.randrange(len(data))
        match chance.randrange(6):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place] = chance.randrange(256)
            case 2:
                width = chance.choice((1, 2, 4))
                number = chance.choice(EDGE_NUMBERS) & ((1 << 8 * width) - 1)
                data[place : place + width] = number.to_bytes(width, "big")
            case 3:
                del data[place:]
            case 4:
                data[place:place] = chance.randbytes(chance.choice((1, 5, 20)))
            case _:
                data += data[place : place + 40]


def mend(data: bytearray) -> None:
    """Make length and CRC right, so that the change reaches the checks behind them."""
    if len(data) < HEADER_BYTES:
        return
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[CRC_OFFSET : CRC_OFFSET + 4] = batch_crc(memoryview(data)).to_bytes(4, "big")


def random_rules(chance: random.Random) -> BatchRules:
    return BatchRules(
        now_ms=NOW_MS,
        produce_version=chance.choice((3, 9, 13)),
        message_bytes_max=chance.choice((200, 1_048_588)),
        timestamp_type=TimestampType(chance.randrange(2)),
        timestamp_before_max_ms=chance.choice((1_000, (1 << 63) - 1)),
        compacted=chance.random() < 0.3,
        decompressed_bytes_max=chance.choice((100, OUTPUT_BYTES_MAX)),
    )


def fuzz_batch(chance: random.Random) -> None:
    data = random_batch(chance)
    mutate(chance, data)
    if chance.random() < 0.5:
        mend(data)
    rules = random_rules(chance)
    result = inspect(memoryview(bytes(data)), rules)
    if isinstance(result, RejectedBatch):
        assert result.code > 0
        assert len(result.record_errors) <= 64 + len(data) // 256
        return
    check_accepted(result, rules)


def check_accepted(result: AcceptedBatch, rules: BatchRules) -> None:
    """What was accepted is one whole batch that a consumer can read."""
    header = parse_header(result.data)
    assert header.size_bytes == len(result.data) <= rules.message_bytes_max
    assert header.crc == batch_crc(result.data)
    assert header.base_offset == 0
    assert header.log_append_time == (rules.timestamp_type is TimestampType.LOG_APPEND_TIME)
    columns = decode_columns(result.data, decompressed_bytes_max=rules.decompressed_bytes_max)
    assert columns.offset_deltas.tolist() == list(range(result.offset_count))
    assert result.record_count == len(columns)
    assert int(columns.timestamps_ms.min()) == result.min_timestamp_ms
    assert max(int(columns.timestamps_ms.max()), -1) == result.max_timestamp_ms
    assert header.max_timestamp_ms == result.max_timestamp_ms
    for index in range(len(columns)):
        columns.headers(index)
        assert columns.key(index) is not None or not rules.compacted


def fuzz_scan(chance: random.Random) -> None:
    """Kernel, twin and scan over pieces give the same outcome on the same hostile records."""
    records = random_records(chance)
    data = bytearray(build_batch(records, BatchOptions())[HEADER_BYTES:])
    if chance.random() < 0.9:
        mutate(chance, data)
    view = memoryview(bytes(data))
    count = chance.choice((len(records), len(records), 0, 1, 3, 1_000_000))
    bounds = ((-(1 << 63), (1 << 63) - 1), (NOW_MS - 10, NOW_MS + 10))
    base_ms = chance.choice((NOW_MS, (1 << 63) - 1, -(1 << 63)))
    limits: Limits = (base_ms, *chance.choice(bounds), chance.randrange(2))
    twin = scan_in_python(view, 0, 0, count, limits)
    assert native().scan(view, 0, 0, count, limits) == twin
    size = chance.choice((1, 7, 100))
    pieces = (view[start : start + size] for start in range(0, len(view), size))
    by_pieces = scan_pieces(pieces, count, limits)
    if twin[0] == DONE and twin[1] == len(view):
        assert by_pieces[2:] == twin[2:]
        assert by_pieces[0] == DONE
    else:
        assert by_pieces[0] != DONE


def fuzz_columns(chance: random.Random) -> None:
    """The kernel fills what its twin fills, or both refuse."""
    records = random_records(chance)
    data = bytearray(build_batch(records, BatchOptions())[HEADER_BYTES:])
    mutate(chance, data)
    view = memoryview(bytes(data))
    count = len(records)
    kernel = (np.zeros(count, np.int64), np.zeros((PLACES, count), np.int32))
    twin = (np.zeros(count, np.int64), np.zeros((PLACES, count), np.int32))
    verdict = native().fill_columns(view, NOW_MS, *kernel)
    try:
        fill_columns_in_python(view, NOW_MS, *twin)
    except BatchError:
        assert verdict != DONE
    else:
        assert verdict == DONE
        assert np.array_equal(kernel[0], twin[0])
        assert np.array_equal(kernel[1], twin[1])


def fuzz_codec(chance: random.Random) -> None:
    """Broken, joined and swollen compressed data: the named error, or at most the cap."""
    codec = Codec(chance.randrange(1, 5))
    size = chance.choice((0, 1, 100, 5_000, 70_000))
    plain = chance.choice((bytes(size), chance.randbytes(size), b"abcdefgh" * (size // 8)))
    data = bytearray(compress(codec, plain))
    match chance.randrange(4):
        case 0:
            data += compress(codec, plain)
        case 1:
            data = bytearray(chance.randbytes(chance.randrange(64)))
        case 2:
            data = data[: chance.randrange(len(data) + 1)]
        case _:
            mutate(chance, data)
    bytes_max = chance.choice((0, 1, size, OUTPUT_BYTES_MAX))
    try:
        output = decompress(codec, memoryview(bytes(data)), bytes_max)
    except DecompressionError:
        return
    assert len(output) <= bytes_max


def fuzz_split(chance: random.Random) -> None:
    """Several batches in a row, damaged: whole batches come out, or the named error."""
    data = bytearray().join(random_batch(chance) for _ in range(chance.randrange(4)))
    mutate(chance, data)
    try:
        batches = split_batches(memoryview(bytes(data)))
    except BatchError:
        return
    assert sum(len(batch) for batch in batches) <= len(data)
    for batch in batches:
        try:
            decode_columns(batch, decompressed_bytes_max=OUTPUT_BYTES_MAX)
        except BatchError:
            continue


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "records.batch": fuzz_batch,
    "records.scan": fuzz_scan,
    "records.columns": fuzz_columns,
    "records.codec": fuzz_codec,
    "records.split": fuzz_split,
}
