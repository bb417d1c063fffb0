"""Hostile Fetch answers: kernel and twin read the same rows, or both refuse, and nothing else."""

import random
from collections.abc import Callable

import numpy as np
from tests.fuzz.records import OUTPUT_BYTES_MAX, mend, mutate, random_batch
from tests.sides import side

from lakelog.client.decoder import aborted_batches
from lakelog.records.fetched import FetchedRows, decode_fetched
from lakelog.records.fetched_batches import check_crcs, walk_batches
from lakelog.records.header import HEADER_BYTES, BatchError


def random_answer(chance: random.Random) -> bytearray:
    """Some batches after each other, each perhaps broken and mended, the whole perhaps cut."""
    answer = bytearray()
    offset = 0
    for _ in range(chance.choice((1, 1, 2, 5))):
        batch = random_batch(chance)
        if chance.random() < 0.4:
            # Behind the header: a broken header mostly ends the walk before anything is decoded.
            section = batch[HEADER_BYTES:]
            mutate(chance, section)
            batch[HEADER_BYTES:] = section
        batch[:8] = offset.to_bytes(8, "big")
        batch[21] |= chance.choice((0, 0, 0, 0x80))
        batch[22] |= chance.choice((0, 0, 0, 0x08, 0x10, 0x30))
        mend(batch)
        answer += batch
        offset += chance.choice((1, 30, 1_000))
    if chance.random() < 0.3:
        mutate(chance, answer)
    return answer


def decode(answer: memoryview, chance: random.Random) -> tuple[FetchedRows, int] | None:
    """Everything that a consumer does with an answer; None if it is refused."""
    start = chance.choice((0, 0, 1, 31))
    own = chance.random() < 0.5
    try:
        batches = walk_batches(answer)
        bad = check_crcs(answer, batches)
        skipped = aborted_batches(batches, answer, [(7, chance.choice((0, 1, 40)))])
        rows = decode_fetched(
            answer,
            batches,
            from_offset=start,
            skipped=skipped,
            decompressed_bytes_max=OUTPUT_BYTES_MAX,
            own=own,
        )
    except BatchError:
        return None
    assert (rows.offsets >= start).all()
    assert not len(rows) or rows.offsets.max() < batches.next_offset(0)
    return rows, bad


def fuzz_fetched(chance: random.Random) -> None:
    """Kernel and twin give the same columns of the same answer, or both refuse it."""
    answer = memoryview(bytes(random_answer(chance)))
    seed = chance.random()
    with side(compiled=True):
        by_kernel = decode(answer, random.Random(seed))
    with side(compiled=False):
        by_twin = decode(answer, random.Random(seed))
    if by_kernel is None or by_twin is None:
        assert by_kernel is by_twin
        return
    assert by_kernel[1] == by_twin[1]
    for name in FetchedRows.__slots__:
        mine, other = getattr(by_kernel[0], name), getattr(by_twin[0], name)
        assert (mine is None) == (other is None), name
        assert mine is None or np.array_equal(mine, other), name


TARGETS: dict[str, Callable[[random.Random], None]] = {"records.fetched": fuzz_fetched}
