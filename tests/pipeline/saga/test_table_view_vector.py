import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from lakelog.pipeline.saga.table_view import CommitStatus, flaws, judge, judge_files
from lakelog.pipeline.saga.values import DataFile
from lakelog.streams.objects import FileKind


def file(start: int, end: int) -> DataFile:
    return DataFile(f"{start}-{end}", FileKind.PARQUET, start, end, end - start, 1, 0)


@pytest.mark.parametrize(
    ("found", "expected", "fit"),
    [
        (None, None, CommitStatus.APPEND),
        (5, 5, CommitStatus.APPEND),
        (3, 3, CommitStatus.APPEND),
        (9, 5, CommitStatus.PRESENT),
        (12, None, CommitStatus.PRESENT),
        (6, 5, CommitStatus.MISFIT),
        (4, 5, CommitStatus.MISFIT),
        (None, 5, CommitStatus.MISFIT),
        (0, None, CommitStatus.MISFIT),
    ],
)
def test_the_vector_alone_says_what_may_be_appended(
    found: int | None, expected: int | None, fit: CommitStatus
) -> None:
    assert judge(found=found, expected=expected, end=9) is fit


@given(st.lists(st.integers(1, 5), min_size=1), st.integers(0, 9))
def test_what_was_appended_once_is_present_for_ever(lengths: list[int], start: int) -> None:
    vector: int | None = None
    place = start
    ends = []
    for length in lengths:
        expected, end = vector, place + length
        assert judge(found=vector, expected=expected, end=end) is CommitStatus.APPEND
        vector = place = end
        ends.append((expected, end))
    assert {judge(found=vector, expected=one, end=end) for one, end in ends} == {
        CommitStatus.PRESENT
    }


def test_files_that_tile_the_range_have_no_flaw() -> None:
    assert flaws([file(4, 6), file(0, 4)], offset=6) == []
    assert flaws([], offset=None) == []


@pytest.mark.parametrize(
    ("files", "offset", "word"),
    [
        ([file(0, 4), file(3, 6)], 6, "overlap"),
        ([file(0, 4), file(0, 4)], 4, "overlap"),
        ([file(0, 4), file(5, 6)], 6, "no file holds"),
        ([file(0, 4)], 6, "reach"),
        ([], 6, "reach"),
        ([file(0, 4)], None, "reach"),
    ],
)
def test_files_twice_missing_or_beyond_the_vector_are_flaws(
    files: list[DataFile], offset: int | None, word: str
) -> None:
    (found,) = flaws(files, offset=offset)
    assert word in found


def test_the_files_of_a_range_decide_about_a_replacement() -> None:
    made = structs.replace(file(0, 4), key="new")
    assert judge_files(["a", "b"], inputs=["a", "b"], file=made) is CommitStatus.APPEND
    assert judge_files(["new"], inputs=["a", "b"], file=made) is CommitStatus.PRESENT
    for found in ([], ["a"], ["b", "a"], ["a", "b", "c"], ["new", "b"]):
        assert judge_files(found, inputs=["a", "b"], file=made) is CommitStatus.MISFIT
    empty = structs.replace(made, row_count=0)
    assert judge_files([], inputs=["a"], file=empty) is CommitStatus.PRESENT
    assert judge_files(["a"], inputs=["a"], file=empty) is CommitStatus.APPEND
    assert judge_files(["new"], inputs=["a"], file=empty) is CommitStatus.MISFIT
