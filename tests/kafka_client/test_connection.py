"""A connection: many requests under way, answers in order, and what ends it."""

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kafka_client.scripted import (
    Asked,
    HangUp,
    Script,
    Scripted,
    dialer,
    every_version,
    listening,
    one_broker,
    read_request,
    scripted,
)
from tests.profiles import examples

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import Closed, TimedOut, Unreachable, Unsupported
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.wire.apis import ApiKey
from lakelog.wire.framing import RESPONSE_LIMITS, encode_response
from lakelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse


def generation(asked: Asked) -> HeartbeatResponse:
    """An answer that tells which request it belongs to."""
    assert isinstance(asked.message, HeartbeatRequest)
    return HeartbeatResponse(throttle_time_ms=asked.message.generation_id)


def test_many_requests_are_under_way_and_each_gets_its_own_answer() -> None:
    async def run() -> None:
        async with scripted({ApiKey.HEARTBEAT: generation}) as broker:
            connection = await dialer().connect(broker.endpoint)
            futures = [
                connection.send(HeartbeatRequest("g", number), HeartbeatResponse)
                for number in range(200)
            ]
            assert connection.in_flight == 200
            answers = await asyncio.gather(*futures)
            assert [answer.throttle_time_ms for answer in answers] == list(range(200))
            assert connection.in_flight == 0
            await connection.close()

    asyncio.run(run())


def test_records_of_an_answer_stay_valid_while_others_arrive() -> None:
    def records(asked: Asked) -> FetchResponse:
        size = asked.header.correlation_id * 50_000
        data = bytes([asked.header.correlation_id]) * size
        partition = FetchPartitionData(records=data)
        return FetchResponse(
            responses=(FetchableTopicResponse(topic_id=bytes(16), partitions=(partition,)),)
        )

    async def run() -> None:
        async with scripted({ApiKey.FETCH: records}) as broker:
            connection = await dialer().connect(broker.endpoint)
            futures = [connection.send(FetchRequest(), FetchResponse) for _ in range(9)]
            answers = await asyncio.gather(*futures)
            for number, answer in enumerate(answers, 1):
                found = answer.responses[0].partitions[0].records
                assert isinstance(found, memoryview)
                assert bytes(found) == bytes([number]) * (number * 50_000)
            await connection.close()

    asyncio.run(run())


def test_the_newest_version_that_both_speak_is_used_and_can_be_lowered() -> None:
    async def run() -> None:
        async with scripted({}) as broker:
            connection = await dialer().connect(broker.endpoint)
            assert connection.version(ApiKey.METADATA) == 13
            assert connection.version(ApiKey.METADATA, 9) == 9
            await connection.call(MetadataRequest(()), MetadataResponse, version_max=5)
            await connection.send(MetadataRequest(()), MetadataResponse, version=7)
            assert [asked.header.api_version for asked in broker.asked[1:]] == [5, 7]
            with pytest.raises(Unsupported, match="speaks versions 0 to 13"):
                connection.version(ApiKey.METADATA, -1)
            await connection.close()

    asyncio.run(run())


def test_an_api_that_the_broker_does_not_offer_is_unsupported() -> None:
    async def run() -> None:
        script: Script = {ApiKey.API_VERSIONS: lambda _: every_version(without=(ApiKey.HEARTBEAT,))}
        async with scripted(script) as broker:
            connection = await dialer().connect(broker.endpoint)
            with pytest.raises(Unsupported, match=r"Heartbeat: 127\.0\.0\.1:\d+ does not offer it"):
                connection.send(HeartbeatRequest(), HeartbeatResponse)
            await connection.close()

    asyncio.run(run())


def test_a_value_that_does_not_fit_its_version_harms_nobody_else() -> None:
    async def run() -> None:
        async with scripted({}) as broker:
            connection = await dialer().connect(broker.endpoint)
            with pytest.raises(Unsupported, match="Heartbeat"):
                await connection.send(HeartbeatRequest("g" * 70_000), HeartbeatResponse, version=0)
            assert (await connection.call(MetadataRequest(()), MetadataResponse)).cluster_id == "c"
            await connection.close()

    asyncio.run(run())


def test_who_gives_up_leaves_the_others_their_answers() -> None:
    async def run() -> None:
        gate = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                asked = read_request(memoryview(await reader.readexactly(size)))
                if asked.header.api_key == ApiKey.API_VERSIONS:
                    writer.writelines(encode_response(asked.header, every_version()))
                    continue
                await gate.wait()
                writer.writelines(encode_response(asked.header, generation(asked)))

        async with listening(handle) as endpoint:
            connection = await dialer().connect(endpoint)
            with pytest.raises(TimedOut, match="has not answered Heartbeat within"):
                await connection.call(HeartbeatRequest("g", 1), HeartbeatResponse, timeout_s=0.01)
            dropped = connection.send(HeartbeatRequest("g", 2), HeartbeatResponse)
            dropped.cancel()
            kept = connection.send(HeartbeatRequest("g", 3), HeartbeatResponse)
            gate.set()
            assert (await kept).throttle_time_ms == 3
            assert connection.is_open
            await connection.close()

    asyncio.run(run())


def test_a_broker_that_owes_an_answer_for_too_long_is_left() -> None:
    async def run() -> None:
        script: Script = {ApiKey.HEARTBEAT: lambda _: None, ApiKey.FETCH: lambda _: None}
        async with scripted(script) as broker:
            connection = await dialer().connect(broker.endpoint)
            slow = connection.send(HeartbeatRequest(), HeartbeatResponse, timeout_s=0.02)
            behind = connection.send(FetchRequest(), FetchResponse)
            waits: tuple[asyncio.Future[Any], ...] = (slow, behind)
            for future in waits:
                with pytest.raises(Unreachable, match=r"has not answered Heartbeat within 0\.02 s"):
                    await future
            assert not connection.is_open
            await connection.wait_lost()

    asyncio.run(run())


def test_a_lost_connection_fails_all_who_wait_and_all_who_come() -> None:
    def hang_up(_: Asked) -> None:
        raise HangUp

    async def run() -> None:
        async with scripted({ApiKey.METADATA: hang_up}) as broker:
            connection = await dialer().connect(broker.endpoint)
            futures: list[asyncio.Future[Any]] = [
                connection.send(MetadataRequest(()), MetadataResponse),
                connection.send(FetchRequest(), FetchResponse),
            ]
            for future in futures:
                with pytest.raises(Unreachable, match="closed the connection at Metadata"):
                    await future
            with pytest.raises(Unreachable, match="closed the connection"):
                await connection.call(MetadataRequest(()), MetadataResponse)
            assert connection.failure is not None

    asyncio.run(run())


def test_closing_tells_who_waits_and_may_be_repeated() -> None:
    async def run() -> None:
        async with scripted({ApiKey.HEARTBEAT: lambda _: None}) as broker:
            connection = await dialer().connect(broker.endpoint)
            future = connection.send(HeartbeatRequest(), HeartbeatResponse)
            await connection.close()
            await connection.close()
            with pytest.raises(Closed):
                await future

    asyncio.run(run())


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (framed(struct.pack(">i", 77) + bytes(20)), "answer 77 to request 1"),
        (framed(struct.pack(">i", 1)), "makes no sense"),
        (framed(struct.pack(">i", 1) + b"\xff" * 40), "makes no sense"),
        (struct.pack(">i", 2**31 - 1), "cannot have 2147483647 bytes"),
        (struct.pack(">i", -5), "cannot have -5 bytes"),
        (framed(b"ab"), "cannot have 2 bytes"),
    ],
)
def test_an_answer_that_makes_no_sense_ends_the_connection(reply: bytes, why: str) -> None:
    async def run() -> None:
        async with scripted({ApiKey.HEARTBEAT: lambda _: reply}) as broker:
            connection = await dialer().connect(broker.endpoint)
            with pytest.raises(Unreachable, match=why):
                await connection.call(HeartbeatRequest(), HeartbeatResponse, timeout_s=10)
            assert not connection.is_open

    asyncio.run(run())


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async def run() -> None:
        def twice(asked: Asked) -> bytes:
            return b"".join(encode_response(asked.header, one_broker(broker))) * 2

        broker: Scripted
        async with scripted({ApiKey.METADATA: twice}) as broker:
            connection = await dialer().connect(broker.endpoint)
            await connection.call(MetadataRequest(()), MetadataResponse)
            await connection.wait_lost()
            assert "an answer to nothing" in str(connection.failure)

    asyncio.run(run())


def test_requests_wait_while_credentials_are_exchanged() -> None:
    async def run() -> None:
        async with scripted({ApiKey.HEARTBEAT: generation}) as broker:
            connection = await dialer().connect(broker.endpoint)
            connection.hold()
            later = connection.send(HeartbeatRequest("g", 5), HeartbeatResponse)
            dropped = connection.send(HeartbeatRequest("g", 6), HeartbeatResponse)
            dropped.cancel()
            first = connection.send_now(
                ApiVersionsRequest("x", "1"), ApiVersionsResponse, version=3
            )
            assert (await first).api_keys
            assert ApiKey.HEARTBEAT not in broker.apis()
            connection.release()
            assert (await later).throttle_time_ms == 5
            assert broker.apis().count(ApiKey.HEARTBEAT) == 1
            connection.hold()
            kept_back = connection.send(HeartbeatRequest("g", 7), HeartbeatResponse)
            await connection.close()
            with pytest.raises(Closed):
                await kept_back
            with pytest.raises(Closed):
                await connection.send(HeartbeatRequest("g", 8), HeartbeatResponse)

    asyncio.run(run())


def test_traffic_is_counted() -> None:
    async def run() -> None:
        async with scripted({}) as broker:
            connection = await dialer().connect(broker.endpoint)
            before = connection.bytes_received
            await connection.call(MetadataRequest(()), MetadataResponse)
            assert connection.requests_sent == 2
            assert connection.bytes_received > before > 0
            assert connection.bytes_sent > 0
            await connection.close()

    asyncio.run(run())


class NoTransport(asyncio.Transport):
    """Takes what is written and forgets it."""

    def write(self, data: object) -> None: ...

    def writelines(self, list_of_data: object) -> None: ...

    def abort(self) -> None: ...


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8), st.booleans())
def test_any_bytes_are_answers_or_a_named_failure(chunks: list[bytes], has_begun: bool) -> None:
    async def run() -> None:
        connection = BrokerConnection(BrokerAddress("a", 1), client_id="x", timeout_s=60)
        connection.connection_made(NoTransport())
        connection.greeted(
            {
                each.api_key: range(each.min_version, each.max_version + 1)
                for each in every_version().api_keys
            },
            RESPONSE_LIMITS,
        )
        sent = connection.send(HeartbeatRequest(), HeartbeatResponse)
        received = (framed(struct.pack(">i", 0)) if has_begun else b"") + b"".join(chunks)
        for start in range(0, len(received), 7):
            piece = received[start : start + 7]
            room = connection.get_buffer(-1)
            room[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        connection.connection_lost(None)
        assert sent.done()
        failure = sent.exception()
        assert failure is None or isinstance(failure, Unreachable)

    asyncio.run(run())


def test_a_request_behind_a_slow_one_has_its_whole_time_from_the_answer_before_it() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        connection = BrokerConnection(BrokerAddress("a", 1), client_id="x", timeout_s=60)
        connection.connection_made(NoTransport())
        connection.greeted({int(ApiKey.HEARTBEAT): range(5)}, RESPONSE_LIMITS)
        first = connection.send(HeartbeatRequest(), HeartbeatResponse, version=4, timeout_s=300)
        second = connection.send(HeartbeatRequest(), HeartbeatResponse, version=4, timeout_s=0.05)
        begun_s = loop.time()
        await asyncio.wait([first, second], timeout=0.1)
        assert connection.failure is None
        answer = framed(struct.pack(">i", 0) + bytes(8))
        connection.get_buffer(-1)[: len(answer)] = answer
        connection.buffer_updated(len(answer))
        assert first.done()
        await asyncio.wait([second])
        assert isinstance(second.exception(), Unreachable)
        assert loop.time() - begun_s >= 0.15

    asyncio.run(run())
