"""What read_committed leaves out is what Kafka's own consumer leaves out."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.client.decoder import aborted_batches
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.fetched import decode_fetched
from lakelog.records.fetched_batches import walk_batches
from lakelog.records.header import MalformedBatchError

ABORT = b"\x00\x00\x00\x00"
COMMIT = b"\x00\x00\x00\x01"


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of a producer; a marker if `ends` says how its transaction ended."""

    producer: int
    ends: bytes | None = None
    transactional: bool = True


def answer_of(steps: Sequence[Step]) -> memoryview:
    """One batch of one offset a step."""
    made = []
    for offset, step in enumerate(steps):
        options = BatchOptions(
            base_offset=offset,
            producer_id=step.producer,
            producer_epoch=0,
            transactional=step.transactional,
            control=step.ends is not None,
        )
        made.append(build_batch([Record(step.ends or b"key", b"value", 1)], options))
    return memoryview(b"".join(made))


def skipped(steps: Sequence[Step], aborted: Sequence[tuple[int, int]]) -> list[int]:
    """The offsets that are left out as aborted."""
    answer = answer_of(steps)
    flags = aborted_batches(walk_batches(answer), answer, aborted)
    return [] if flags is None else flags.nonzero()[0].tolist()


def test_a_transaction_is_skipped_from_its_first_offset_to_its_marker() -> None:
    steps = [Step(7), Step(7), Step(7, ABORT), Step(7), Step(7, COMMIT)]
    assert skipped(steps, [(7, 0)]) == [0, 1]


def test_what_lies_before_the_first_offset_is_kept() -> None:
    steps = [Step(7), Step(7, COMMIT), Step(7), Step(7), Step(7, ABORT)]
    assert skipped(steps, [(7, 2)]) == [2, 3]


def test_several_aborts_of_one_producer_are_told_apart() -> None:
    steps = [Step(7), Step(7, ABORT), Step(7), Step(7, COMMIT), Step(7), Step(7, ABORT)]
    assert skipped(steps, [(7, 4), (7, 0)]) == [0, 4]


def test_producers_that_interleave_are_judged_apart() -> None:
    steps = [Step(7), Step(8), Step(7), Step(8, ABORT), Step(8), Step(7, COMMIT), Step(8, ABORT)]
    assert skipped(steps, [(8, 1), (8, 4)]) == [1, 4]


def test_an_abort_that_ends_beyond_the_answer_is_skipped_to_its_end() -> None:
    assert skipped([Step(7), Step(8), Step(7)], [(7, 0)]) == [0, 2]


def test_an_abort_that_began_before_the_answer_is_skipped_from_its_beginning() -> None:
    answer = memoryview(b"")
    for base, marker in ((50, None), (51, ABORT), (52, None)):
        options = BatchOptions(
            base_offset=base, producer_id=7, transactional=True, control=marker is not None
        )
        answer = memoryview(bytes(answer) + build_batch([Record(marker, b"", 1)], options))
    flags = aborted_batches(walk_batches(answer), answer, [(7, 12)])
    assert flags is not None
    assert flags.tolist() == [True, False, False]


def test_batches_outside_transactions_are_never_skipped() -> None:
    steps = [Step(7, transactional=False), Step(-1, transactional=False), Step(7)]
    assert skipped(steps, [(7, 0), (-1, 0)]) == [2]


def test_a_transaction_in_the_middle_of_a_batch_takes_the_batch() -> None:
    rows = [Record(b"k", b"v", 1)] * 5
    options = BatchOptions(base_offset=10, producer_id=7, transactional=True)
    answer = memoryview(build_batch(rows, options))
    batches = walk_batches(answer)
    flags = aborted_batches(batches, answer, [(7, 14)])
    assert flags is not None
    assert aborted_batches(batches, answer, [(7, 15)]) is None


@pytest.mark.parametrize("aborted", [[], [(9, 0)]])
def test_nothing_is_marked_where_nothing_was_aborted(aborted: list[tuple[int, int]]) -> None:
    answer = answer_of([Step(7), Step(7, COMMIT)])
    assert aborted_batches(walk_batches(answer), answer, aborted) is None


def test_an_answer_without_batches_has_nothing_to_mark() -> None:
    assert aborted_batches(walk_batches(memoryview(b"")), memoryview(b""), [(7, 0)]) is None


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    first = BatchOptions(producer_id=7, transactional=True)
    marker = BatchOptions(
        base_offset=1, producer_id=7, transactional=True, control=True, last_offset_delta=0
    )
    last = BatchOptions(base_offset=2, producer_id=7, transactional=True)
    row = [Record(b"k", b"v", 1)]
    parts = (build_batch(row, first), build_batch([], marker), build_batch(row, last))
    answer = memoryview(b"".join(parts))
    flags = aborted_batches(walk_batches(answer), answer, [(7, 0)])
    assert flags is not None
    assert flags.tolist() == [True, False, True]


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_a_marker_without_a_type_is_refused(key: bytes | None) -> None:
    options = BatchOptions(producer_id=7, transactional=True, control=True)
    answer = memoryview(build_batch([Record(key, b"", 1)], options))
    with pytest.raises(MalformedBatchError):
        aborted_batches(walk_batches(answer), answer, [(7, 0)])


@pytest.mark.parametrize("size", range(62, 74))
def test_a_marker_that_is_cut_off_is_refused(size: int) -> None:
    options = BatchOptions(producer_id=7, transactional=True, control=True)
    whole = bytearray(build_batch([Record(ABORT, None, 1)], options)[:size])
    whole[8:12] = (size - 12).to_bytes(4, "big")
    answer = memoryview(whole)
    batches = walk_batches(answer)
    if size < 70:
        with pytest.raises(MalformedBatchError):
            aborted_batches(batches, answer, [(7, 0)])
    else:
        assert aborted_batches(batches, answer, [(7, 0)]) is None


def kept_by_history(
    ends: Sequence[tuple[int, bool | None]],
) -> tuple[set[int], set[tuple[int, int]]]:
    """Play producers one write at a time: the offsets that were committed, and the aborts."""
    written: dict[int, list[int]] = {}
    kept: set[int] = set()
    aborts: set[tuple[int, int]] = set()
    for offset, (producer, committed) in enumerate(ends):
        if committed is None:
            written.setdefault(producer, []).append(offset)
        elif mine := written.pop(producer, []):
            if committed:
                kept.update(mine)
            else:
                aborts.add((producer, mine[0]))
    for mine in written.values():  # a transaction still open lies beyond the last stable offset
        kept.update(mine)
    return kept, aborts


@settings(deadline=None)
@given(
    ends=st.lists(st.tuples(st.integers(1, 3), st.none() | st.booleans()), max_size=25),
    rnd=st.randoms(use_true_random=False),
)
def test_any_history_leaves_exactly_what_was_not_aborted(
    ends: list[tuple[int, bool | None]], rnd: random.Random
) -> None:
    kept, aborts = kept_by_history(ends)
    marks = {None: None, True: COMMIT, False: ABORT}
    answer = answer_of([Step(producer, marks[committed]) for producer, committed in ends])
    batches = walk_batches(answer)
    told = sorted(aborts)
    rnd.shuffle(told)
    rows = decode_fetched(
        answer,
        batches,
        from_offset=0,
        skipped=aborted_batches(batches, answer, told),
        decompressed_bytes_max=0,
    )
    assert set(rows.offsets.tolist()) == kept
