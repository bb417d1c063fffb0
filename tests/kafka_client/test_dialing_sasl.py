"""SASL on a connection: the order of things, refusals, and sessions that are renewed."""

import asyncio
from collections.abc import Callable

import pytest
from tests.kafka_client.passing_time import LIMIT_S, pass_time, run_passing
from tests.kafka_client.scram_server import ScramServer
from tests.kafka_client.scripted import Asked, Reply, Script, Scripted, dialer, scripted

from lakelog.kafka_client.dialing import Dialer
from lakelog.kafka_client.failures import AuthenticationFailed, ClientFailure, Unreachable
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from lakelog.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lakelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

OFFERED = ("PLAIN", "SCRAM-SHA-256")


def client(mechanism: str = "PLAIN", **more: object) -> Dialer:
    return dialer(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password="secret",
        **more,
    )


def handshake(asked: Asked) -> Reply:
    assert isinstance(asked.message, SaslHandshakeRequest)
    known = asked.message.mechanism in OFFERED
    return SaslHandshakeResponse(0 if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM, OFFERED)


def plain(password: bytes = b"secret", lifetime_ms: int = 0) -> Script:
    def check(asked: Asked) -> Reply:
        assert isinstance(asked.message, SaslAuthenticateRequest)
        if bytes(asked.message.auth_bytes) != b"\0alice\0" + password:
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong")
        return SaslAuthenticateResponse(0, None, b"", lifetime_ms)

    return {ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: check}


def scram(password: str, change: Callable[[bytes], bytes] = lambda last: last) -> Script:
    server = ScramServer("sha256", password)

    def step(asked: Asked) -> Reply:
        assert isinstance(asked.message, SaslAuthenticateRequest)
        message = bytes(asked.message.auth_bytes)
        if message.startswith(b"n,,"):
            return SaslAuthenticateResponse(auth_bytes=server.first(message))
        return SaslAuthenticateResponse(auth_bytes=change(server.final(message)))

    return {ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: step}


def refused(made: Dialer, script: Script) -> ClientFailure:
    async def run() -> ClientFailure:
        async with scripted(script) as broker:
            with pytest.raises(ClientFailure) as found:
                await made.connect(broker.endpoint)
            return found.value

    return run_passing(run())


@pytest.mark.parametrize(
    ("mechanism", "script", "messages"),
    [("PLAIN", plain(), 1), ("SCRAM-SHA-256", scram("secret"), 2)],
)
def test_credentials_come_before_everything_else(
    mechanism: str, script: Script, messages: int
) -> None:
    async def run() -> None:
        async with scripted(script) as broker:
            connection = await client(mechanism).connect(broker.endpoint)
            await connection.call(MetadataRequest(()), MetadataResponse)
            assert broker.apis() == [
                ApiKey.API_VERSIONS,
                ApiKey.SASL_HANDSHAKE,
                *[ApiKey.SASL_AUTHENTICATE] * messages,
                ApiKey.METADATA,
            ]
            assert broker.asked[1].header.api_version == 1
            await connection.close()

    asyncio.run(run())


def test_a_refusal_says_who_was_refused_and_why_but_no_password() -> None:
    failure = refused(client(), plain(b"other"))
    assert isinstance(failure, AuthenticationFailed)
    assert "refuses 'alice' (PLAIN): wrong" in str(failure)
    assert "secret" not in str(failure)


def test_a_mechanism_that_is_not_offered_names_those_that_are() -> None:
    failure = refused(client("SCRAM-SHA-512"), plain())
    assert isinstance(failure, AuthenticationFailed)
    assert "does not offer SCRAM-SHA-512; it offers: PLAIN, SCRAM-SHA-256" in str(failure)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.ILLEGAL_SASL_STATE, "asks for no credentials"),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, "SASL_AUTHENTICATION_FAILED"),
    ],
)
def test_a_broker_that_takes_no_credentials_is_told_apart(code: ErrorCode, said: str) -> None:
    script: Script = {**plain(), ApiKey.SASL_HANDSHAKE: lambda _: SaslHandshakeResponse(code)}
    failure = refused(client(), script)
    assert isinstance(failure, AuthenticationFailed)
    assert said in str(failure)


def test_a_broker_that_cannot_prove_itself_is_left() -> None:
    failure = refused(client("SCRAM-SHA-256"), scram("secret", lambda _: b"v=AAAA"))
    assert isinstance(failure, AuthenticationFailed)
    assert "does not know the password" in str(failure)


def test_a_broker_that_only_says_that_all_is_well_is_not_believed() -> None:
    script: Script = {**scram("x"), ApiKey.SASL_AUTHENTICATE: lambda _: SaslAuthenticateResponse()}
    assert isinstance(refused(client("SCRAM-SHA-256"), script), AuthenticationFailed)


def test_a_broker_that_never_answers_is_left_in_time() -> None:
    script: Script = {**plain(), ApiKey.SASL_AUTHENTICATE: lambda _: pass_time(LIMIT_S)}
    failure = refused(client(socket_connection_setup_timeout_ms=LIMIT_S * 1000), script)
    assert isinstance(failure, Unreachable)
    assert f"has not finished the authentication within {LIMIT_S} s" in str(failure)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def times(broker: Scripted, key: ApiKey) -> int:
    return broker.apis().count(key)


def test_a_session_is_renewed_on_the_same_connection_before_it_ends() -> None:
    async def run() -> None:
        async with scripted(plain(lifetime_ms=20)) as broker:
            made = client()
            connection = await made.connect(broker.endpoint)
            await until(lambda: times(broker, ApiKey.SASL_AUTHENTICATE) >= 4)
            await connection.call(MetadataRequest(()), MetadataResponse)
            assert broker.connections == 1
            await connection.close()
            await made.tasks.close()
            # Between a handshake and its end there is never anything else.
            apis = broker.apis()
            for place, key in enumerate(apis[:-1]):
                if key == ApiKey.SASL_HANDSHAKE:
                    assert apis[place + 1] == ApiKey.SASL_AUTHENTICATE

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_session_that_is_not_renewed_ends_for_all_who_wait() -> None:
    answers = iter([SaslAuthenticateResponse(0, None, b"", 20)])
    refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "the password changed")

    async def run() -> None:
        script: Script = {
            **plain(),
            ApiKey.SASL_AUTHENTICATE: lambda _: next(answers, refusal),
        }
        async with scripted(script) as broker:
            made = client()
            connection = await made.connect(broker.endpoint)
            await connection.wait_lost()
            with pytest.raises(AuthenticationFailed, match="the password changed"):
                await connection.call(MetadataRequest(()), MetadataResponse)
            await made.tasks.close()

    asyncio.run(asyncio.wait_for(run(), 20))
