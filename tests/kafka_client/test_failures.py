"""What failures say, that they survive the way between processes, and what is said about peers."""

import copy
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.kafka_client import failures
from lakelog.kafka_client.connection import GREETING_LIMITS
from lakelog.kafka_client.failures import (
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
    foreign_protocol,
    hung_up,
    no_common_version,
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


def said(received: bytes) -> str:
    return foreign_protocol(memoryview(received), len(received))


@pytest.mark.parametrize(
    ("received", "word"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"220 mail", "SMTP"),
        (b"-ERR unknown command", "Redis"),
    ],
)
def test_a_stranger_is_named(received: bytes, word: str) -> None:
    assert word in said(received)


@given(st.integers(4, GREETING_LIMITS.size_max), st.binary(max_size=8))
def test_a_first_frame_of_kafka_is_never_taken_for_something_else(size: int, rest: bytes) -> None:
    assert said(struct.pack(">i", size) + rest) == ""


@given(st.binary(max_size=3))
def test_a_short_beginning_is_no_reason_to_leave(received: bytes) -> None:
    assert said(received) == "" or "TLS" in said(received)


@pytest.mark.parametrize(
    ("answers", "has_tls", "hint"),
    [
        (0, False, "another security.protocol"),
        (0, True, "ssl.certificate.location"),
        (1, False, "credentials"),
        (1, True, "credentials"),
    ],
)
def test_how_far_it_came_tells_what_to_look_at(answers: int, has_tls: bool, hint: str) -> None:
    text = hung_up(at_api="Metadata", answers=answers, has_tls=has_tls, reason=OSError("reset"))
    assert text.startswith("closed the connection at Metadata (reset): ")
    assert hint in text


def test_a_connection_that_worked_needs_no_hint() -> None:
    assert hung_up(at_api="", answers=2, has_tls=True, reason=None) == "closed the connection"


def test_versions_that_do_not_meet_are_both_named() -> None:
    assert no_common_version(range(4, 19), range(3)) == (
        "speaks versions 0 to 2, this client 4 to 18"
    )
    assert no_common_version(range(4, 19), range(0)) == "does not offer it"
