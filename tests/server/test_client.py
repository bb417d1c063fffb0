"""Our own client, against our own port and against what is none."""

import asyncio

import pytest
from tests.server.port_stub import echo, port

from lakelog.broker.call import Answer, Call, Later
from lakelog.model.errors import ErrorCode
from lakelog.server.client import Client, KafkaFailure, Unreachable
from lakelog.server.options import Address
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse


async def old_broker(key: int, _call: Call, _body: memoryview) -> Answer | Later:
    """Speaks Metadata up to version 5 and nothing else."""
    if key == ApiKey.API_VERSIONS:
        return ApiVersionsResponse(api_keys=(ApiVersion(3, 0, 5), ApiVersion(18, 0, 2)))
    return MetadataResponse(controller_id=7)


def test_the_newest_version_that_both_know_is_spoken() -> None:
    async def scenario() -> None:
        async with port(old_broker) as (_, address), await Client.connect(address) as client:
            assert client.version(ApiKey.METADATA) == 5
            answer = await client.call(MetadataRequest(topics=None), MetadataResponse)
            assert answer.controller_id == 7
            with pytest.raises(KafkaFailure) as refused:
                client.version(ApiKey.PRODUCE)
            assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(scenario())


def test_nobody_there_is_said_so() -> None:
    async def scenario() -> None:
        async with port(echo) as (_, address):
            taken = address
        with pytest.raises(Unreachable, match="nobody answers"):
            await Client.connect(taken)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\2ab", b"\xff\xff\xff\xff", b""]
)
def test_what_is_no_broker_is_found_out(said: bytes) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()
        await writer.wait_closed()

    async def scenario() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            number = server.sockets[0].getsockname()[1]
            with pytest.raises(Unreachable):
                await Client.connect(Address("127.0.0.1", number))

    asyncio.run(scenario())


def test_a_connection_that_breaks_in_mid_answer_is_said_so() -> None:
    async def scenario() -> None:
        async def dies(key: int, call: Call, body: memoryview) -> Answer | Later:
            if key == ApiKey.METADATA:
                raise RuntimeError("dead")
            return await old_broker(key, call, body)

        async with port(dies) as (_, address), await Client.connect(address) as client:
            with pytest.raises(Unreachable, match="closed the connection at Metadata"):
                await client.call(MetadataRequest(topics=None), MetadataResponse)

    asyncio.run(scenario())


def test_an_answer_that_does_not_come_is_waited_for_only_so_long() -> None:
    async def scenario() -> None:
        never = asyncio.Event()

        async def silent(key: int, call: Call, body: memoryview) -> Answer | Later:
            if key == ApiKey.METADATA:
                await never.wait()
            return await old_broker(key, call, body)

        async with port(silent) as (_, address), await Client.connect(address) as client:
            with pytest.raises(Unreachable, match="no answer to Metadata"):
                await client.call(MetadataRequest(topics=None), MetadataResponse, timeout_s=0.05)

    asyncio.run(scenario())


def test_an_error_code_is_told_by_its_name() -> None:
    assert str(KafkaFailure(3, about="orders")) == "orders: UNKNOWN_TOPIC_OR_PARTITION"
    assert str(KafkaFailure(3, "gone")) == "UNKNOWN_TOPIC_OR_PARTITION: gone"
    assert str(KafkaFailure(12345)) == "error 12345"
    assert ApiVersionsRequest is APIS[ApiKey.API_VERSIONS].request
