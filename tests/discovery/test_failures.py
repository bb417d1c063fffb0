"""Failures of discovery: what they say, and that they survive the way to another process."""

import pickle

import pytest

from lakelog.discovery.failures import (
    ConfigError,
    ConnectionFailed,
    DiscoveryError,
    Fenced,
    GroupRefused,
    NotRunning,
    PollTimeoutExceeded,
    SecurityError,
    TopicMissing,
)
from lakelog.model.failures import Failure


@pytest.mark.parametrize(
    ("failure", "said", "is_fatal"),
    [
        (ConfigError("no topic"), "no topic", True),
        (ConnectionFailed("nobody"), "nobody", False),
        (SecurityError("forbidden"), "forbidden", True),
        (TopicMissing("t"), "there is no topic 't'", True),
        (Fenced("n1"), "as node 'n1'", True),
        (GroupRefused("g", "full"), "group 'g' does not take this node: full", True),
        (PollTimeoutExceeded("slow"), "slow", False),
        (NotRunning("stopped"), "stopped", True),
    ],
)
def test_a_failure_says_what_happened_also_elsewhere(
    failure: DiscoveryError, said: str, is_fatal: bool
) -> None:
    assert isinstance(failure, Failure)
    assert said in str(failure)
    assert failure.is_fatal is is_fatal
    copy = pickle.loads(pickle.dumps(failure))
    assert type(copy) is type(failure)
    assert str(copy) == str(failure)
