"""The batches of an answer are found whole, by kernel and twin alike, or refused."""

import random
from struct import pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.records import mutate
from tests.profiles import examples
from tests.records.fetched_cases import answers, joined
from tests.sides import both, side

from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.fetched_batches import check_crcs, walk_batches
from lakelog.records.header import MalformedBatchError, parse_header, split_batches

ROW = Record(b"key", b"value", 1_000)


@both
@settings(deadline=None)
@given(answer=answers())
def test_every_header_becomes_one_column_of_the_table(compiled: bool, answer: bytes) -> None:
    view = memoryview(answer)
    with side(compiled):
        batches = walk_batches(view)
    found = split_batches(view)
    headers = [parse_header(batch) for batch in found]
    assert len(batches) == len(headers)
    assert [bytes(view[a:b]) for a, b in batches.table[:2].T.tolist()] == [*map(bytes, found)]
    assert batches.base_offsets.tolist() == [one.base_offset for one in headers]
    ends = [one.base_offset + one.last_offset_delta + 1 for one in headers]
    assert batches.next_offsets.tolist() == ends
    assert batches.record_counts.tolist() == [one.record_count for one in headers]
    assert batches.attributes.tolist() == [one.attributes for one in headers]
    assert batches.base_timestamps_ms.tolist() == [one.base_timestamp_ms for one in headers]
    assert batches.max_timestamps_ms.tolist() == [one.max_timestamp_ms for one in headers]
    assert batches.producer_ids.tolist() == [one.producer_id for one in headers]
    assert batches.crcs.tolist() == [one.crc for one in headers]
    assert batches.codecs.tolist() == [one.codec for one in headers]
    assert batches.are_control.tolist() == [one.control for one in headers]
    assert batches.are_transactional.tolist() == [one.transactional for one in headers]
    assert batches.next_offset(-7) == (ends[-1] if ends else -7)
    assert check_crcs(view, batches) == -1


@both
def test_an_answer_cut_at_any_byte_gives_the_batches_that_are_whole(compiled: bool) -> None:
    answer = joined([[ROW], [ROW, ROW]], BatchOptions(base_offset=5))
    first = len(split_batches(answer)[0])
    with side(compiled):
        for end in range(len(answer) + 1):
            batches = walk_batches(answer[:end])
            whole = (end >= first) + (end == len(answer))
            assert len(batches) == whole
            assert batches.is_cut == (0 < end < first)
            assert batches.next_offset(5) == 5 + (0, 1, 3)[whole]


@both
@pytest.mark.parametrize("count", [255, 256, 257, 2_047, 2_048, 3_000])
def test_any_number_of_batches_is_found(compiled: bool, count: int) -> None:
    answer = joined([[ROW]] * count, BatchOptions())
    with side(compiled):
        batches = walk_batches(answer)
    assert batches.base_offsets.tolist() == list(range(count))
    assert int(batches.ends[-1]) == len(answer)
    assert batches.crcs.flags.c_contiguous


def damaged(place: int, layout: str, value: int) -> memoryview:
    """Two good batches and one with another number in its header."""
    answer = bytearray(joined([[ROW], [ROW], [ROW]], BatchOptions(base_offset=3)))
    pack_into(layout, answer, 2 * len(answer) // 3 + place, value)
    return memoryview(answer)


@both
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(damaged(16, "b", 0), id="magic 0"),
        pytest.param(damaged(16, "b", 1), id="magic 1"),
        pytest.param(damaged(16, "b", 3), id="magic 3"),
        pytest.param(damaged(16, "b", -1), id="magic -1"),
        pytest.param(damaged(8, ">i", 13), id="shorter than any batch"),
        pytest.param(damaged(8, ">i", 48), id="shorter than its header"),
        pytest.param(damaged(8, ">i", -1), id="negative length"),
        pytest.param(damaged(0, ">q", 4), id="offsets fall"),
        pytest.param(damaged(0, ">q", -1), id="negative offset"),
        pytest.param(damaged(0, ">q", (1 << 63) - 1), id="offsets pass their type"),
        pytest.param(damaged(23, ">i", -1), id="negative last delta"),
        pytest.param(damaged(23, ">i", -(1 << 31)), id="least last delta"),
    ],
)
def test_what_can_be_no_log_is_refused(compiled: bool, answer: memoryview) -> None:
    with side(compiled), pytest.raises(MalformedBatchError):
        walk_batches(answer)


@both
def test_the_greatest_offset_is_read(compiled: bool) -> None:
    greatest = (1 << 63) - 2
    answer = memoryview(build_batch([ROW], BatchOptions(base_offset=greatest)))
    with side(compiled):
        assert walk_batches(answer).next_offset(0) == greatest + 1


@both
def test_an_old_batch_that_is_cut_off_is_not_judged(compiled: bool) -> None:
    answer = damaged(16, "b", 1)
    with side(compiled):
        assert len(walk_batches(answer[:-1])) == 2


def test_the_first_batch_whose_bytes_changed_is_named() -> None:
    answer = bytearray(joined([[ROW]] * 4, BatchOptions()))
    batches = walk_batches(memoryview(answer))
    size = len(answer) // 4
    answer[3 * size - 1] ^= 1
    assert check_crcs(memoryview(answer), batches) == 2
    answer[size + 21] ^= 1
    assert check_crcs(memoryview(answer), batches) == 1
    answer[16] ^= 1  # before the region of the CRC
    assert check_crcs(memoryview(answer), batches.part(0, 1)) == -1
    assert check_crcs(memoryview(answer), batches.part(1, 4)) == 0


def test_a_part_is_the_batches_of_a_range() -> None:
    batches = walk_batches(joined([[ROW]] * 5, BatchOptions(base_offset=10)))
    part = batches.part(1, 3)
    assert len(part) == 2
    assert part.next_offset(0) == 13
    assert part.starts.tolist() == batches.starts[1:3].tolist()
    assert not batches.part(2, 2).is_cut


@settings(deadline=None, max_examples=examples(300))
@given(answer=answers(), chance=st.integers(0, 1 << 60).map(random.Random))
def test_kernel_and_twin_agree_on_broken_answers(answer: bytes, chance: random.Random) -> None:
    broken = bytearray(answer or build_batch([ROW], BatchOptions(codec=Codec.LZ4)))
    mutate(chance, broken)
    outcomes: list[tuple[list[list[int]], bool] | None] = []
    for compiled in (False, True):
        with side(compiled):
            try:
                batches = walk_batches(memoryview(broken))
            except MalformedBatchError:
                outcomes.append(None)
            else:
                outcomes.append((batches.table.tolist(), batches.is_cut))
    assert outcomes[0] == outcomes[1]
