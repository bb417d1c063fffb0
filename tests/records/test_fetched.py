"""An answer's records as columns: every field of every record, from any codec, or an error."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.records import mutate
from tests.profiles import examples
from tests.records.fetched_cases import (
    ROOMY,
    Row,
    answers,
    expected_rows,
    joined,
    rows_of,
)
from tests.records.oracles import BUILDERS, build_elsewhere, speaks
from tests.sides import both, side

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec, OutputTooLargeError
from lakelog.records.fetched import FetchedRows, decode_fetched
from lakelog.records.fetched_batches import walk_batches
from lakelog.records.header import HEADER_BYTES, BatchError, MalformedBatchError, write_varint

every_codec = pytest.mark.parametrize("codec", Codec)


def decode(
    answer: memoryview | bytes | bytearray,
    from_offset: int = 0,
    *,
    bytes_max: int = ROOMY,
    own: bool = False,
) -> FetchedRows:
    view = memoryview(answer)
    return decode_fetched(
        view,
        walk_batches(view),
        from_offset=from_offset,
        skipped=None,
        decompressed_bytes_max=bytes_max,
        own=own,
    )


@both
@settings(deadline=None, max_examples=examples(200))
@given(answer=answers(), start=st.integers(0, 60_000), own=st.booleans())
def test_every_field_comes_back_from_the_first_offset_on(
    compiled: bool, answer: bytes, start: int, own: bool
) -> None:
    view = memoryview(answer)
    with side(compiled):
        rows = decode(view, start, own=own)
        assert rows_of(rows) == expected_rows(view, start)
    assert len(rows) == len(rows.offsets)


@both
@pytest.mark.parametrize("program", BUILDERS)
@every_codec
def test_batches_of_other_programs_are_read(compiled: bool, program: str, codec: Codec) -> None:
    if not speaks(program, codec):
        pytest.skip(f"{program} has no {codec.name} here")
    rows = [
        Record(b"key", b"v" * 40, 1_000, [("name é".encode(), None), (b"name", b"1")]),
        Record(None, b"", 990),
        Record(b"", None, 100_000_000),
    ]
    answer = build_elsewhere(program, rows, codec)
    with side(compiled):
        assert rows_of(decode(answer)) == [
            Row(0, 1_000, b"key", b"v" * 40, [("name é", None), ("name", b"1")]),
            Row(1, 990, None, b"", []),
            Row(2, 100_000_000, b"", None, []),
        ]


@both
def test_blobs_of_every_length_are_read_also_at_the_end_of_the_data(compiled: bool) -> None:
    content = bytes(range(1, 41))
    with side(compiled):
        for key, value in itertools.product((None, *range(15)), (None, *range(30))):
            record = Record(
                None if key is None else content[:key], None if value is None else content[:value]
            )
            rows = decode(build_batch([record], BatchOptions()))
            assert rows_of(rows) == [Row(0, -1, record.key, record.value, [])]


@both
def test_numbers_of_every_length_are_read(compiled: bool) -> None:
    deltas = [0, 63, 64, 8_191, 8_192, 1 << 20, (1 << 27) - 1, 1 << 27, (1 << 31) - 1]
    sizes = [0, 63, 64, 8_191, 8_192, 70_000, 5, 0, 1]
    edges = [0, *(1 << shift for shift in range(6, 62, 7)), (1 << 62) - 1]
    records = [Record(None, bytes(size), 5) for size in sizes]
    timed = [Record(b"k", b"v", ms) for edge in edges for ms in (edge, -edge)]
    answer = build_batch(records, BatchOptions(offset_deltas=deltas))
    answer += build_batch(timed, BatchOptions(base_offset=1 << 31))
    with side(compiled):
        rows = decode(answer)
        assert rows_of(rows) == expected_rows(memoryview(answer), 0)
    assert rows.offsets[: len(deltas)].tolist() == deltas
    assert rows.timestamps_ms[len(deltas) :].tolist() == [one.timestamp_ms for one in timed]


@both
@every_codec
def test_rows_before_the_first_offset_are_cut(compiled: bool, codec: Codec) -> None:
    batch = [Record(b"k", b"long enough for a view", at, [(b"h", b"i")]) for at in range(4)]
    answer = joined([batch] * 3, BatchOptions(base_offset=10, codec=codec))
    with side(compiled):
        for start in range(8, 24):
            rows = decode(answer, start)
            assert rows.offsets.tolist() == list(range(max(start, 10), 22))
            assert rows_of(rows) == expected_rows(answer, start)


@both
def test_the_cut_keeps_no_memory_of_what_it_cut(compiled: bool) -> None:
    rows = [Record(None, b"", 1)] * 100
    with side(compiled):
        found = decode(build_batch(rows, BatchOptions()), 99)
    arrays = (found.offsets, found.timestamps_ms, found.key_views, found.value_views)
    for array in arrays:
        base = array if array.base is None else array.base
        assert base.nbytes <= 2 * array.nbytes


@both
def test_control_and_skipped_batches_are_left_out(compiled: bool) -> None:
    row = [Record(b"k", b"v", 1)]
    parts = [
        build_batch(row, BatchOptions(base_offset=at, control=at == 1, codec=Codec.LZ4))
        for at in range(4)
    ]
    answer = memoryview(b"".join(parts))
    with side(compiled):
        batches = walk_batches(answer)
        skipped = np.array([False, False, True, False])
        found = decode_fetched(
            answer, batches, from_offset=0, skipped=skipped, decompressed_bytes_max=ROOMY
        )
        assert found.offsets.tolist() == [0, 3]
        none = decode_fetched(
            answer, batches, from_offset=0, skipped=~batches.are_control, decompressed_bytes_max=0
        )
    assert len(none) == 0
    assert none.nbytes == 0


@both
@every_codec
def test_a_batch_that_compaction_emptied_has_no_rows(compiled: bool, codec: Codec) -> None:
    # Kafka keeps the header alone: there is nothing to decompress.
    empty = bytearray(build_batch([], BatchOptions(last_offset_delta=4)))
    empty[22] = codec
    answer = bytes(empty) + build_batch([Record(None, b"v", 1)], BatchOptions(base_offset=5))
    with side(compiled):
        assert decode(answer).offsets.tolist() == [5]


@both
def test_log_append_time_is_every_records_time(compiled: bool) -> None:
    rows = [Record(None, b"1", 1), Record(None, b"2", 2)]
    answer = build_batch(rows, BatchOptions(append_time_ms=77))
    answer += build_batch(rows, BatchOptions(base_offset=2))
    with side(compiled):
        assert decode(answer).timestamps_ms.tolist() == [77, 77, 1, 2]


@both
def test_columns_that_nothing_needs_are_not_there(compiled: bool) -> None:
    with side(compiled):
        plain = decode(build_batch([Record(b"k", b"v", 1)], BatchOptions()))
        mixed = decode(
            build_batch(
                [Record(None, b"v", 1), Record(b"k", None, 1, [(b"h", None)])], BatchOptions()
            )
        )
    assert plain.key_nulls is plain.value_nulls is None
    assert plain.header_starts is plain.header_counts is None
    assert plain.nbytes == 8 + 8 + 16 + 16 + len(plain.data)
    assert mixed.key_nulls is not None
    assert mixed.key_nulls.tolist() == [True, False]
    assert mixed.value_nulls is not None
    assert mixed.value_nulls.tolist() == [False, True]
    assert mixed.header_counts is not None
    assert mixed.header_counts.tolist() == [0, 1]
    assert mixed.nbytes == 2 * (8 + 8 + 16 + 16 + 1 + 1 + 4 + 4) + len(mixed.data)


@both
def test_headers_come_for_chosen_rows_and_with_replacement_characters(compiled: bool) -> None:
    headers: list[list[tuple[bytes, bytes | None]]]
    headers = [[(b"\xffa", b"1"), (b"b", None)], [], [(b"b", b"")], [(b"\xffa", b"2")]]
    answer = build_batch([Record(None, None, 1, each) for each in headers], BatchOptions())
    with side(compiled):
        rows = decode(answer)
        chosen = rows.header_lists(np.array([3, 1, 0, 3])).to_pylist()
        none = rows.header_lists(np.array([1, 1])).to_pylist()
    last = [{"key": "\N{REPLACEMENT CHARACTER}a", "value": b"2"}]
    first = {"key": "\N{REPLACEMENT CHARACTER}a", "value": b"1"}
    assert chosen == [last, [], [first, {"key": "b", "value": None}], last]
    assert none == [[], []]


@both
def test_rows_keep_the_answers_memory_only_if_they_may_own_it(compiled: bool) -> None:
    value = b"a value that is longer than a view"
    answer = bytearray(build_batch([Record(None, value, 1)], BatchOptions()))
    with side(compiled):
        copied = decode(answer)
        owned = decode(answer, own=True)
    answer[-5] ^= 0x20
    assert rows_of(copied)[0].value == value
    assert rows_of(owned)[0].value != value
    assert copied.data.readonly
    assert owned.data.readonly


@both
@pytest.mark.parametrize("codec", [one for one in Codec if one is not Codec.NONE])
def test_the_cap_is_on_what_all_batches_put_out(compiled: bool, codec: Codec) -> None:
    answer = joined([[Record(None, bytes(5_000), 1)]] * 3, BatchOptions(codec=codec))
    with side(compiled):
        size = len(decode(answer).data)
        assert len(decode(answer, bytes_max=size)) == 3
        with pytest.raises(OutputTooLargeError):
            decode(answer, bytes_max=size - 1)
        part = walk_batches(answer).part(1, 3)
        assert (
            len(decode_fetched(answer, part, from_offset=0, decompressed_bytes_max=size - 1)) == 2
        )


@both
@pytest.mark.parametrize("count", [-1, 2, 3, 1 << 30, -(1 << 31)])
@every_codec
def test_a_count_that_cannot_be_is_refused(compiled: bool, count: int, codec: Codec) -> None:
    batch = bytearray(build_batch([Record(None, b"x" * 9, 1)], BatchOptions(codec=codec)))
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with side(compiled), pytest.raises(MalformedBatchError):
        decode(batch)


@both
@pytest.mark.parametrize("delta", [-1, 2, 1 << 30])
def test_an_offset_outside_its_batch_is_refused(compiled: bool, delta: int) -> None:
    rows = [Record(None, b"x", 1), Record(None, b"y", 1)]
    answer = build_batch(rows, BatchOptions(offset_deltas=(0, delta), last_offset_delta=1))
    with side(compiled), pytest.raises(MalformedBatchError):
        decode(answer)


@both
def test_an_unknown_codec_is_refused(compiled: bool) -> None:
    batch = bytearray(build_batch([Record(None, b"x", 1)], BatchOptions()))
    batch[22] = 5
    with side(compiled), pytest.raises(MalformedBatchError):
        decode(batch)


def one_record(*numbers: int) -> bytes:
    """A batch of one record of these fields, whatever they say."""
    body = bytearray(1)
    for number in numbers:
        write_varint(body, number)
    section = bytearray()
    write_varint(section, len(body))
    batch = bytearray(build_batch([], BatchOptions(last_offset_delta=0))) + section + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = (1).to_bytes(4, "big")
    return bytes(batch)


@both
@pytest.mark.parametrize(
    "numbers",
    [
        (0, 0, -1, -1),
        (0, 0, -2, -1, 0),
        (0, 0, -1, -2, 0),
        (0, 0, 50, -1, 0),
        (0, 0, -1, 50, 0),
        (0, 0, 1 << 27, -1, 0),
        (0, 0, -1, 1 << 26, 0),
        (0, 0, -1, (1 << 31) - 1, 0),
        (0, 0, -1, -1, -1),
        (0, 0, -1, -1, 1),
        (0, 0, -1, -1, 1, -1, -1),
        (0, 0, -1, -1, 1, 0, -2),
        (0, 0, -1, -1, 1, 0, 5),
        (0, 0, -1, -1, 1 << 30),
        (0, 0, -1, -1, 0, 0),
        (0, 1 << 31, -1, -1, 0),
        (0,),
        (),
    ],
)
def test_records_that_contradict_themselves_are_refused(
    compiled: bool, numbers: tuple[int, ...]
) -> None:
    after = build_batch([Record(b"k", bytes(100), 1)], BatchOptions(base_offset=1))
    for answer in (one_record(*numbers), one_record(*numbers) + after):
        with side(compiled), pytest.raises(MalformedBatchError):
            decode(answer)


@both
def test_records_that_do_not_fill_their_batch_are_refused(compiled: bool) -> None:
    batch = bytearray(build_batch([Record(b"k", bytes(30), 1)] * 2, BatchOptions()))
    batch[57:61] = (1).to_bytes(4, "big")
    with side(compiled), pytest.raises(MalformedBatchError):
        decode(batch)


def broken_answer(answer: bytes, chance: random.Random) -> bytearray:
    """Batches of the same sizes, so that all are looked at, with changes behind their headers."""
    broken = bytearray(answer)
    for start, end in walk_batches(memoryview(answer)).table[:2].T.tolist():
        section = broken[start + HEADER_BYTES : end]
        mutate(chance, section)
        kept = section[: end - start - HEADER_BYTES]
        broken[start + HEADER_BYTES : start + HEADER_BYTES + len(kept)] = kept
    return broken


def outcome_of(answer: memoryview | bytearray) -> list[Row] | None:
    """The rows; None where one of the named errors left. Others are not caught."""
    try:
        return rows_of(decode(answer, own=True))
    except BatchError:
        return None


@settings(deadline=None, max_examples=examples(300))
@given(answer=answers(), chance=st.integers(0, 1 << 60).map(random.Random))
def test_kernel_and_twin_agree_on_broken_records(answer: bytes, chance: random.Random) -> None:
    broken = broken_answer(answer, chance)
    with side(compiled=False):
        by_twin = outcome_of(broken)
    with side(compiled=True):
        assert outcome_of(broken) == by_twin


@settings(deadline=None, max_examples=examples(200))
@given(answer=answers(), chance=st.integers(0, 1 << 60).map(random.Random))
def test_bytes_around_an_answer_change_nothing(answer: bytes, chance: random.Random) -> None:
    broken = broken_answer(answer, chance)
    outcomes = []
    with side(compiled=True):
        for around in (b"\x00", b"\x7f", b"\xff"):
            frame = memoryview(around * 16 + bytes(broken) + around * 16)
            outcomes.append(outcome_of(frame[16:-16]))
    assert outcomes[0] == outcomes[1] == outcomes[2]
