"""The records that every client writes: record number i is the same on every run.

Rules: nothing here knows a client. What a client cannot express is an `Ability`, and the corpus is
projected onto it before it is written, so that the checker always knows the expected bytes and no
difference is forgiven afterwards. Codecs come in blocks, in the order of the record numbers: a
producer per codec then keeps the order of each partition.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 4
LARGE_EVERY = 997
LARGE_BYTES = 20_000
WORDS = ("lake", "log", "größe", "流れ", "naïve", "øre", "🚣", "key=value", '{"a": [1, 2]}')

Headers = tuple[tuple[str, bytes | None], ...]


class HeaderFreedom(Enum):
    """How freely a client can place headers."""

    ANY_ORDER = "any order"
    GROUPED = "grouped by name"
    PER_RUN = "the same for a whole run"


@dataclass(frozen=True, slots=True)
class Ability:
    """What a producing client can express."""

    codecs: tuple[str, ...] = CODECS
    binary: bool = True
    null_header_values: bool = True
    headers: HeaderFreedom = HeaderFreedom.ANY_ORDER
    timestamps: bool = True
    partitions: bool = True
    null_key_and_value: bool = True
    # False: a run of the client writes either empty keys and values or null ones, and no record
    # without a key may be empty.
    empty_beside_null: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it must come back."""

    index: int
    partition: int
    codec: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


def digest(index: int) -> bytes:
    """Return 64 bytes that depend on the record number alone."""
    return hashlib.blake2b(index.to_bytes(8, "big")).digest()


def text(noise: bytes) -> bytes:
    """Return printable UTF-8 of one line, made from noise."""
    return " ".join(WORDS[byte % len(WORDS)] for byte in noise).encode()


def make_key(index: int, noise: bytes) -> bytes | None:
    """Null, empty, text or binary."""
    match noise[0] % 5:
        case 0:
            return None
        case 1:
            return b""
        case 2:
            return f"user-{noise[1]}".encode()
        case 3:
            return noise[2:18]
        case _:
            return text(noise[1:3]) + str(index).encode()


def make_value(index: int, noise: bytes) -> bytes | None:
    """A tombstone, empty, text, binary, and now and then something large."""
    if index % LARGE_EVERY == LARGE_EVERY - 1:
        return noise * (LARGE_BYTES // len(noise))
    match noise[20] % 6:
        case 0:
            return None
        case 1:
            return b""
        case 2 | 3:
            return f'{{"record": {index}, "text": "'.encode() + text(noise[21:29]) + b'"}'
        case 4:
            return noise + index.to_bytes(8, "little")
        case _:
            return noise[: noise[21] % 60 + 1] * (noise[22] % 8 + 1)


def make_headers(index: int, noise: bytes) -> Headers:
    """None, one, duplicates that are not neighbours, null, empty, binary values, other names."""
    number = str(index).encode()
    match noise[40] % 6:
        case 0 | 1:
            return ()
        case 2:
            return (("trace", number),)
        case 3:
            return (("a", b"1"), ("b", number), ("a", b"2"), ("a", b"1"))
        case 4:
            return (("null", None), ("empty", b""), ("null", None))
        case _:
            return (("größe", noise[41:49]), ("text", text(noise[49:51])))


def make(index: int, count: int, ability: Ability, base_ms: int) -> Record:
    """Return record number `index` of `count` as this client can write it."""
    noise = digest(index)
    codec = ability.codecs[index * len(ability.codecs) // count]
    record = Record(
        index=index,
        partition=index % PARTITIONS if ability.partitions else 0,
        codec=codec,
        key=make_key(index, noise),
        value=make_value(index, noise),
        headers=make_headers(index, noise),
        timestamp_ms=base_ms + index if ability.timestamps else None,
    )
    projected = project(record, ability)
    if ability.empty_beside_null:
        return projected
    # Each codec's block has two halves: one with empty keys and values, one with nulls.
    return (
        without_empty(projected)
        if index * len(ability.codecs) * 2 // count % 2
        else (without_null_value(projected))
    )


def project(record: Record, ability: Ability) -> Record:
    """Replace what a client cannot express by something near that it can."""
    if not ability.binary:
        record = replace(
            record,
            key=as_text(record.key),
            value=as_text(record.value),
            headers=tuple((name, as_text(value)) for name, value in record.headers),
        )
    if ability.headers is HeaderFreedom.PER_RUN:
        # One block of a codec is one run: its headers depend on the codec alone.
        shown = HEADERS_PER_RUN[ability.codecs.index(record.codec) % len(HEADERS_PER_RUN)]
        record = replace(record, headers=shown)
    if ability.headers is HeaderFreedom.GROUPED:
        record = replace(record, headers=grouped(record.headers))
    if not ability.null_key_and_value and record.key is None and record.value is None:
        record = replace(record, key=b"")
    if not ability.null_header_values:
        filled = tuple((name, b"" if value is None else value) for name, value in record.headers)
        record = replace(record, headers=filled)
    return record


def without_empty(record: Record) -> Record:
    """Return the record with null where key or value are empty."""
    return replace(record, key=record.key or None, value=record.value or None)


def without_null_value(record: Record) -> Record:
    """Return the record with something where the value is null, or empty without a key."""
    if record.value is None or (record.key is None and not record.value):
        return replace(record, value=b"-" if record.key is None else b"")
    return record


HEADERS_PER_RUN: tuple[Headers, ...] = (
    (),
    (("trace", b"1"),),
    (("a", b"1"), ("b", b"x=y"), ("a", b"2"), ("a", b"1")),
    (("null", None), ("empty", b""), ("null", None)),
    (("größe", "流れ".encode()),),
)


def as_text(raw: bytes | None) -> bytes | None:
    """Return text unchanged and everything else as hexadecimal digits."""
    if raw is None:
        return None
    try:
        printable = raw.decode().isprintable()
    except UnicodeDecodeError:
        printable = False
    return raw if printable else raw.hex().encode()


def grouped(headers: Headers) -> Headers:
    """Return headers with equal names side by side, in order of first appearance."""
    names = list(dict.fromkeys(name for name, _ in headers))
    return tuple((name, value) for wanted in names for name, value in headers if name == wanted)


def corpus(count: int, ability: Ability, base_ms: int) -> list[Record]:
    """Return all records of one producer, in the order in which they are written."""
    return [make(index, count, ability, base_ms) for index in range(count)]


def blocks(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """Return the records in runs of one codec."""
    runs: list[tuple[str, list[Record]]] = []
    for record in records:
        if not runs or runs[-1][0] != record.codec:
            runs.append((record.codec, []))
        runs[-1][1].append(record)
    return runs


def by_partition(records: Sequence[Record]) -> dict[int, list[Record]]:
    """Return the records of each partition in the order of their offsets."""
    partitions: dict[int, list[Record]] = {}
    for record in records:
        partitions.setdefault(record.partition, []).append(record)
    return partitions
