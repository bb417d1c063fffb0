"""TLS: who is trusted, whose name is checked, and what failures say."""

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.kafka_client.certificates import (
    KEY_PASSWORD,
    Certificates,
    has_openssl,
    make_certificates,
)
from tests.kafka_client.passing_time import LIMIT_S, pass_time, run_passing
from tests.kafka_client.scripted import Asked, HangUp, dialer, listening, scripted

from lakelog.kafka_client.failures import BadConfig, ClientFailure, Unreachable, Untrusted
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.skipif(not has_openssl(), reason="no openssl on the path")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server(certificate: Path, key: Path, *, clients_of: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients_of)
    return context


def outcome(context: ssl.SSLContext | None, **config: object) -> ClientFailure | None:
    """What comes of a whole conversation with a broker behind this certificate."""

    async def run() -> ClientFailure | None:
        async with scripted({}, context) as broker:
            try:
                made = dialer(security_protocol="SSL", **config)
                connection = await made.connect(broker.endpoint)
                await connection.call(MetadataRequest(()), MetadataResponse)
                await connection.close()
            except ClientFailure as failure:
                return failure
            return None

    return asyncio.run(run())


def test_a_broker_is_trusted_by_who_signed_its_certificate(made: Certificates) -> None:
    context = server(made.server, made.server_key)
    assert outcome(context, ssl_ca_location=str(made.ca)) is None
    assert outcome(context, ssl_ca_pem=made.ca.read_text()) is None
    failure = outcome(context, ssl_ca_location=str(made.stranger))
    assert isinstance(failure, Untrusted)
    assert "is not trusted" in str(failure)
    assert "ssl.ca.location" in str(failure)
    assert isinstance(outcome(context), Untrusted)  # the system does not know our authority


def test_a_certificate_for_another_host_is_refused_unless_names_do_not_matter(
    made: Certificates,
) -> None:
    context = server(made.other_server, made.other_server_key)
    failure = outcome(context, ssl_ca_location=str(made.ca))
    assert isinstance(failure, Untrusted)
    assert "127.0.0.1" in str(failure)
    tolerant = {"ssl_endpoint_identification_algorithm": "none"}
    assert outcome(context, ssl_ca_location=str(made.ca), **tolerant) is None
    # A stranger is not let in by that.
    assert isinstance(outcome(context, ssl_ca_location=str(made.stranger), **tolerant), Untrusted)


def test_verification_can_be_switched_off(made: Certificates) -> None:
    context = server(made.other_server, made.other_server_key)
    assert outcome(context, enable_ssl_certificate_verification=False) is None


def test_a_broker_that_wants_our_certificate_gets_it_or_says_so(made: Certificates) -> None:
    context = server(made.server, made.server_key, clients_of=made.ca)
    trusted = {"ssl_ca_location": str(made.ca)}
    own = {"ssl_certificate_location": str(made.client)}
    assert outcome(context, **trusted, **own, ssl_key_location=str(made.client_key)) is None
    locked = {"ssl_key_location": str(made.client_locked_key), "ssl_key_password": KEY_PASSWORD}
    assert outcome(context, **trusted, **own, **locked) is None
    texts = {
        "ssl_certificate_pem": made.client.read_text(),
        "ssl_key_pem": made.client_key.read_text(),
    }
    assert outcome(context, **trusted, **texts) is None
    # Not every server says so before it hangs up.
    failure = outcome(context, **trusted)
    assert isinstance(failure, Untrusted | Unreachable)
    assert "ssl.certificate.location" in str(failure)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"ssl_ca_location": "{folder}/none.pem"}, "ssl.ca.location"),
        ({"ssl_ca_location": "{folder}/client.key"}, "ssl.ca.location"),
        ({"ssl_ca_pem": "no certificate"}, "ssl.ca.pem"),
        ({"ssl_certificate_location": "{folder}/none.pem"}, "ssl.certificate.location"),
        (
            {
                "ssl_certificate_location": "{folder}/client.pem",
                "ssl_key_location": "{folder}/server.key",
            },
            "ssl.certificate.location",
        ),
        (
            {
                "ssl_certificate_location": "{folder}/client.pem",
                "ssl_key_location": "{folder}/client-locked.key",
                "ssl_key_password": "wrong",
            },
            "ssl.certificate.location",
        ),
        ({"ssl_certificate_pem": "x", "ssl_key_pem": "y"}, "ssl.certificate.pem"),
    ],
)
def test_files_that_cannot_be_used_are_a_bad_setting(
    made: Certificates, config: dict[str, str], key: str
) -> None:
    filled = {name: text.format(folder=made.ca.parent) for name, text in config.items()}
    with pytest.raises(BadConfig) as found:
        dialer(security_protocol="SSL", **filled)
    assert found.value.key == key


def test_no_file_with_a_key_is_left_behind(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    texts = {
        "ssl_certificate_pem": made.client.read_text(),
        "ssl_key_pem": made.client_key.read_text(),
    }
    assert dialer(security_protocol="SSL", **texts).tls is not None
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_authorities_is_taken_too(made: Certificates, tmp_path: Path) -> None:
    assert dialer(security_protocol="SSL", ssl_ca_location=str(tmp_path)).tls is not None


def test_nothing_older_than_tls_1_2_is_spoken() -> None:
    context = dialer(security_protocol="SSL").tls
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_broker_without_tls_is_said_so() -> None:
    async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)  # our hello is to it the size of a frame that never comes
        pass_time(LIMIT_S)
        await reader.read()

    async def run() -> str:
        made = dialer(security_protocol="SSL", socket_connection_setup_timeout_ms=LIMIT_S * 1000)
        async with listening(handle) as endpoint:
            with pytest.raises(Unreachable) as found:
                await made.connect(endpoint)
            return str(found.value)

    assert f"has not finished the TLS handshake within {LIMIT_S} s" in run_passing(run())


@pytest.mark.parametrize(
    ("reply", "is_final"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", True), (b"", False)]
)
def test_a_peer_that_answers_tls_with_something_else_is_said_so(
    reply: bytes, is_final: bool
) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(reply)
        await writer.drain()

    async def run() -> Unreachable:
        async with listening(handle) as endpoint:
            with pytest.raises(Unreachable) as found:
                await dialer(security_protocol="SSL").connect(endpoint)
            return found.value

    failure = asyncio.run(run())
    assert "security.protocol" in str(failure)
    assert failure.is_final is is_final


def test_an_encrypted_connection_that_ends_tells_who_waits(made: Certificates) -> None:
    def hang_up(_: Asked) -> None:
        raise HangUp

    async def run() -> None:
        context = server(made.server, made.server_key)
        async with scripted({3: hang_up}, context) as broker:
            configured = dialer(security_protocol="SSL", ssl_ca_location=str(made.ca))
            connection = await configured.connect(broker.endpoint)
            with pytest.raises(Unreachable, match=r"closed the connection|ended it"):
                await connection.call(MetadataRequest(()), MetadataResponse)

    asyncio.run(run())
