"""The waits between attempts."""

from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.backoff import Backoff
from lakelog.clock import SeededEntropy


class Middle:
    """Chance that always lies in the middle."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def below(self, bound: int) -> int:
        return bound // 2


def test_the_wait_doubles_up_to_its_maximum() -> None:
    backoff = Backoff(100, 1000)
    waits = [backoff.delay_s(failures, Middle()) for failures in range(7)]
    assert waits == [0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_without_a_first_wait_there_is_none() -> None:
    assert Backoff(0, 1000).delay_s(5, Middle()) == 0.0


@given(st.integers(1, 10_000), st.integers(0, 100_000), st.integers(1, 10**9), st.text())
def test_a_wait_is_within_a_fifth_of_what_it_should_be(
    first_ms: int, more_ms: int, failures: int, seed: str
) -> None:
    backoff = Backoff(first_ms, first_ms + more_ms)
    wait_s = backoff.delay_s(failures, SeededEntropy(seed))
    assert first_ms * 0.8 <= wait_s * 1000 + 1e-6
    assert wait_s * 1000 <= backoff.max_ms * 1.2 + 1e-6


def test_clients_do_not_return_at_one_moment() -> None:
    backoff = Backoff(1000, 10_000)
    waits = {backoff.delay_s(3, SeededEntropy(str(client))) for client in range(50)}
    assert len(waits) > 30
