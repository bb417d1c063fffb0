"""SASL exchanges against the vectors of the RFCs, a server of our own, and a hostile one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kafka_client.scram_server import ScramServer
from tests.profiles import examples

from lakelog.kafka_client.failures import AuthenticationFailed
from lakelog.kafka_client.sasl import (
    ITERATIONS_MAX,
    PlainExchange,
    ScramExchange,
    exchange,
    parse_server_first,
)

VECTORS = {
    "sha1": (  # RFC 5802, section 5
        "fyko+d2lbbFgONRv9qkxdawL",
        b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "sha256": (  # RFC 7677, section 3
        "rOprNGfwEbeRWgbNEkqO",
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        (
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        ),
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


@pytest.mark.parametrize("hash_name", VECTORS)
def test_the_exchange_of_the_rfc_is_spoken_byte_for_byte(hash_name: str) -> None:
    nonce, first, challenge, final, proof = VECTORS[hash_name]
    steps = ScramExchange(hash_name, "user", "pencil", nonce)
    assert steps.first() == first
    assert steps.respond(challenge) == final
    assert steps.respond(proof) is None


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]), TEXT, TEXT, st.binary(min_size=18))
def test_both_sides_agree_for_any_name_and_password(
    mechanism: str, username: str, password: str, entropy: bytes
) -> None:
    server = ScramServer(mechanism[6:].replace("-", "").lower(), password)
    steps = exchange(mechanism, username, password, entropy)
    final = steps.respond(server.first(steps.first()))
    assert final is not None
    assert steps.respond(server.final(final)) is None
    assert server.username == username


def test_a_wrong_password_is_what_the_broker_says() -> None:
    server = ScramServer("sha256", "right")
    steps = exchange("SCRAM-SHA-256", "user", "wrong", b"x" * 24)
    final = steps.respond(server.first(steps.first()))
    assert final is not None
    with pytest.raises(AuthenticationFailed, match="invalid-proof"):
        steps.respond(server.final(final))


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    server = ScramServer("sha256", "right")
    steps = exchange("SCRAM-SHA-256", "user", "right", b"x" * 24)
    final = steps.respond(server.first(steps.first()))
    assert final is not None
    server.server_key = bytes(32)
    with pytest.raises(AuthenticationFailed, match="does not know the password"):
        steps.respond(server.final(final))


@pytest.mark.parametrize("last", [b"", b"ok", b"x=1", b"v=", b"v=!!", b"v=AAAA", b"\xff", b"e=no"])
def test_nothing_but_the_right_proof_ends_the_exchange(last: bytes) -> None:
    server = ScramServer("sha256", "right")
    steps = exchange("SCRAM-SHA-256", "user", "right", b"x" * 24)
    steps.respond(server.first(steps.first()))
    with pytest.raises(AuthenticationFailed):
        steps.respond(last)


def test_the_end_is_the_end() -> None:
    nonce, _, challenge, _, proof = VECTORS["sha256"]
    steps = ScramExchange("sha256", "user", "pencil", nonce)
    steps.respond(challenge)
    steps.respond(proof)
    with pytest.raises(AuthenticationFailed, match="after the end"):
        steps.respond(proof)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("e=unknown-user", "unknown-user"),
        ("", "malformed"),
        ("m=x,r=abcd,s=QQ==,i=4096", "malformed"),
        ("r=abcd,i=4096,s=QQ==", "malformed"),
        ("r=abc,s=QQ==,i=4096", "did not extend"),
        ("r=xbcd,s=QQ==,i=4096", "did not extend"),
        ("r=abcd,s=,i=4096", "no salt"),
        ("r=abcd,s=Q,i=4096", "base64"),
        ("r=abcd,s=QQ==,i=4095", "4095 iterations"),
        (f"r=abcd,s=QQ==,i={ITERATIONS_MAX + 1}", "iterations"),
        ("r=abcd,s=QQ==,i=" + "9" * 5000, "iterations"),
        ("r=abcd,s=QQ==,i=-4096", "iterations"),
        ("r=abcd,s=QQ==,i=\u0664\u0660\u0669\u0666", "iterations"),
    ],
)
def test_a_challenge_that_makes_no_sense_is_refused(message: str, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        parse_server_first(message, "abc")


@given(st.binary(max_size=200))
def test_any_bytes_for_a_challenge_are_refused_or_answered(challenge: bytes) -> None:
    steps = ScramExchange("sha256", "user", "pencil", "abc")
    try:
        steps.respond(challenge)
    except AuthenticationFailed:
        return
    assert challenge.startswith(b"r=abc")


def test_a_challenge_has_a_limit() -> None:
    with pytest.raises(AuthenticationFailed, match="too long"):
        ScramExchange("sha256", "user", "pencil", "abc").respond(b"r=abcd" + b"x" * 10_000)


def test_plain_sends_name_and_password_and_takes_no_question() -> None:
    steps = PlainExchange("us,er", "p\u00e4ss")
    assert steps.first() == b"\0us,er\0p\xc3\xa4ss"
    assert steps.respond(b"") is None
    with pytest.raises(AuthenticationFailed, match="asked for more"):
        steps.respond(b"more")


def test_two_exchanges_have_two_nonces() -> None:
    one = exchange("SCRAM-SHA-512", "user", "x", b"1" * 24).first()
    other = exchange("SCRAM-SHA-512", "user", "x", b"2" * 24).first()
    assert one != other
