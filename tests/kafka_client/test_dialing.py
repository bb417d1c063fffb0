"""From an address to a connection, every way in which that can fail, and never in a storm."""

import asyncio
import itertools
import socket

import pytest
from bench.broker import free_ports
from tests.kafka_client.passing_time import LIMIT_S, pass_time, run_passing
from tests.kafka_client.scripted import (
    Asked,
    HangUp,
    Reply,
    Script,
    dialer,
    every_version,
    listening,
    scripted,
)

from lakelog.clock import SystemClock
from lakelog.kafka_client.dialing import BrokerLink, dial
from lakelog.kafka_client.failures import AuthenticationFailed, BrokerError, Closed, Unreachable
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.api_versions import ApiVersionsResponse
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse

SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


def failure_at(reply: bytes, *, is_silent: bool = False) -> Unreachable:
    """What is said about a peer that answers the first request so, or never."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)
        await writer.drain()
        if is_silent:
            pass_time(LIMIT_S)
            await reader.read()

    async def run() -> Unreachable:
        async with listening(handle) as endpoint:
            with pytest.raises(Unreachable) as found:
                await dialer(socket_connection_setup_timeout_ms=LIMIT_S * 1000).connect(endpoint)
            return found.value

    return run_passing(run())


@pytest.mark.parametrize(
    ("reply", "said", "is_final"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "speaks HTTP", True),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS: set security.protocol to SSL", True),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "speaks SSH", True),
        (b"\x7f\xff\xff\xff", "is no Kafka broker", False),
        (b"", "another security.protocol", False),
    ],
)
def test_what_is_no_broker_is_named(reply: bytes, said: str, is_final: bool) -> None:
    failure = failure_at(reply)
    assert said in str(failure)
    assert "127.0.0.1:" in str(failure)
    assert failure.is_final is is_final


def test_a_peer_that_takes_the_connection_and_says_nothing_is_left_in_time() -> None:
    failure = failure_at(b"", is_silent=True)
    assert f"has not answered ApiVersions within {LIMIT_S} s" in str(failure)


def test_a_port_where_nobody_listens_is_said_so() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unreachable, match=f"nobody answers at 127.0.0.1:{port}: .*refused"):
        asyncio.run(dialer().connect(BrokerAddress("127.0.0.1", port)))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "x" * 70 + ".example"])
def test_a_host_that_nobody_knows_is_said_so(host: str) -> None:
    with pytest.raises(Unreachable, match="nobody knows the host"):
        asyncio.run(dialer().connect(BrokerAddress(host, 9092)))


def test_an_older_broker_is_asked_again_in_the_version_that_all_can_read() -> None:
    def old(asked: Asked) -> Reply:
        if asked.header.api_version == 0:
            return every_version()
        # The error in version 0, as every broker answers a version that it does not know.
        size = (4 + 2 + 4).to_bytes(4, "big")
        body = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big") + bytes(4)
        return size + asked.header.correlation_id.to_bytes(4, "big") + body

    async def run() -> list[int]:
        async with scripted({ApiKey.API_VERSIONS: old}) as broker:
            connection = await dialer().connect(broker.endpoint)
            assert connection.version(ApiKey.METADATA) == 13
            await connection.close()
            return [asked.header.api_version for asked in broker.asked]

    assert asyncio.run(run()) == [4, 0]


def test_another_error_to_the_first_question_is_said() -> None:
    script: Script = {
        ApiKey.API_VERSIONS: lambda _: ApiVersionsResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    }

    async def run() -> None:
        async with scripted(script) as broker:
            await dialer().connect(broker.endpoint)

    with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        asyncio.run(run())


def test_the_software_is_named_as_brokers_want_it() -> None:
    async def run() -> str:
        async with scripted({}) as broker:
            connection = await dialer(client_id="me").connect(broker.endpoint)
            await connection.close()
            (asked,) = broker.asked
            assert asked.header.client_id == "me"
            return repr(asked.message)

    assert "client_software_name='lakelog'" in asyncio.run(run())


def test_a_broker_without_sasl_is_not_given_the_password() -> None:
    without = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)

    async def run() -> None:
        script: Script = {ApiKey.API_VERSIONS: lambda _: every_version(without)}
        async with scripted(script) as broker:
            with pytest.raises(AuthenticationFailed, match="takes no credentials"):
                await dialer(**SASL).connect(broker.endpoint)
            assert broker.apis() == [ApiKey.API_VERSIONS]

    asyncio.run(run())


def test_nothing_stays_open_after_a_failure() -> None:
    async def run() -> None:
        async with scripted({ApiKey.API_VERSIONS: lambda _: None}) as broker:
            with pytest.raises(Unreachable):
                await dialer(socket_connection_setup_timeout_ms=50).connect(broker.endpoint)
            connecting = asyncio.create_task(dialer().connect(broker.endpoint))
            while broker.connections < 2 or len(broker.asked) < 2:
                await asyncio.sleep(0)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            while broker.open:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_host_with_several_addresses_is_tried_at_each() -> None:
    """`localhost` is ::1 as well where there is IPv6, and nobody listens there."""

    async def run() -> None:
        async with scripted({}) as broker:
            connection = await dialer().connect(BrokerAddress("localhost", broker.endpoint.port))
            assert connection.is_open
            await connection.close()
            assert not connection.is_open

    asyncio.run(run())


def test_the_receive_buffer_is_as_large_as_was_said() -> None:
    async def run() -> int:
        async with scripted({}) as broker:
            made = dialer(socket_receive_buffer_bytes=100_000, socket_keepalive_enable=True)
            connection = await made.connect(broker.endpoint)
            assert connection._transport is not None
            opened = connection._transport.get_extra_info("socket")
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            size: int = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            await connection.close()
            return size

    assert 100_000 <= asyncio.run(run()) <= 200_000  # Linux doubles what it is told


def link(**config: object) -> tuple[BrokerLink, "asyncio.Future[None]"]:
    closing = asyncio.get_running_loop().create_future()
    return BrokerLink(dialer(**config), SystemClock(), closing), closing


def test_all_who_ask_at_once_share_one_connection() -> None:
    async def run() -> None:
        async with scripted({}) as broker:
            made, _ = link()
            found = await asyncio.gather(*[made.connection(broker.endpoint) for _ in range(20)])
            assert len({id(connection) for connection in found}) == 1
            assert broker.connections == 1
            assert made.is_open
            await made.close()
            assert not made.is_open

    asyncio.run(run())


def test_a_broker_that_moved_is_followed() -> None:
    async def run() -> None:
        async with scripted({}) as here, scripted({}) as there:
            made, _ = link(reconnect_backoff_ms=1)
            first = await made.connection(here.endpoint)
            second = await made.connection(there.endpoint)
            assert second.endpoint == there.endpoint
            assert not first.is_open
            await made.close()

    asyncio.run(run())


def test_a_broker_that_drops_everybody_is_asked_ever_more_rarely() -> None:
    def hang_up(_: Asked) -> None:
        raise HangUp

    async def run() -> list[float]:
        script: Script = {ApiKey.METADATA: hang_up}
        async with scripted(script) as broker:
            made, _ = link(reconnect_backoff_ms=8, reconnect_backoff_max_ms=1000)
            loop = asyncio.get_running_loop()
            moments = []
            for _ in range(5):
                connection = await made.connection(broker.endpoint)
                moments.append(loop.time())
                with pytest.raises(Unreachable):
                    await connection.call(MetadataRequest(()), MetadataResponse)
            return [after - before for before, after in itertools.pairwise(moments)]

    waits_s = asyncio.run(run())
    least_s = [0.8 * 0.008 * 2**number for number in range(4)]
    assert all(wait >= least * 0.99 for wait, least in zip(waits_s, least_s, strict=True))


def test_after_a_failure_the_next_attempt_waits_and_then_succeeds() -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        made, _ = link(reconnect_backoff_ms=20)
        loop = asyncio.get_running_loop()
        with pytest.raises(Unreachable, match="refused"):
            await made.connection(BrokerAddress("127.0.0.1", port))
        failed_s = loop.time()
        async with scripted({}) as broker:
            await made.connection(broker.endpoint)
            assert loop.time() - failed_s >= 0.8 * 0.02 * 0.99
            await made.close()

    asyncio.run(run())


def test_whoever_waits_for_the_next_attempt_hears_that_the_client_is_closed() -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        made, closing = link(reconnect_backoff_ms=10_000)
        with pytest.raises(Unreachable):
            await made.connection(BrokerAddress("127.0.0.1", port))
        waiting = asyncio.create_task(made.connection(BrokerAddress("127.0.0.1", port)))
        await asyncio.sleep(0)
        closing.set_result(None)
        with pytest.raises(Closed):
            await waiting

    asyncio.run(asyncio.wait_for(run(), 5))


def test_one_connection_is_dialled_by_its_address_and_ends_with_its_block() -> None:
    async def run() -> None:
        async with scripted({}) as broker:
            async with await dial(str(broker.endpoint)) as connection:
                assert connection.is_open
            assert not connection.is_open

    asyncio.run(run())
