"""Conditions: what they rule out is never a row that fulfils them."""

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.reading.filters import (
    EVERYTHING,
    Condition,
    Filters,
    checked_conditions,
    filters_of,
)
from lakelog.reading.request import BadOption

RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(["partition", "offset", "topic"]))
    name = draw(st.sampled_from(sorted(RELATIONS)))
    one = st.sampled_from(["a", "b"]) if column == "topic" else st.integers(-1, 5)
    if column == "topic":
        name = draw(st.sampled_from(["=", "!=", "in", "not in"]))
    return column, name, draw(st.lists(one, max_size=3) if "in" in name else one)


@given(st.lists(conditions(), max_size=4))
def test_no_row_that_fulfils_all_conditions_is_ruled_out(given: list[Condition]) -> None:
    found = filters_of(given)
    for topic in ("a", "b"):
        for partition in range(4):
            for offset in range(4):
                row = {"topic": topic, "partition": partition, "offset": offset}
                fulfils = all(RELATIONS[name](row[column], value) for column, name, value in given)
                inside = found.offset_start <= offset < found.offset_end
                if fulfils:
                    assert found.holds(topic, partition)
                    assert inside


def test_what_can_be_ruled_out_is() -> None:
    found = filters_of(
        [("offset", ">", 5), ("offset", "<=", 9), ("partition", "in", [1, 2]), ("topic", "=", "a")]
    )
    assert (found.offset_start, found.offset_end) == (6, 10)
    assert [one for one in range(5) if found.holds("a", one)] == [1, 2]
    assert not found.holds("b", 1)
    assert filters_of([("value", "=", b"x"), ("offset", "!=", 1)]) == EVERYTHING


def test_only_a_lower_bound_of_the_time_rules_out() -> None:
    at = datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)
    assert filters_of([("timestamp", ">=", at)]) == Filters(timestamp_start_us=1_000_500)
    assert filters_of([("timestamp", "<", at)]) == EVERYTHING
    both = filters_of([("timestamp", ">", at), ("timestamp", "=", at + timedelta(seconds=1))])
    assert both.timestamp_start_us == 2_000_500


@pytest.mark.parametrize("bad", [("offset", ">"), ("ofset", ">", 1), ("offset", "~", 1), ()])
def test_what_is_no_condition_is_refused(bad: tuple[object, ...]) -> None:
    with pytest.raises(BadOption, match=r"operator|one of"):
        checked_conditions([bad])


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2024, 1, 1)  # noqa: DTZ001 - what is refused
    with pytest.raises(BadOption, match="time zone"):
        checked_conditions([("timestamp", ">", naive)])
