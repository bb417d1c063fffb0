"""Hostile arguments for every kernel: arrays of any size with any numbers in them.

A kernel may refuse them (`TypeError`, `ValueError`), and nothing else; under an address sanitizer
(`tests.fuzz.sanitized`) also nothing outside the arrays may be read or written. What it does not
refuse is what its twin gives, where the twin knows such arguments.
"""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.fuzz.records import mutate, random_batch
from tests.sides import native

from lakelog.domain.commit_event import Commit, check_commit
from lakelog.domain.events import encode_event
from lakelog.lake.write.record_batches import hash_in_python
from lakelog.log.buffer import commit_in_python
from lakelog.model.ids import WalId
from lakelog.records.batch_rows import COLUMNS
from lakelog.records.build import NUMBERS, RecordBlock, write_in_python
from lakelog.records.columns import PLACES, fill_headers_in_python, fill_views_in_numpy
from lakelog.records.fetched_batches import TABLE_ROWS
from lakelog.records.header import HEADER_BYTES, BatchError
from lakelog.records.kernels import DONE, crc32c
from lakelog.records.ordering import (
    KEY_VIEWS,
    OFFSETS,
    VALUE_NULLS,
    Merged,
    Source,
    Sources,
    choose_in_numpy,
    joined,
    sort_joined,
)

if TYPE_CHECKING:
    from lakelog.records.kernels import Ints, Longs

REFUSALS = (TypeError, ValueError)
EDGES_32 = (-(1 << 31), -2, -1, 0, 1, (1 << 31) - 1)
EDGES_64 = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 1 << 31, 1 << 32, (1 << 63) - 1)


def longs(chance: random.Random, shape: tuple[int, ...], size: int) -> "Longs":
    """Numbers that are mostly places in so many bytes."""
    found: Longs = _numbers(chance, shape, size, EDGES_64).astype(np.int64)
    return found


def ints(chance: random.Random, shape: tuple[int, ...], size: int) -> "Ints":
    """The same in 32 bits."""
    found: Ints = _numbers(chance, shape, size, EDGES_32).astype(np.int32)
    return found


def _numbers(chance: random.Random, shape: tuple[int, ...], size: int, edges: Sequence[int]) -> Any:
    wrong = chance.choice((0.0, 0.0, 0.01, 0.3))
    found = [
        chance.choice(edges) if chance.random() < wrong else chance.randint(-1, size)
        for _ in range(int(np.prod(shape)))
    ]
    return np.array(found, object).reshape(shape)


def about(chance: random.Random, count: int) -> int:
    """Mostly this count, now and then another one."""
    return count if chance.random() < 0.95 else chance.choice((0, 1, count + 1, max(count - 1, 0)))


def sort_places(chance: random.Random, starts: Any, ends: Any) -> None:
    """Mostly let every end follow its start, as it has to."""
    if chance.random() < 0.8:
        starts[:], ends[:] = np.minimum(starts, ends), np.maximum(starts, ends)
        ends[starts < 0] = -1


def fuzz_places(chance: random.Random) -> None:
    """Views and hashes of places."""
    data = chance.randbytes(chance.choice((0, 1, 11, 12, 13, 40)))
    count = chance.choice((0, 1, 5))
    starts, ends = (ints(chance, (about(chance, count),), len(data)) for _ in range(2))
    if len(starts) == len(ends):
        sort_places(chance, starts, ends)
    views = np.zeros((about(chance, count), 4), np.int32)
    try:
        native().fill_views(data, starts, ends, views)
    except REFUSALS:
        pass
    else:
        twin = np.zeros_like(views)
        ends[starts < 0] = starts[starts < 0]  # null is null, whatever its end
        fill_views_in_numpy(np.frombuffer(data, np.uint8), starts, ends, twin)
        assert views.tolist() == twin.tolist()
    hashes, twins = (np.zeros(about(chance, count), np.uint32) for _ in range(2))
    places = starts.astype(np.int64), ends.astype(np.int64)
    try:
        native().hash_places(data, *places, hashes)
    except REFUSALS:
        return
    if len(twins) == len(hashes):
        hash_in_python(np.frombuffer(data, np.uint8), *places, twins)
        assert hashes.tolist() == twins.tolist()


def fuzz_write(chance: random.Random) -> None:
    """Records from columns of anything, into too little room as well."""
    blobs = tuple(
        np.frombuffer(chance.randbytes(chance.choice((0, 9, 300))), np.uint8) for _ in "1234"
    )
    count, header_count = chance.choice((0, 1, 3)), chance.choice((0, 0, 2, 6))
    numbers = longs(chance, (NUMBERS, count), 9)
    headers = longs(chance, (4, header_count), 9)
    for low, array in ((2, numbers), (4, numbers), (0, headers), (2, headers)):
        sort_places(chance, array[low], array[low + 1])
    numbers[6:8] = np.sort(ints(chance, (2, count), header_count), axis=0)
    numbers[6:8] = np.where(
        chance.random() < 0.8, np.clip(numbers[6:8], 0, header_count), numbers[6:8]
    )
    output = np.zeros(chance.choice((0, 10, 60, 10_000)), np.uint8)
    try:
        written = native().write_records(numbers, blobs, headers, output)  # type: ignore[arg-type]  # hostile
    except REFUSALS:
        return
    block = RecordBlock(numbers, blobs, headers)  # type: ignore[arg-type]  # as above
    assert output[:written].tobytes() == bytes(write_in_python(block))


def fuzz_headers(chance: random.Random) -> None:
    """The headers of places that may be none, in records that may be broken."""
    batch = random_batch(chance)
    mutate(chance, batch)
    data = memoryview(bytes(batch))[HEADER_BYTES:]
    count = chance.choice((0, 1, 4))
    places = ints(chance, (PLACES, count), len(data))
    places[6] = np.clip(places[6], -1, 3)
    room = int(np.maximum(places[6], 0).sum())
    found, twin = (np.zeros((4, room), np.int32) for _ in range(2))
    try:
        verdict = native().fill_headers(data, places, found[:, : about(chance, room)].copy())
        verdict = native().fill_headers(data, places, found)
    except REFUSALS:
        return
    if verdict != DONE:
        return
    try:
        fill_headers_in_python(data, places, twin)
    except BatchError as error:
        raise AssertionError("the kernel took what its twin refuses") from error
    assert found.tolist() == twin.tolist()


def fuzz_rows(chance: random.Random) -> None:
    """Columns from a table that may name any places, with too little room as well."""
    batch = bytearray().join(random_batch(chance) for _ in range(chance.choice((1, 1, 2))))
    mutate(chance, batch)
    data = bytes(batch)
    table = longs(chance, (TABLE_ROWS, chance.choice((0, 1, 3))), len(data))
    if chance.random() < 0.7:
        real = np.zeros((TABLE_ROWS, 9), np.int64)
        _, found, _ = native().walk_batches(data, real)
        table = real[:, :found].copy()
        table[0] += HEADER_BYTES
        if found and chance.random() < 0.5:
            row, column = chance.randrange(TABLE_ROWS), chance.randrange(found)
            table[row, column] = longs(chance, (1,), len(data))[0]
    rows = about(chance, chance.choice((0, 1, 5, 60)))
    columns = (
        np.zeros((2, rows), np.int64),
        np.zeros((2, rows, 4), np.int32),
        np.zeros(about(chance, rows), np.bool_),
        np.zeros(rows, np.bool_),
        np.zeros((2, about(chance, rows)), np.int32),
    )
    try:
        native().fill_rows(data, table, chance.choice((0, 1, -(1 << 63))), columns)
    except REFUSALS:
        return


def fuzz_walk_run(chance: random.Random) -> None:
    """Batches behind lengths that may be any, into tables that may be too small."""
    data = bytearray()
    for _ in range(chance.choice((0, 1, 3))):
        batch = random_batch(chance)
        batch[:8] = bytes(8)
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        data += len(batch).to_bytes(4, "big") + batch
    if chance.random() < 0.7:
        mutate(chance, data)
    table = np.zeros((about(chance, TABLE_ROWS), chance.choice((0, 1, 9))), np.int64)
    try:
        count, position = native().walk_run(bytes(data), longs(chance, (1,), 1 << 40).item(), table)
    except REFUSALS:
        return
    sizes = table[1, :count] - table[0, :count]
    assert position == int(sizes.sum()) + 4 * count <= len(data)


def random_source(chance: random.Random, index: int) -> Source:
    """A source that may say that it is sorted when it is not, and name rows that it has not."""
    count, rows = chance.choice((0, 1, 5, 30)), 30
    times = longs(chance, (count,), 20)
    if chance.random() < 0.9:
        times.sort()
    has_order = chance.random() < 0.5
    rows = rows if has_order else about(chance, count)
    views = ints(chance, (rows, 4), 20)
    return Source(
        index=index,
        timestamps_ms=times,
        order=ints(chance, (count,), rows - 1) if has_order else None,
        offsets=longs(chance, (rows,), 9),
        key_views=views,
        value_views=views,
        key_nulls=views[:, 1] > 3 if chance.random() < 0.5 else None,
        value_nulls=views[: about(chance, rows), 2] > 3 if chance.random() < 0.5 else None,
    )


def is_sorted(sources: Sources) -> bool:
    return all((np.diff(source.timestamps_ms.astype(object)) >= 0).all() for source in sources.each)


def fuzz_ordering(chance: random.Random) -> None:
    """Rows chosen, merged and gathered from sources that may be no such thing."""
    each = [random_source(chance, index) for index in range(chance.choice((0, 1, 3)))]
    try:
        sources = Sources(each, tuple([source.native() for source in each]))
    except REFUSALS:
        return
    spans = longs(chance, (2, about(chance, len(each))), 5)
    if chance.random() < 0.8:
        spans = np.array([[0] * len(each), [len(source) for source in each]], np.int64)
    twin = spans.copy()
    rows_max = chance.choice((-1, 0, 1, 7, 1 << 40))
    limit = (chance.choice((*EDGES_64, 9)), chance.randint(-1, 4))
    try:
        count = native().choose_rows(sources.natives, spans, limit, rows_max)
        if is_sorted(sources):
            assert choose_in_numpy(sources, twin, limit, rows_max) == count
            assert spans.tolist() == twin.tolist()
        count = about(chance, count)
        merged = Merged(
            np.zeros(count, np.int32), np.zeros(count, np.int32), np.zeros(count, np.int64)
        )
        done = native().merge_rows(sources.natives, spans, *merged)
    except REFUSALS:
        return
    if done and count and is_sorted(sources):
        wanted = sort_joined(joined(sources, spans))
        assert merged.numbers.tolist() == wanted.numbers.tolist()
        assert merged.rows.tolist() == wanted.rows.tolist()
        assert merged.timestamps_ms.tolist() == wanted.timestamps_ms.tolist()
    if chance.random() < 0.2:
        merged = Merged(ints(chance, (count,), len(each)), ints(chance, (count,), 30), merged[2])
    for field, kind in (
        (OFFSETS, np.int64),
        (KEY_VIEWS, np.dtype("(4,)i4")),
        (VALUE_NULLS, np.bool_),
    ):
        output = np.zeros(about(chance, count), kind)
        try:
            native().gather_rows(sources.natives, field, merged.numbers, merged.rows, output)
        except REFUSALS:
            continue


COMMIT_KINDS = ("<i8", "<u4", "<u4", "<u4", "<i8", "<i8", "<i2", "<i4")
ENTRY_KINDS = (np.int32, np.int64, np.int64, np.int32, np.int64, np.int64, np.int64, np.int64)


def fuzz_commit(chance: random.Random) -> None:
    """Columns of anything, checked as the twin checks them, and packed from any rows."""
    count = chance.choice((0, 1, 3, 9))
    columns = [longs(chance, (about(chance, count),), 3).astype(kind) for kind in COMMIT_KINDS]
    if chance.random() < 0.8:
        columns[0].sort()
        ends = np.cumsum(columns[2].astype(np.int64)) + chance.choice((0, 0, 0, 1))
        if len(ends) == len(columns[1]):
            columns[1] = (ends - columns[2]).astype("<u4")
    size_bytes = chance.choice((0, 9, 40, 1 << 40))
    try:
        sound = native().is_sound_commit(tuple(columns), size_bytes)
    except REFUSALS:
        sound = None
    if sound is not None:
        hostile: Any = Commit
        event = hostile(WalId(bytes(16)), "", size_bytes, *columns)
        assert sound == is_whole_in_numpy(event)
    rows = longs(chance, (about(chance, count), COLUMNS), 9)
    order = np.arange(count) if chance.random() < 0.8 else longs(chance, (count,), count)
    starts = longs(chance, (about(chance, count),), 99)
    try:
        packed = native().pack_commit(rows, order, starts)
    except REFUSALS:
        return
    event = commit_in_python(rows[order], starts, WalId(bytes(16)), "", 0)
    assert encode_event(event)[1].endswith(packed)


def is_whole_in_numpy(event: Commit) -> bool:
    try:
        check_commit(event)
    except ValueError:
        return False
    return True


def fuzz_judge(chance: random.Random) -> None:
    """A Commit and tables of anything: whatever is declined or refused changes nothing."""
    batches, rows, writers = (chance.choice((0, 1, 3, 9)) for _ in range(3))
    commit = tuple(
        longs(chance, (about(chance, batches),), 3).astype(kind) for kind in COMMIT_KINDS
    )
    known = (np.arange(rows, dtype=np.int64), longs(chance, (about(chance, rows),), rows - 1))
    streams = tuple(longs(chance, (about(chance, rows),), writers) for _ in range(5))
    kinds = (np.int64, np.int16, np.int64, np.int8, np.int64)
    producers = (
        *(longs(chance, (about(chance, writers),), 4).astype(kind) for kind in kinds),
        *(np.zeros((about(chance, writers), 5), np.int64) for _ in range(4)),
    )
    entries = tuple(np.zeros(about(chance, batches), kind) for kind in ENTRY_KINDS)
    offsets = np.zeros(about(chance, batches), np.int64)
    changed = (*streams, *producers, *entries, offsets)
    before = [column.copy() for column in changed]
    numbers = (5, 6, 7, chance.choice((0, 0, 0, 1, -1, 1 << 62)))
    try:
        made = native().judge_in_order(commit, known, streams, producers, entries, numbers, offsets)
    except REFUSALS:
        made = -1
    if made < 0:
        assert all(map(np.array_equal, changed, before))
    else:
        assert made == len(np.unique(commit[0]))


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "kernels.places": fuzz_places,
    "kernels.write": fuzz_write,
    "kernels.headers": fuzz_headers,
    "kernels.rows": fuzz_rows,
    "kernels.run": fuzz_walk_run,
    "kernels.ordering": fuzz_ordering,
    "kernels.commit": fuzz_commit,
    "kernels.judge": fuzz_judge,
}
