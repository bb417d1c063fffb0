"""A record is visible at the first sight of a vector beyond it, and never before."""

import pytest
from bench.b7_freshness import Stamps, edges
from bench.clients import ClientError
from bench.naive_tables import Seen


def test_each_record_takes_until_the_first_vector_beyond_it() -> None:
    stamps = Stamps({("t", 0): [(3, 1.0), (0, 0.5), (4, 1.5)], ("t", 1): [(0, 2.0)]})
    seen = [Seen("u", 1.5, {0: 9}), Seen("t", 2.0, {0: 4}), Seen("t", 3.0, {0: 5, 1: 1})]
    assert stamps.latencies(seen) == [1.5, 1.0, 1.5, 1.0]


def test_a_record_that_no_vector_reaches_is_said() -> None:
    with pytest.raises(ClientError, match="offset 4 of t never"):
        Stamps({("t", 0): [(4, 1.0)]}).latencies([Seen("t", 2.0, {0: 4})])


@pytest.mark.parametrize(("end", "missing"), [(None, True), (4, True), (5, False)])
def test_what_is_missing_is_known_by_the_last_offset(end: int | None, missing: bool) -> None:
    vectors = {} if end is None else {"t": {0: end}}
    assert Stamps({("t", 0): [(4, 1.0), (2, 1.0)]}).missing(vectors) is missing


def test_the_edges_are_medians_in_milliseconds() -> None:
    assert edges([0.001, 0.003, 0.002, 5.0, 0.01, 0.03, 0.02], 3) == (2.0, 20.0)
