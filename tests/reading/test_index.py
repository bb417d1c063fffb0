"""Answers about one range, put together."""

from collections.abc import Sequence

import pytest
from tests.lake.packed import entries

from lakelog.model.failures import Unavailable
from lakelog.reading.index import extended
from lakelog.reading.ranges import Located


def part(*edges: int, log_start: int = 0) -> Located:
    return Located(log_start, 99, entries(edges))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([[0, 3, 6]], [0, 3, 6]),
        ([[0, 3, 6], [6, 9]], [0, 3, 6, 9]),
        ([[0, 3, 6], [3, 9]], [0, 3, 9]),
        ([[0, 3, 6], [0, 9], [9, 12]], [0, 9, 12]),
    ],
    ids=str,
)
def test_what_took_the_place_of_entries_stands_for_them(
    parts: Sequence[Sequence[int]], expected: list[int]
) -> None:
    assert extended([part(*one) for one in parts]).entries.edges.tolist() == expected


def test_the_newest_answer_knows_the_stream_best() -> None:
    assert extended([part(0, 3), part(3, 6, log_start=2)]).log_start == 2


def test_parts_that_do_not_meet_are_not_put_together() -> None:
    for late in (part(4, 9), part(2, 9)):
        with pytest.raises(Unavailable):
            extended([part(0, 3), late])
