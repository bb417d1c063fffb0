"""What failures say, and that they survive the way between processes."""

import copy
import pickle

import pytest

from lakelog.client import failures
from lakelog.client.failures import (
    AuthenticationFailed,
    BadConfig,
    BrokerError,
    ClientFailure,
    Closed,
    CorruptBatch,
    OffsetGone,
    TimedOut,
    UnknownTopic,
    Unreachable,
    Unsupported,
    Untrusted,
)
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure

EVERY: list[ClientFailure] = [
    BadConfig("client.id", "is odd"),
    Unreachable("nobody answers at x:1", is_final=True),
    TimedOut("not done within 1 s"),
    AuthenticationFailed("no"),
    Untrusted("no"),
    UnknownTopic("orders"),
    BrokerError(3, "orders", "this server does not host it"),
    Unsupported("Fetch", "x:1 does not offer it"),
    OffsetGone("orders", 2, 5, 10, 20),
    CorruptBatch("orders", 2, 5),
    Closed("it is closed"),
]


def test_every_failure_is_listed_here() -> None:
    made = {
        found
        for found in vars(failures).values()
        if isinstance(found, type) and issubclass(found, ClientFailure)
    }
    assert made == {ClientFailure, *map(type, EVERY)}
    assert issubclass(ClientFailure, Failure)


@pytest.mark.parametrize("failure", EVERY, ids=lambda failure: type(failure).__name__)
def test_a_failure_survives_pickling_and_copying(failure: ClientFailure) -> None:
    for twin in (pickle.loads(pickle.dumps(failure)), copy.copy(failure)):
        assert type(twin) is type(failure)
        assert str(twin) == str(failure)
        assert vars(twin) == vars(failure)


def test_an_unknown_key_names_the_nearest_one() -> None:
    failure = BadConfig.unknown("bootstrap.server", ["bootstrap.servers", "client.id"])
    assert failure.key == "bootstrap.server"
    assert (
        str(failure)
        == "bootstrap.server: there is no such setting; did you mean bootstrap.servers?"
    )
    assert str(BadConfig.unknown("x", ["client.id"])) == "x: there is no such setting"


def test_a_broker_error_has_its_name_and_knows_whether_a_repeat_may_help() -> None:
    retriable = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders [1]")
    assert str(retriable) == "orders [1]: NOT_LEADER_OR_FOLLOWER"
    assert retriable.is_retriable
    final = BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, message="no")
    assert str(final) == "GROUP_AUTHORIZATION_FAILED: no"
    assert not final.is_retriable
    assert BrokerError(9999).name == "error 9999"


def test_an_offset_that_is_gone_says_what_there_is_and_what_to_do() -> None:
    said = str(OffsetGone("orders", 2, 5, 10, 20))
    assert "orders [2] has no offset 5" in said
    assert "[10, 20)" in said
    assert "auto.offset.reset" in said
