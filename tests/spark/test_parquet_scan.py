"""What Spark's own scan reads of a plan, and what is left."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lake.packed import entries
from tests.lake.packed import hinted as hint

from lakelog.lake.read.range_plan import PlannedRange
from lakelog.spark.parquet_scan import (
    CUTS_MAX,
    TOPICS_MAX,
    divided,
    everything,
    hadoop_place,
    joined_ranges,
)
from lakelog.streams.objects import FileKind

WAL, SEGMENT, PARQUET = FileKind


def test_data_files_go_to_spark_and_all_else_to_the_data_source() -> None:
    found = divided(
        [
            hint(
                0,
                0,
                50,
                entries([0, 10, 20, 30, 40, 50], kinds=[SEGMENT, PARQUET, PARQUET, WAL, WAL]),
            ),
            hint(1, 0, 20, entries([0, 20], kinds=[WAL])),
        ]
    )
    (scan,) = found.scans
    assert (scan.topic, scan.whole, scan.cut) == ("t", ["compaction/v1/1", "compaction/v1/2"], [])
    assert [str(one) for one in found.rest] == ["t-0 [0, 10)", "t-0 [30, 50)", "t-1 [0, 20)"]


def test_a_file_at_an_end_of_a_range_is_cut() -> None:
    files = entries([10, 20, 30, 40], kinds=[PARQUET] * 3)
    (scan,) = divided([hint(0, 10, 35, files)]).scans
    assert scan.whole == ["compaction/v1/1"]
    assert [str(one) for _, one in scan.cut] == ["t-0 [10, 20)", "t-0 [30, 35)"]
    (scan,) = divided([hint(0, 0, 40, entries([0, 20, 40], kinds=[PARQUET] * 2))]).scans
    assert scan.cut == [], "nothing can lie before the first offset"


def test_what_would_make_a_plan_large_is_left_to_the_data_source() -> None:
    cut = [hint(at, 5, 9, entries([0, 10], kinds=[PARQUET])) for at in range(CUTS_MAX + 3)]
    found = divided(cut)
    assert len(found.scans[0].cut) == CUTS_MAX
    assert len(found.rest) == 3
    topics = [
        hint(0, 0, 10, entries([0, 10], kinds=[PARQUET]), topic=f"t{at}")
        for at in range(TOPICS_MAX + 2)
    ]
    found = divided(topics)
    assert len(found.scans) == TOPICS_MAX
    assert [one.topic for one in found.rest] == [f"t{TOPICS_MAX}", f"t{TOPICS_MAX + 1}"]


@st.composite
def plans(draw: st.DrawFn) -> list[PlannedRange]:
    found = []
    for partition in range(draw(st.integers(0, 4))):
        edges = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=8)))
        kinds = [draw(st.sampled_from(FileKind)) for _ in edges[1:]]
        start = draw(st.integers(edges[0], edges[1] - 1))
        end = draw(st.integers(max(start + 1, edges[-2]), edges[-1]))
        found.append(hint(partition, start, end, entries(edges, kinds=kinds)))
    return found


@given(plans())
def test_every_offset_of_a_range_is_read_once(plan: list[PlannedRange]) -> None:
    for one in plan:
        division = divided([one])
        seen = [at for rest in division.rest for at in range(rest.start, rest.end)]
        by_key = {entry.key: entry for entry in one.entries if entry.kind is PARQUET}
        for scan in division.scans:
            for key in scan.whole:
                seen += range(by_key[key].start, by_key[key].end)
            for key, wanted in scan.cut:
                assert by_key[key].start <= wanted.start < wanted.end <= by_key[key].end
                seen += range(wanted.start, wanted.end)
        assert sorted(seen) == list(range(one.pinned.start, one.pinned.end))


@given(plans())
def test_a_plan_is_divided_range_by_range(plan: list[PlannedRange]) -> None:
    found = divided(plan)
    alone = [divided([one]) for one in plan]
    assert found.rest == tuple(rest for one in alone for rest in one.rest)
    scans = [scan for one in alone for scan in one.scans]
    assert [key for scan in found.scans for key in scan.whole] == [
        key for scan in scans for key in scan.whole
    ]
    assert [cut for scan in found.scans for cut in scan.cut] == [
        cut for scan in scans for cut in scan.cut
    ]
    assert everything(plan).rest == joined_ranges([one.pinned for one in plan])


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("file:///d/objects", "file:/d/objects/"),
        ("file:/d/o b/", "file:/d/o b/"),
        ("file:///d/a%20b", "file:/d/a b/"),
        ("file:/d/[x]{y}*?", r"file:/d/\[x\]\{y\}\*\?/"),
        ("s3://bucket/some/prefix", "s3a://bucket/some/prefix/"),
        ("s3a://bucket", "s3a://bucket/"),
        ("gs://bucket/p/", "gs://bucket/p/"),
        ("az://container/p", None),
        ("memory:", None),
    ],
)
def test_objects_have_a_place_that_hadoop_knows_or_none(url: str, place: str | None) -> None:
    assert hadoop_place(url) == place


def test_a_relative_directory_is_found_from_everywhere() -> None:
    assert hadoop_place("file:objects") == f"file:{Path.cwd()}/objects/"
