from dataclasses import replace
from itertools import pairwise

import numpy as np
from tests.pipeline.saga.task_values import TOPIC, wal_entry

from lakelog.index.entries import Entry
from lakelog.index.ports import StreamView
from lakelog.pipeline.files.file_task import pack_offsets, unpack_offsets
from lakelog.pipeline.maintenance.log_compaction import (
    PASSES_MAX,
    CleaningPlan,
    CleaningRules,
    RetainedRows,
    after_pass,
    groups_of,
    plan_pass,
    tombstones_due,
)
from lakelog.pipeline.saga.task_record import Cleaned
from lakelog.pipeline.saga.values import StreamName
from lakelog.streams.objects import FileKind, FileName

NAME = StreamName(7, TOPIC, "t", 3)
RULES = CleaningRules(delete_retention_ms=1600)
NOW_MS = 1_000_000


def file(place: int, *, size: int = 100, stamp_ms: int = 5) -> Entry:
    """The entry of ten offsets at this place."""
    name = FileName(FileKind.PARQUET, f"f{place}")
    return Entry(place * 10, place * 10 + 10, name, 0, size, stamp_ms, domain=0)


def segment(place: int) -> Entry:
    return replace(file(place), name=FileName(FileKind.SEGMENT, f"s{place}"))


def planned(
    *entries: Entry,
    cleaned: Cleaned | None = None,
    rules: CleaningRules = RULES,
    quarantine: tuple[tuple[int, int], ...] = (),
) -> CleaningPlan | None:
    view = StreamView(7, entries[0].start, entries[0].start, entries)
    return plan_pass(
        NAME, view, cleaned or Cleaned(), rules=rules, quarantine=quarantine, now_ms=NOW_MS
    )


def end_of(plan: CleaningPlan | None) -> int | None:
    return None if plan is None else plan.end


def test_a_stream_is_due_when_more_than_its_ratio_is_dirty() -> None:
    clean = Cleaned(end=20)
    assert planned(file(0), file(1), file(2), file(3), cleaned=clean) is None
    found = planned(file(0), file(1), file(2), file(3, size=101), cleaned=clean)
    assert found is not None
    assert (found.end, [one.key for one in found.pieces]) == (40, ["f0", "f1", "f2", "f3"])
    low = replace(RULES, dirty_ratio_min=0.0)
    assert end_of(planned(file(0), file(1), file(2), cleaned=clean, rules=low)) == 30
    assert planned(file(0), file(1), cleaned=clean, rules=low) is None


def test_what_is_not_a_data_file_yet_waits() -> None:
    assert end_of(planned(file(0), file(1), wal_entry(20, 30))) == 20
    assert planned(wal_entry(0, 10)) is None
    assert planned(segment(0)) is None


def test_what_is_younger_than_the_lag_is_not_looked_at_nor_what_follows_it() -> None:
    lag = replace(RULES, min_compaction_lag_ms=100)
    young = file(1, stamp_ms=NOW_MS - 99)
    assert end_of(planned(file(0), young, file(2), rules=lag)) == 10
    assert end_of(planned(file(0), file(1, stamp_ms=NOW_MS - 100), file(2), rules=lag)) == 30
    assert planned(young, file(2), rules=lag) is None
    assert end_of(planned(file(0), young, file(2))) == 30


def test_what_is_older_than_the_greatest_lag_is_due_whatever_the_ratio() -> None:
    lag = replace(RULES, max_compaction_lag_ms=1000)
    clean = Cleaned(end=30)
    entries = (file(0), file(1), file(2))
    old, new = NOW_MS - 1001, NOW_MS - 1000
    assert end_of(planned(*entries, file(3, stamp_ms=old), cleaned=clean, rules=lag)) == 40
    assert planned(*entries, file(3, stamp_ms=new), cleaned=clean, rules=lag) is None
    assert planned(*entries, file(3, stamp_ms=-1), cleaned=clean, rules=lag) is None


def test_a_file_that_cannot_be_read_ends_the_range_before_it() -> None:
    entries = (file(0), file(1), file(2))
    assert end_of(planned(*entries, quarantine=((12, 13),))) == 10
    assert planned(*entries, quarantine=((0, 1),)) is None
    assert planned(*entries, cleaned=Cleaned(end=20), quarantine=((12, 13),)) is None
    kept_as_segment = (file(0), segment(1), file(2))
    assert end_of(planned(*kept_as_segment, quarantine=((12, 13),))) == 30


def test_tombstones_go_after_their_retention_from_the_first_pass_on() -> None:
    cleaned = Cleaned(30, 0, ((10, NOW_MS - 1600), (20, NOW_MS - 1599), (30, NOW_MS)))
    assert tombstones_due(cleaned, rules=RULES, now_ms=NOW_MS) == 10
    assert tombstones_due(cleaned, rules=RULES, now_ms=NOW_MS + 1) == 20
    assert tombstones_due(Cleaned(30, 15), rules=RULES, now_ms=NOW_MS) == 15
    entries = (file(0), file(1), file(2), file(3, size=500))
    found = planned(*entries, cleaned=cleaned)
    assert found is not None
    assert (found.tombstones_gone, found.tombstones_end) == (0, 10)


def test_no_tombstone_behind_a_segment_goes() -> None:
    cleaned = Cleaned(40, 5, ((40, 0),))
    entries = (file(0), segment(1), file(2), file(3), file(4, size=900))
    found = planned(*entries, cleaned=cleaned)
    assert found is not None
    assert (found.tombstones_gone, found.tombstones_end) == (5, 10)


def test_a_quiet_stream_is_passed_once_more_for_its_last_tombstones() -> None:
    entries = (file(0), file(1))
    waiting = Cleaned(20, 0, ((20, NOW_MS - 1599),))
    assert planned(*entries, cleaned=waiting) is None
    due = Cleaned(20, 0, ((20, NOW_MS - 1600),))
    found = planned(*entries, cleaned=due)
    assert found is not None
    assert found.tombstones_end == 20
    done = after_pass(due, found, rules=RULES, now_ms=NOW_MS)
    assert done == Cleaned(20, 20, ())
    assert planned(*entries, cleaned=done) is None
    held_up = planned(segment(0), file(1), cleaned=due)
    assert held_up is None


def test_passes_near_each_other_count_as_one_and_are_never_too_many() -> None:
    cleaned = Cleaned()
    now_ms = NOW_MS - NOW_MS % 100
    for number in range(1, 400):
        found = planned(*[file(at) for at in range(number)], cleaned=Cleaned(tombstones_end=0))
        assert found is not None
        cleaned = after_pass(cleaned, found, rules=RULES, now_ms=now_ms)
        assert cleaned.end == number * 10
        assert len(cleaned.passes) <= PASSES_MAX
        now_ms += 10
    ends_ms = [at_ms for _, at_ms in cleaned.passes]
    assert ends_ms == sorted(ends_ms)
    assert min(after - before for before, after in pairwise(ends_ms)) >= 90


def retained(place: int, *, rows: int = 10, kept: int) -> RetainedRows:
    offsets = np.arange(place * 10, place * 10 + kept)
    return RetainedRows(f"f{place}", rows, kept, pack_offsets(offsets))


def groups(found: list[RetainedRows], *entries: Entry, bytes_target: int) -> list[list[int]]:
    plan = CleaningPlan(NAME, entries, entries[-1].end, 0, 0)
    by_key = {one.key: one for one in found}
    made = groups_of(plan, by_key, bytes_target=bytes_target)
    return [[entry.start // 10 for entry in one.entries] for one in made]


def test_only_files_that_lose_rows_are_written_again() -> None:
    found = [retained(at, kept=10 if at == 1 else 5) for at in range(4)]
    entries = [file(at) for at in range(4)]
    assert groups(found, *entries, bytes_target=1000) == [[0], [2, 3]]
    assert groups(found, *entries, bytes_target=99) == [[0], [2], [3]]
    whole = [retained(at, kept=10) for at in range(4)]
    assert groups(whole, *entries, bytes_target=1000) == []


def test_files_without_rows_go_along_and_are_no_reason() -> None:
    empty = retained(0, rows=0, kept=0)
    entries = [file(at) for at in range(3)]
    found = [empty, retained(1, kept=0), retained(2, rows=0, kept=0)]
    assert groups(found, *entries, bytes_target=1) == [[0, 1, 2]]
    assert groups([empty], file(0), bytes_target=1) == []


def test_a_group_does_not_go_over_a_segment() -> None:
    found = [retained(0, kept=1), retained(2, kept=1)]
    assert groups(found, file(0), segment(1), file(2), bytes_target=1000) == [[0], [2]]


def test_a_group_says_which_rows_stay_and_whether_it_is_still_there() -> None:
    plan = CleaningPlan(NAME, (file(0), file(1)), 20, 0, 0)
    found = {one.key: one for one in (retained(0, kept=2), retained(1, kept=1))}
    (group,) = groups_of(plan, found, bytes_target=1000)
    assert unpack_offsets(group.kept_offsets).tolist() == [0, 1, 10]
    assert group.is_in(StreamView(7, 0, 0, (file(0), file(1), file(2))))
    assert not group.is_in(StreamView(7, 10, 10, (file(1), file(2))))
    other = replace(file(1), name=FileName(FileKind.PARQUET, "other"))
    assert not group.is_in(StreamView(7, 0, 0, (file(0), other)))
