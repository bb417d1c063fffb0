"""Events as bytes: each is checked whole when it is decoded (rule 10)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.domain.build import B, commit_of, create_of, idempotent, trim_of
from tests.sides import both, side

from lakelog.domain.commit_event import COMMIT_BATCH_BYTES, Commit, ExpireWrites, Write
from lakelog.domain.events import (
    Barrier,
    Drop,
    Event,
    ExpireProducers,
    Genesis,
    Hello,
    Horizon,
    Kind,
    Swap,
    Upgrade,
    decode_event,
    encode_event,
    needed_level,
)
from lakelog.model.failures import Corrupt
from lakelog.streams.objects import FileKind, FileName

FILE = FileName(FileKind.SEGMENT, "data/ä.kfs")
SAMPLES: tuple[Event, ...] = (
    Genesis("cluster", 4, 1),
    Hello(1),
    create_of(3, 4, 5, first_partition=7),
    create_of(),
    commit_of([B(1, 3), B(2)], zone="zone-ä"),
    commit_of([B(1, 3), idempotent(2, 5), idempotent(2, 6)]),
    Swap(1, 0, 9, FILE, 55, -1, (b"12345678", b"abcdefgh")),
    Swap(1, 5, 9, FILE, 55, 7, ()),
    trim_of({1: 2, 3: 4}),
    Drop(np.array([1, 2], dtype=np.int64)),
    Horizon(12),
    ExpireProducers(-1),
    Upgrade(1),
    Barrier(),
    Write("application-ä", 7, (commit_of([B(1, 3), B(2)], zone="z"), commit_of([B(4)], number=1))),
    ExpireWrites(-5),
)


def round_trip(event: Event) -> Event:
    kind, body = encode_event(event)
    return decode_event(kind, memoryview(body))


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_round_trip(event: Event) -> None:
    assert repr(round_trip(event)) == repr(event)


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_bytes_after_an_event_or_missing_from_it_are_corrupt(event: Event) -> None:
    kind, body = encode_event(event)
    fixed = not isinstance(event, Genesis | Swap)  # these end in a text of any length
    if fixed:
        with pytest.raises(Corrupt):
            decode_event(kind, memoryview(body + b"\x00"))
    for length in range(len(body) if fixed else 6):
        with pytest.raises(Corrupt):
            decode_event(kind, memoryview(body[:length]))


def test_a_kind_that_does_not_exist_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        decode_event(max(Kind) + 1, memoryview(b""))


GOOD = commit_of([B(1, 3), B(1, 1), idempotent(2, 5)])


def changed(column: str, place: int, value: int) -> Commit:
    values = getattr(GOOD, column).copy()
    values[place] = value
    changes: dict[str, Any] = {column: values}
    return replace(GOOD, **changes)


@pytest.mark.parametrize(
    "event",
    [
        changed("stream", 0, 3),
        changed("offset_count", 1, 0),
        changed("byte_start", 1, 500),
        changed("byte_start", 2, 100),
        changed("sequence", 2, -1),
        changed("epoch", 2, -1),
        replace(GOOD, size_bytes=300),
    ],
    ids=[
        "unsorted streams",
        "no offsets",
        "a gap in a stream",
        "overlap",
        "no sequence",
        "no epoch",
        "beyond the object",
    ],
)
@both
def test_a_commit_with_bad_content_is_corrupt(compiled: bool, event: Commit) -> None:
    with side(compiled), pytest.raises(Corrupt):
        round_trip(event)


def test_a_commit_without_batches_is_corrupt() -> None:
    kind, body = encode_event(GOOD)
    empty = body[:21] + bytes(4) + b"\x00"
    with pytest.raises(Corrupt):
        decode_event(kind, memoryview(empty))


def test_a_batch_takes_at_most_the_promised_bytes() -> None:
    small = encode_event(commit_of([idempotent(1, 0)]))[1]
    large = encode_event(commit_of([idempotent(1, 0)] * 101))[1]
    assert len(large) - len(small) == 100 * COMMIT_BATCH_BYTES


def test_a_swap_needs_a_range_a_size_and_a_key() -> None:
    for bad in (
        Swap(1, 5, 5, FILE, 55, 7, ()),
        Swap(1, -1, 5, FILE, 55, 7, ()),
        Swap(1, 0, 5, FILE, 0, 7, ()),
        Swap(1, 0, 5, FileName(FileKind.SEGMENT, ""), 55, 7, ()),
    ):
        with pytest.raises(Corrupt):
            round_trip(bad)


def test_a_trim_to_a_negative_offset_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        round_trip(trim_of({1: -1}))


def test_a_partition_beyond_int32_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        round_trip(create_of(1, 2, first_partition=2**31 - 1))


OBJECT = commit_of([B(1, 3)])


@pytest.mark.parametrize(
    "event",
    [
        Write("", 1, (OBJECT,)),
        Write("a", -1, (OBJECT,)),
        Write("a", 1, ()),
        Write("a", 1, (GOOD,)),
        Write("a", 1, (OBJECT, OBJECT)),
        Write("a", 1, (replace(OBJECT, size_bytes=30),)),
    ],
    ids=["nobody", "no version", "no object", "producers", "an object twice", "a bad commit"],
)
def test_a_write_with_bad_content_is_corrupt(event: Write) -> None:
    with pytest.raises(Corrupt):
        round_trip(event)


def test_an_application_is_text() -> None:
    kind, body = encode_event(Write("ab", 1, (OBJECT,)))
    with pytest.raises(Corrupt):
        decode_event(kind, memoryview(body.replace(b"ab", b"\xff\xfe", 1)))


def test_only_events_of_level_2_need_level_2() -> None:
    assert needed_level(kind for kind in Kind if kind < Kind.WRITE) == 1
    assert needed_level([Kind.COMMIT, Kind.WRITE]) == 2
    assert needed_level([Kind.EXPIRE_WRITES]) == 2


def test_a_copy_with_other_columns_is_encoded_by_those() -> None:
    _, body = encode_event(GOOD)
    packed = body[len(body) - 3 * COMMIT_BATCH_BYTES :]
    made = Commit.unpacked(GOOD.wal_id, GOOD.zone, GOOD.size_bytes, 3, packed)
    assert encode_event(made) == encode_event(GOOD)
    moved = replace(made, max_timestamp=made.max_timestamp + 1)
    assert repr(round_trip(moved)) == repr(moved)
