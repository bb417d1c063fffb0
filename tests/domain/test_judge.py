"""Commits in order, by the kernel and by its twin: what each lets through, and what it leaves."""

from collections.abc import Callable

import pytest
from tests.domain.build import B, Domain, idempotent
from tests.domain.dump import dump_state
from tests.sides import both, side

from lakelog.domain.judge import FEW_BATCHES
from lakelog.domain.state import Verdict

ACCEPTED = int(Verdict.ACCEPTED)


@both
def test_of_many_batches_of_a_producer_the_last_five_are_remembered(compiled: bool) -> None:
    with side(compiled):
        domain = Domain(1)
        domain.commit(idempotent(1, 0))
        domain.commit(*(idempotent(1, sequence) for sequence in range(1, 9)))
        again = domain.commit(*(idempotent(1, sequence) for sequence in range(3, 9)))
    assert again == [(Verdict.OUT_OF_SEQUENCE, -1, -1)] + [
        (Verdict.DUPLICATE, sequence, 1_000) for sequence in range(4, 9)
    ]


@both
@pytest.mark.parametrize(
    ("next_batch", "verdict"),
    [
        (idempotent(1, 1, epoch=3), ACCEPTED),
        (idempotent(1, 1, epoch=2), Verdict.STALE_EPOCH),
        (idempotent(1, 1, epoch=4), Verdict.OUT_OF_SEQUENCE),
        (idempotent(1, 2, epoch=3), Verdict.OUT_OF_SEQUENCE),
        (idempotent(1, 1, epoch=3, producer=8), Verdict.OUT_OF_SEQUENCE),
        (idempotent(9, 1, epoch=3), Verdict.UNKNOWN_STREAM),
        (B(1), ACCEPTED),
    ],
)
def test_what_does_not_go_on_in_sequence_has_its_verdict(
    compiled: bool, next_batch: B, verdict: Verdict
) -> None:
    with side(compiled):
        domain = Domain(1, 2)
        domain.commit(idempotent(1, 0, epoch=3), idempotent(2, 0, epoch=3))
        judged = domain.commit(next_batch, idempotent(2, 1, epoch=3))
    assert sorted(one[0] for one in judged) == sorted((verdict, ACCEPTED))


@both
def test_batches_without_a_producer_may_stand_among_those_of_one(compiled: bool) -> None:
    with side(compiled):
        domain = Domain(1)
        domain.commit(idempotent(1, 0))
        assert [one[0] for one in domain.commit(idempotent(1, 1), B(1), idempotent(1, 2))] == [
            ACCEPTED
        ] * 3
        assert [one[0] for one in domain.commit(B(1), idempotent(1, 3))] == [ACCEPTED] * 2
        assert domain.commit(idempotent(1, 3)) == [(Verdict.DUPLICATE, 5, 1_000)]


def in_two_streams(domain: Domain, count: int) -> None:
    for turn in range(3):
        first = turn * count
        domain.commit(
            *(idempotent(1, sequence) for sequence in range(first, first + count)),
            *(B(2, 3, timestamp_ms=2_000 - turn) for _ in range(count)),
            time_ms=1_000 - turn,
        )


def at_the_end_of_the_sequences(domain: Domain, count: int) -> None:
    domain.commit(idempotent(1, 0, count=(1 << 31) - count - 1))
    for _ in range(2 * count):
        expected = domain.state.producers.expected(0)
        domain.commit(idempotent(1, expected, count=2))


@pytest.mark.parametrize("script", [in_two_streams, at_the_end_of_the_sequences])
@pytest.mark.parametrize("count", [1, 4, FEW_BATCHES])
def test_both_ways_leave_the_same_state(script: Callable[[Domain, int], None], count: int) -> None:
    states = []
    for compiled in (False, True):
        with side(compiled):
            domain = Domain(1, 2)
            script(domain, count)
            states.append(dump_state(domain.state))
    assert states[0] == states[1]
