"""The layout of an object: by stream, in the order of acceptance, the same in both languages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.data_requests import accepted
from tests.broker.data_stage import batch, idempotent
from tests.sides import both, native, side

from lakelog.domain.events import encode_event
from lakelog.log.buffer import OBJECTS_REMEMBERED, InFlightRequests, ObjectBuffer, Sealed, seal
from lakelog.log.options import LogOptions
from lakelog.model.ids import DomainId
from lakelog.records.batch_rows import COLUMNS, BatchColumn, BatchRows, rows_of
from lakelog.records.header import parse_header
from lakelog.wal.layout import Chunk, decode, encode, make_wal_id

WAL_ID = make_wal_id(1_700_000_000_000, bytes(range(10)))
Rows = list[tuple[int, int, bool]]
ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3000), st.booleans()), min_size=1)


def sealed_of(rows: Rows, *, stamp_ms: int = -1) -> Sealed:
    """An object of batches of some streams and sizes, idempotent or not, part by part."""
    gathered = ObjectBuffer()
    for number, (stream, size, with_producer) in enumerate(rows):
        made = idempotent(7, 0, number, bytes(size)) if with_producer else batch(bytes(size))
        part = rows_of([stream], [accepted(made)])
        part.rows[:, BatchColumn.APPEND_MS] = stamp_ms
        if stamp_ms >= 0:
            part.rows[:, [BatchColumn.LEAST_MS, BatchColumn.GREATEST_MS]] = stamp_ms
        gathered.add(part)
    return seal(gathered, wal_id=WAL_ID, domain=DomainId(3), zone="z", created_ms=9)


@given(ROWS, st.sampled_from((-1, 1_800_000_000_000)))
def test_kernel_and_twin_lay_out_the_same_object(rows: Rows, stamp_ms: int) -> None:
    with side(compiled=True):
        by_kernel = sealed_of(rows, stamp_ms=stamp_ms)
    with side(compiled=False):
        by_twin = sealed_of(rows, stamp_ms=stamp_ms)
    assert by_kernel.data == by_twin.data
    assert encode_event(by_kernel.commit) == encode_event(by_twin.commit)
    for kernel, twin in zip(by_kernel.commit.columns, by_twin.commit.columns, strict=True):
        assert kernel.tolist() == twin.tolist()


@given(ROWS)
def test_an_object_is_what_its_format_says(rows: Rows) -> None:
    sealed = sealed_of(rows)
    stored = decode(sealed.data, wal_id=WAL_ID)
    in_order = sorted(range(len(rows)), key=lambda number: rows[number][0])
    assert sealed.order.tolist() == in_order
    assert sealed.commit.stream.tolist() == [rows[number][0] for number in in_order]
    batches = [one for chunk in stored.batches for one in chunk]
    starts = sealed.commit.byte_start.tolist()
    lengths = sealed.commit.byte_length.tolist()
    for start, length, one in zip(starts, lengths, batches, strict=True):
        assert sealed.data[start + 4 : start + length] == one
    chunks = [
        Chunk(
            chunk.stream_id,
            some,
            chunk.record_count,
            chunk.min_timestamp_ms,
            chunk.max_timestamp_ms,
        )
        for chunk, some in zip(stored.chunks, stored.batches, strict=True)
    ]
    again = encode(WAL_ID, DomainId(3), 9, chunks)
    assert b"".join(bytes(part) for part in again.parts) == sealed.data


def lingers(gathered: ObjectBuffer, came: list[int]) -> list[int]:
    """How long an object is kept open each time, when so many batches came before."""
    extended = []
    for count in came:
        for _ in range(count):
            gathered.add(rows_of([1], [accepted(batch(bytes(1_000)))]))
        extended.append(gathered.extend_linger_ms(LogOptions(linger_ms=3, linger_busy_ms=20)))
    return extended


def test_an_object_with_little_in_it_is_closed_after_its_linger() -> None:
    assert lingers(ObjectBuffer(), [1]) == [0]
    assert lingers(ObjectBuffer(), [60]) == [0]


def test_an_object_stays_open_while_much_comes_and_no_longer_than_it_may() -> None:
    assert lingers(ObjectBuffer(), [100, 1, 1, 1]) == [8, 8, 1, 0]


def test_an_object_is_closed_when_its_clients_wait_for_their_answers() -> None:
    assert lingers(ObjectBuffer(), [100, 0]) == [8, 0]
    assert lingers(ObjectBuffer(), [100, 5, 0]) == [8, 8, 0]


def test_an_object_has_all_requests_when_it_has_as_many_as_were_in_flight_lately() -> None:
    in_flight, alone, several = InFlightRequests(), ObjectBuffer(requests=1), ObjectBuffer()
    in_flight.accept(1)
    assert in_flight.are_all_in(alone)
    in_flight.accept(4)
    assert not in_flight.are_all_in(alone)
    several.requests = 4
    assert not in_flight.are_all_in(several)
    several.requests = 5
    assert in_flight.are_all_in(several)


def test_clients_that_left_are_expected_for_some_objects_and_then_no_more() -> None:
    in_flight, alone = InFlightRequests(), ObjectBuffer(requests=1)
    in_flight.accept(5)
    in_flight.answer(5)
    objects = 1
    while not in_flight.are_all_in(alone):
        in_flight.accept(1)
        in_flight.answer(1)
        objects += 1
    assert OBJECTS_REMEMBERED < objects <= 2 * OBJECTS_REMEMBERED


def test_what_is_in_flight_is_never_forgotten() -> None:
    in_flight, alone = InFlightRequests(), ObjectBuffer(requests=1)
    in_flight.accept(3)
    for _ in range(3 * OBJECTS_REMEMBERED):
        in_flight.accept(1)
        assert not in_flight.are_all_in(alone)
        in_flight.answer(1)


@both
@pytest.mark.parametrize("append_ms", [-1, 77])
@pytest.mark.parametrize("value_bytes", [1, 16_300, 16_384, 50_000, 200_001])
def test_large_batches_are_under_the_checksum_of_their_object(
    compiled: bool, value_bytes: int, append_ms: int
) -> None:
    part = rows_of([1, 2], [accepted(batch(bytes(value_bytes))), accepted(batch(b"b"))])
    part.rows[:, BatchColumn.APPEND_MS] = append_ms
    gathered = ObjectBuffer()
    gathered.add(part)
    with side(compiled):
        sealed = seal(gathered, wal_id=WAL_ID, domain=DomainId(0), zone="z", created_ms=1)
    stored = decode(sealed.data)  # every checksum is looked at
    assert [len(one) for (one,) in stored.batches] == part.rows[:, BatchColumn.LENGTH].tolist()


def test_the_broker_s_time_is_stamped_into_the_copy_alone() -> None:
    sent = batch(b"a", b"b")
    before = bytes(sent)
    part = rows_of([1], [accepted(sent)])
    part.rows[:, BatchColumn.APPEND_MS] = 77
    gathered = ObjectBuffer()
    gathered.add(part)
    sealed = seal(gathered, wal_id=WAL_ID, domain=DomainId(0), zone="z", created_ms=1)
    ((stored,),) = decode(sealed.data).batches
    header = parse_header(stored)
    assert (header.log_append_time, header.max_timestamp_ms) == (True, 77)
    assert bytes(sent) == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (BatchColumn.BUFFER, 1),
        (BatchColumn.BUFFER, -1),
        (BatchColumn.START, -1),
        (BatchColumn.START, 1),
        (BatchColumn.START, 1 << 62),
        (BatchColumn.LENGTH, 60),
        (BatchColumn.LENGTH, -1),
        (BatchColumn.LENGTH, 1 << 62),
        (BatchColumn.RECORDS, -1),
        (BatchColumn.RECORDS, 1 << 31),
    ],
)
def test_the_kernel_refuses_rows_outside_their_buffers(column: BatchColumn, value: int) -> None:
    part = rows_of([1], [accepted(batch(b"a"))])
    rows = part.rows.copy()
    rows[0, column] = value
    order, starts = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    out = np.zeros(500, dtype=np.uint8)
    with pytest.raises(ValueError, match="row"):
        native().lay_out(part.buffers, rows, order, out, starts, 49, 93)


def test_the_kernel_refuses_arrays_that_do_not_fit_together() -> None:
    part: BatchRows = rows_of([1], [accepted(batch(b"a"))])
    one, two = np.zeros(1, dtype=np.int64), np.zeros(2, dtype=np.int64)
    out = np.zeros(500, dtype=np.uint8)
    for order, starts, room, at, end in (
        (two, two, out, 49, 93),
        (one, two, out, 49, 93),
        (one, one, out[:100], 49, 93),
        (one, one, out, 49, 501),
        (one, one, out, 49, 60),
        (one, one, out, 49, 150),
        (one + 1, one, out, 49, 93),
    ):
        with pytest.raises(ValueError, match="row"):
            native().lay_out(part.buffers, part.rows, order, room, starts, at, end)
    with pytest.raises(TypeError):
        native().lay_out(part.buffers, np.zeros((1, COLUMNS), np.int32), one, out, one, 49, 93)
    with pytest.raises(TypeError):
        native().lay_out(tuple(part.buffers), part.rows, one, out, one, 49, 93)  # type: ignore[arg-type]  # no list
