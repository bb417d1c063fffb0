"""Hostile WAL objects and runs: any change of any byte is seen, and only `Corrupt` comes back."""

import random
from collections.abc import Callable
from functools import partial

from crc32c import crc32c

from lakelog.log.wal_source import walk_run
from lakelog.model.failures import Corrupt
from lakelog.model.ids import DomainId, StreamId
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.wal.layout import (
    HEADER,
    INDEX_ENTRY,
    Chunk,
    decode,
    encode,
    make_wal_id,
    object_key,
    parse_object_key,
    verify_run,
)

LEADER_EPOCH = range(12, 16)
"""The bytes of a batch that nothing covers, because they are written anew when served."""


def random_object(chance: random.Random) -> bytes:
    streams = sorted(chance.sample(range(1 << 40), chance.choice((1, 1, 3, 10))))
    chunks = []
    for stream in streams:
        counts = [chance.choice((1, 2, 9)) for _ in range(chance.choice((1, 1, 3)))]
        batches = [
            build_batch([Record(None, chance.randbytes(20), 5)] * count, BatchOptions())
            for count in counts
        ]
        chunks.append(Chunk(StreamId(stream), batches, sum(counts), 5, 5))
    wal_id = make_wal_id(chance.randrange(1 << 47), chance.randbytes(10))
    return b"".join(encode(wal_id, DomainId(chance.randrange(4)), 99, chunks).parts)


def fuzz_flip(chance: random.Random) -> None:
    """One flipped bit or one cut anywhere in an object."""
    data = bytearray(random_object(chance))
    decode(memoryview(data))
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    must_be_corrupt(data)


def fuzz_forged(chance: random.Random) -> None:
    """An index that lies, or bytes moved about, under a CRC that fits."""
    data = bytearray(random_object(chance))
    before = bytes(data[:-4])
    count = int.from_bytes(data[37:41], "big")
    entry = HEADER.size + INDEX_ENTRY.size * chance.randrange(count)
    match chance.randrange(4):
        case 0:  # position, length, records or batches of a chunk
            place = entry + chance.choice((8, 16, 20, 24))
            width = 8 if place == entry + 8 else 4
            number = chance.choice((0, 1, entry, len(data), (1 << 8 * width) - 1))
            data[place : place + width] = number.to_bytes(width, "big")
        case 1:  # two entries trade places, or one stands twice
            other = HEADER.size + INDEX_ENTRY.size * chance.randrange(count)
            data[entry : entry + INDEX_ENTRY.size] = data[other : other + INDEX_ENTRY.size]
        case 2:  # the header
            data[chance.choice((*range(9), *range(37, 49)))] ^= 1 << chance.randrange(8)
        case _:  # bytes put in or taken out before the footer
            place = chance.randrange(HEADER.size, len(data) - 4)
            if chance.random() < 0.5:
                data[place:place] = chance.randbytes(4)
            else:
                del data[place : min(place + 4, len(data) - 4)]
    data[-4:] = crc32c(data[:-4]).to_bytes(4, "big")
    if bytes(data[:-4]) != before:
        must_be_corrupt(data)


def fuzz_run(chance: random.Random) -> None:
    """One flipped bit or one cut in the bytes of a run."""
    batches = [
        build_batch([Record(b"k", chance.randbytes(9), 5)], BatchOptions())
        for _ in range(chance.choice((1, 3)))
    ]
    data = bytearray(b"".join(len(batch).to_bytes(4, "big") + batch for batch in batches))
    size = 4 + len(batches[0])
    if chance.random() < 0.3:
        end = chance.randrange(len(data))
        if end % size:
            del data[end:]
            must_be_corrupt_run(data)
        return
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    if place % size - 4 not in LEADER_EPOCH:
        must_be_corrupt_run(data)


def fuzz_key(chance: random.Random) -> None:
    """A damaged object key is None, or exactly the key of what it says."""
    wal_id = make_wal_id(chance.randrange(1 << 47), chance.randbytes(10))
    key = list(object_key("zone-a", DomainId(3), wal_id))
    key[chance.randrange(len(key))] = chr(chance.choice((0, 45, 46, 47, 48, 57, 65, 97, 0x663)))
    text = "".join(key)
    place = parse_object_key(text)
    assert place is None or object_key(place.zone, place.domain, place.wal_id) == text


def must_be_corrupt(data: bytearray) -> None:
    try:
        decode(memoryview(bytes(data)))
    except Corrupt:
        return
    raise AssertionError(f"a damaged object was accepted: {data.hex()}")


def must_be_corrupt_run(data: bytearray) -> None:
    for read in (verify_run, partial(walk_run, base_offset=0)):
        try:
            read(memoryview(bytes(data)))
        except Corrupt:
            continue
        raise AssertionError(f"a damaged run was accepted: {data.hex()}")


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "wal.flip": fuzz_flip,
    "wal.forged": fuzz_forged,
    "wal.run": fuzz_run,
    "wal.key": fuzz_key,
}
