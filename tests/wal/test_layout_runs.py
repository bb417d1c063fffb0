"""A run gives back its batches, and shows every flipped bit that could matter."""

import pytest

from lakelog.model.failures import Corrupt
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.wal.layout import split_run, verify_run

BATCHES = [
    build_batch([Record(b"key", b"value" * count, 5)] * count, BatchOptions())
    for count in (1, 3, 2)
]
RUN = b"".join(len(batch).to_bytes(4, "big") + batch for batch in BATCHES)
ENDS = [0]
for _batch in BATCHES:
    ENDS.append(ENDS[-1] + 4 + len(_batch))


def test_a_run_is_split_without_copying() -> None:
    view = memoryview(RUN)
    assert split_run(view) == BATCHES
    assert verify_run(view) == BATCHES
    assert all(batch.obj is RUN for batch in verify_run(view))
    assert split_run(memoryview(b"")) == []


def test_any_neighbours_are_a_run() -> None:
    assert verify_run(memoryview(RUN)[ENDS[1] :]) == BATCHES[1:]
    assert verify_run(memoryview(RUN)[ENDS[1] : ENDS[2]]) == BATCHES[1:2]


def test_every_flipped_bit_is_seen_but_those_that_are_written_anew() -> None:
    epochs = {start + 4 + 12 + byte for start in ENDS[:-1] for byte in range(4)}
    for place in range(len(RUN)):
        for bit in range(8):
            flipped = bytearray(RUN)
            flipped[place] ^= 1 << bit
            if place in epochs:
                assert len(verify_run(memoryview(flipped))) == 3
            else:
                with pytest.raises(Corrupt):
                    verify_run(memoryview(flipped))


def test_every_cut_within_a_batch_is_seen() -> None:
    for end in range(len(RUN)):
        for cut in (RUN[:end], RUN[end:]):
            if end in ENDS:
                assert verify_run(memoryview(cut)) in (
                    BATCHES[: ENDS.index(end)],
                    BATCHES[ENDS.index(end) :],
                )
            else:
                with pytest.raises(Corrupt):
                    verify_run(memoryview(cut))


@pytest.mark.parametrize("size", [0, 60, (1 << 32) - 1])
def test_a_length_that_lies_is_seen(size: int) -> None:
    run = size.to_bytes(4, "big") + RUN[4:]
    with pytest.raises(Corrupt, match="lengths"):
        split_run(memoryview(run))
