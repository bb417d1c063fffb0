"""The order of answers, as values."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.server.answers import Answers
from lakelog.wire.schema import Buffer


def test_only_the_finished_run_at_the_front_may_leave() -> None:
    answers = Answers()
    first, second, third = (answers.reserve(size) for size in (10, 20, 30))
    second.parts = [b"2"]
    assert answers.take() == ([], 0, False)
    first.parts = [b"1"]
    assert answers.take() == ([b"1", b"2"], 30, False)
    assert len(answers) == 1
    third.parts = []
    assert answers.take() == ([], 30, False)


def test_requests_that_are_answered_together_count_one_by_one() -> None:
    answers = Answers()
    group = answers.reserve(100, 7)
    alone = answers.reserve(5)
    assert len(answers) == 8
    group.parts, alone.parts = [b"all"], [b"one"]
    assert answers.take() == ([b"all", b"one"], 105, False)
    assert len(answers) == 0
    answers.put_now([b"now"], 3)
    assert answers.take() == ([b"now"], 3, False)


def test_a_place_that_ends_the_connection_lets_out_what_comes_before_and_nothing_after() -> None:
    answers = Answers()
    first, second, third = (answers.reserve(1) for _ in range(3))
    second.ends_connection = True
    third.parts = [b"3"]
    assert answers.take() == ([], 0, False)
    first.parts = [b"1"]
    assert answers.take() == ([b"1"], 1, True)


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
        if step in looks or step == len(finishing) - 1:
            some, released_bytes, _ = answers.take()
            outgoing += some
            released += released_bytes
            assert b"".join(outgoing) == bytes(range(len(outgoing)))
    assert (b"".join(outgoing), released) == (bytes(range(8)), 8)
