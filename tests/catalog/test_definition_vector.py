"""The vector's text and its judgement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.kit import advance

from lakelog.catalog.definition import (
    AdvanceStatus,
    JudgedAdvance,
    advanced,
    format_vector,
    judge,
    judge_all,
    parse_vector,
)
from lakelog.catalog.port import Advance, Misfit
from lakelog.model.failures import Corrupt

VECTORS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=20)


@given(VECTORS)
def test_a_vector_survives_its_text(vector: dict[int, int]) -> None:
    assert parse_vector(format_vector(vector)) == vector


def test_equal_vectors_have_equal_text() -> None:
    assert format_vector({10: 1, 2: 3}) == format_vector({2: 3, 10: 1}) == '{"2":3,"10":1}'


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "7", '"x"', '{"a":1}', '{"0":"1"}', '{"0":-1}', '{"-1":1}'),
        *('{"0":1.0}', '{"0":true}', '{"0":null}', '{"0":', "[" * 100_000),
    ],
)
def test_text_that_is_no_vector_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        parse_vector(text)


@given(st.text())
def test_any_text_is_a_vector_or_corrupt(text: str) -> None:
    try:
        vector = parse_vector(text)
    except Corrupt:
        return
    assert parse_vector(format_vector(vector)) == vector


@pytest.mark.parametrize(
    ("reached", "start", "end", "expected"),
    [
        (None, 0, 5, AdvanceStatus.FRESH),
        (0, 0, 5, AdvanceStatus.FRESH),
        (5, 5, 9, AdvanceStatus.FRESH),
        (5, 0, 5, AdvanceStatus.PRESENT),
        (9, 0, 5, AdvanceStatus.PRESENT),
        (9, 5, 9, AdvanceStatus.PRESENT),
        (3, 0, 5, None),
        (3, 4, 5, None),
        (None, 4, 5, None),
    ],
)
def test_only_what_follows_the_vector_is_fresh(
    reached: int | None, start: int, end: int, expected: AdvanceStatus | None
) -> None:
    vector = {} if reached is None else {1: reached}
    judged = judge(vector, advance(1, start, end))
    assert judged == expected if expected else isinstance(judged, Misfit)


@pytest.mark.parametrize("reached", [None, 3])
def test_a_gap_is_admitted_only_where_the_log_begins(reached: int | None) -> None:
    vector = {} if reached is None else {0: reached}
    assert judge(vector, Advance(0, 7, 9, (), at_log_start=True)) is AdvanceStatus.FRESH
    assert isinstance(judge(vector, Advance(0, 7, 9, ())), Misfit)
    assert isinstance(judge({0: 8}, Advance(0, 7, 9, (), at_log_start=True)), Misfit)


def test_a_round_is_sorted_by_what_is_to_be_done() -> None:
    one, two, three = advance(0, 5, 9), advance(1, 0, 5), advance(2, 1, 2)
    judged = judge_all({0: 5, 1: 7, 2: 0}, (three, two, one))
    reason = "the table holds offsets up to 0, [1, 2) does not follow it"
    assert judged == JudgedAdvance((one,), (two,), (Misfit(2, reason),))
    assert advanced({0: 5, 1: 7}, judged.fresh) == {0: 9, 1: 7}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 5)), max_size=60))
def test_whatever_is_offered_in_whatever_order_no_offset_is_taken_twice(
    offers: list[tuple[int, int, int]],
) -> None:
    vector: dict[int, int] = {}
    taken: set[tuple[int, int]] = set()
    for partition, start, count in offers:
        offer = advance(partition, start, start + count)
        if judge(vector, offer) is AdvanceStatus.FRESH:
            new = {(partition, offset) for offset in range(start, start + count)}
            assert not new & taken
            taken |= new
            vector = advanced(vector, (offer,))
    for partition, end in vector.items():
        assert {offset for p, offset in taken if p == partition} == set(range(end))


def test_an_advance_knows_its_own_files() -> None:
    with pytest.raises(AssertionError):
        Advance(0, 0, 5, advance(1, 0, 5).files)
    with pytest.raises(AssertionError):
        Advance(0, 0, 4, advance(0, 0, 5).files)
    with pytest.raises(AssertionError):
        Advance(0, 0, 9, advance(0, 4, 9).files + advance(0, 0, 5).files)
