import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.saga.task_values import TOPIC

from lakelog.catalog.port import DataFileView
from lakelog.index.entries import Entry, StreamColumns
from lakelog.pipeline.planning.small_files import (
    RewriteOptions,
    RewriteWindow,
    plan_rewrite,
    replacement,
)
from lakelog.pipeline.planning.wal_ranges import Problem
from lakelog.pipeline.saga.values import PlannedTask, StreamName, TaskTarget, Trigger
from lakelog.streams.objects import FileKind, FileName

OPTIONS = RewriteOptions(files_min=4, bytes_target=1024)
NAME = StreamName(7, TOPIC, "t", 3)
P, W, S = FileKind.PARQUET, FileKind.WAL, FileKind.SEGMENT


def columns_of(*entries: tuple[FileKind, int]) -> StreamColumns:
    """Entries of ten offsets each, with these kinds and sizes."""
    places = np.arange(len(entries), dtype=np.int64)
    return StreamColumns(
        starts=places * 10,
        ends=places * 10 + 10,
        kinds=np.array([int(kind) for kind, _ in entries], np.int64),
        byte_lengths=np.array([size for _, size in entries], np.int64),
        object_times_ms=np.zeros(len(entries), np.int64),
    )


def planned(*entries: tuple[FileKind, int]) -> RewriteWindow | None:
    return plan_rewrite(columns_of(*entries), options=OPTIONS)


def test_files_of_one_size_become_one_when_they_are_many() -> None:
    assert planned(*[(P, 10)] * 3) is None
    assert planned(*[(P, 10)] * 4) == RewriteWindow(0, 40, 4, 40)
    assert planned(*[(P, 10)] * 6, (W, 10)) == RewriteWindow(0, 60, 6, 60)


def test_a_window_ends_at_the_target_size() -> None:
    assert planned(*[(P, 300)] * 8) == RewriteWindow(0, 30, 3, 900)


def test_two_files_that_make_a_whole_one_are_enough() -> None:
    assert planned((P, 300), (P, 300)) == RewriteWindow(0, 20, 2, 600)
    assert planned((P, 200), (P, 200)) is None


@pytest.mark.parametrize("wall", [(S, 10), (W, 10), (P, 512), (P, 5000)])
def test_a_window_does_not_go_over_what_is_no_small_file(wall: tuple[FileKind, int]) -> None:
    assert planned((P, 10), (P, 10), wall, (P, 10), (P, 10)) is None
    assert planned((P, 10), wall, *[(P, 10)] * 4) == RewriteWindow(20, 60, 4, 40)


def test_what_could_not_be_read_is_left_alone() -> None:
    columns = columns_of(*[(P, 10)] * 8)
    found = plan_rewrite(columns, quarantine=[(25, 26)], options=OPTIONS)
    assert found == RewriteWindow(30, 80, 5, 50)
    assert plan_rewrite(columns, quarantine=[(25, 26), (55, 80)], options=OPTIONS) is None


def test_a_file_waits_until_what_joins_it_is_as_large() -> None:
    assert planned((P, 100), *[(P, 10)] * 3) is None
    assert planned((P, 100), *[(P, 10)] * 4) == RewriteWindow(10, 50, 4, 40)
    assert planned((P, 100), (P, 40), (P, 30), (P, 30)) == RewriteWindow(0, 40, 4, 200)


def test_a_window_names_no_more_files_than_a_record_holds() -> None:
    options = RewriteOptions(files_min=2, bytes_target=1024, files_max=5)
    assert plan_rewrite(columns_of(*[(P, 1)] * 9), options=options) == RewriteWindow(0, 50, 5, 5)


def test_more_files_than_a_partition_keeps_become_few_enough_at_the_least_cost() -> None:
    options = replace(OPTIONS, files_kept=3)
    kept = [(P, 400), (P, 150), (P, 60)]
    assert plan_rewrite(columns_of(*kept), options=options) is None
    assert plan_rewrite(columns_of(*kept, (P, 20)), options=options) == RewriteWindow(20, 40, 2, 80)
    apart = columns_of(*kept, (S, 1), (P, 60), (P, 20))
    assert plan_rewrite(apart, options=options) is None, "a segment is between them"
    # Four of these are more than a target file, so that it takes two steps.
    large = columns_of((P, 400), (P, 200), (P, 450), (P, 130), (P, 400))
    narrow = replace(options, files_kept=2, bytes_target=1000)
    assert plan_rewrite(large, options=narrow) == RewriteWindow(10, 40, 3, 780)


_SIZES = st.lists(
    st.one_of(st.integers(1, 30), st.integers(1, 600), st.integers(400, 2000)),
    min_size=30,
    max_size=150,
)


@settings(deadline=None)
@given(_SIZES, st.integers(2, 8))
def test_each_byte_is_rewritten_a_logarithm_of_times_and_files_stay_few(
    sizes: list[int], files_min: int
) -> None:
    options = RewriteOptions(files_min=files_min, bytes_target=1024)
    files: list[tuple[int, list[tuple[int, int]]]] = []
    """The bytes of each, and of everything in it the size that it came with and its rewrites."""
    for size in sizes:
        files.append((size, [(size, 0)]))
        while True:
            columns = columns_of(*[(P, one[0]) for one in files])
            window = plan_rewrite(columns, options=options)
            if window is None:
                break
            inputs = files[window.start // 10 : window.end // 10]
            total = sum(one[0] for one in inputs)
            assert total == window.input_bytes <= options.bytes_target
            assert total >= 2 * max(one[0] for one in inputs)
            parts = [(came, count + 1) for _, held in inputs for came, count in held]
            files[window.start // 10 : window.end // 10] = [(total, parts)]
        for came, rewrites in (part for _, held in files for part in held):
            assert rewrites <= max(0.0, math.log2(options.bytes_target / came))
    assert len(files) <= _files_max([one[0] for one in files], options)


def _files_max(sizes: list[int], options: RewriteOptions) -> int:
    """Less than `files_min` files for every doubling of size, between two that are settled."""
    settled = sum(size >= options.bytes_settled for size in sizes)
    doublings = math.ceil(math.log2(options.bytes_target))
    return settled + (settled + 1) * options.files_min * doublings


def entry(place: int, key: str, *, start: int | None = None) -> Entry:
    begin = place * 10 if start is None else start
    return Entry(begin, place * 10 + 10, FileName(P, key), 0, 100, 5, domain=0)


def file(place: int, key: str, *, first: int | None = None) -> DataFileView:
    return DataFileView(key, 3, place * 10 if first is None else first, place * 10 + 9, 5, 100)


def test_a_task_takes_the_files_that_the_table_has() -> None:
    found = replacement(
        NAME,
        [entry(1, "b"), entry(2, "empty"), entry(3, "c")],
        [file(0, "a"), file(1, "b"), file(3, "c")],
        target=TaskTarget.REWRITE,
        now_ms=9,
    )
    assert found == PlannedTask(
        stream=7,
        topic_id=TOPIC,
        topic="t",
        partition=3,
        target=TaskTarget.REWRITE,
        start=10,
        end=40,
        expected=None,
        input_bytes=300,
        entry_count=3,
        oldest_ms=9,
        planned_ms=9,
        trigger=Trigger.SMALL_FILES,
        inputs=("b", "c"),
    )


def test_rows_before_the_first_entry_are_part_of_the_task() -> None:
    entries = [entry(1, "a", start=15), entry(2, "b")]
    files = [file(1, "a", first=11), file(2, "b")]
    found = replacement(NAME, entries, files, target=TaskTarget.CLEAN, now_ms=9)
    assert isinstance(found, PlannedTask)
    assert (found.start, found.end, found.trigger) == (11, 30, Trigger.DIRTY)
    gone = replace(files[0], offset_end=15)
    again = replacement(NAME, entries, [gone, files[1]], target=TaskTarget.CLEAN, now_ms=9)
    assert isinstance(again, PlannedTask)
    assert (again.start, again.inputs) == (11, ("a", "b"))


def test_a_table_that_has_another_file_there_is_reported() -> None:
    entries = [entry(1, "a"), entry(2, "b")]
    strange = [file(1, "a"), file(2, "x")]
    found = replacement(NAME, entries, strange, target=TaskTarget.REWRITE, now_ms=9)
    assert isinstance(found, Problem)
    assert "x is in the table" in found.reason
