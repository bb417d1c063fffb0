"""The order of answers, as values."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.server.requests import Answers
from lakelog.wire.schema import Buffer


def test_only_the_finished_run_at_the_front_may_leave() -> None:
    answers = Answers()
    first, second, third = (answers.reserve(size) for size in (10, 20, 30))
    outgoing: list[Buffer] = []
    second.parts = [b"2"]
    assert answers.take(outgoing) == (0, False)
    first.parts = [b"1"]
    assert answers.take(outgoing) == (30, False)
    assert outgoing == [b"1", b"2"]
    assert len(answers) == 1
    third.parts = []
    assert answers.take(outgoing) == (30, False)
    assert outgoing == [b"1", b"2"]


def test_a_place_that_ends_the_connection_lets_out_what_comes_before_and_nothing_after() -> None:
    answers = Answers()
    first, second, third = (answers.reserve(1) for _ in range(3))
    outgoing: list[Buffer] = []
    second.ends_connection = True
    third.parts = [b"3"]
    assert answers.take(outgoing) == (0, False)
    first.parts = [b"1"]
    assert answers.take(outgoing) == (1, True)
    assert outgoing == [b"1"]


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_whatever_finishes_first_answers_leave_in_order(
    finishing: list[int], looks: set[int]
) -> None:
    answers = Answers()
    places = [answers.reserve(1) for _ in range(8)]
    outgoing: list[Buffer] = []
    released = 0
    for step, number in enumerate(finishing):
        places[number].parts = [bytes([number])]
        if step in looks:
            released += answers.take(outgoing)[0]
            assert b"".join(outgoing) == bytes(range(len(outgoing)))
    released += answers.take(outgoing)[0]
    assert (b"".join(outgoing), released) == (bytes(range(8)), 8)
