"""Names of topics as other catalogs take them, and back."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakelog.catalog.external import LENGTH_MAX, escape, unescape
from lakelog.model.failures import Refused

TOPICS = st.text(
    "abdhsuxyzABDHSUXYZ019._-", min_size=1, max_size=60
)  # the letters of escapes among them


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("orders", "orders"),
        ("order_events_v2", "order_events_v2"),
        ("orders.v1-eu", "orders__dv1__heu"),
        ("OrderEvents", "__uorder__uevents"),
        ("a__b", "a__s_b"),
        ("_x_", "_x_"),
        ("a_.b", "a__s__db"),
        ("a_Xb", "a__s__uxb"),
        ("__consumer_offsets", "__s_consumer_offsets"),
    ],
)
def test_common_names_stay_readable(name: str, written: str) -> None:
    assert escape(name) == written
    assert unescape(written) == name


@settings(deadline=None)
@given(TOPICS)
@example("__uo")
@example("_._")
def test_every_name_comes_back_and_is_plain(name: str) -> None:
    written = escape(name)
    assert re.fullmatch("[a-z0-9_]+", written)
    assert unescape(written) == name


@settings(deadline=None)
@given(TOPICS, TOPICS)
def test_no_two_names_meet_even_where_case_is_ignored(one: str, other: str) -> None:
    assert (escape(one).casefold() == escape(other).casefold()) == (one == other)


@settings(deadline=None)
@given(st.text("abdhsu_0", max_size=12))
def test_what_is_written_otherwise_is_no_name(text: str) -> None:
    name = unescape(text)
    assert name is None or escape(name) == text


@pytest.mark.parametrize(
    "text", ["", "A", "a.b", "__", "___", "__z", "__u", "__u1", "é", "a__s0", "x" * 256]
)
def test_text_of_others_is_no_name(text: str) -> None:
    assert unescape(text) is None


@pytest.mark.parametrize("name", ["", "é", "a b", "a/b", "x" * (LENGTH_MAX + 1), "X" * 100, "\x00"])
def test_a_name_that_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        escape(name)
