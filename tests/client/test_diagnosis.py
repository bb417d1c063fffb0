"""What is said about peers that are no brokers, or other brokers than was thought."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.connection import GREETING_LIMITS
from lakelog.client.diagnosis import foreign_protocol, hung_up, no_common_version


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
