"""Connections of one dialer share memory for what they receive, and never mix it up."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from tests.kafka_client.certificates import has_openssl, make_certificates
from tests.kafka_client.scripted import Asked, Reply, Script, dialer, scripted

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)

SIZES = (1, 100, 65_000, 65_536, 65_537, 200_000, 3_000_000, 10)


def filled(asked: Asked) -> Reply:
    """Records whose every byte says on which connection they were asked for, and when."""
    number = asked.header.correlation_id - 1
    data = bytes([asked.connection * 16 + number]) * SIZES[number]
    topic = FetchableTopicResponse(partitions=(FetchPartitionData(records=data),))
    return FetchResponse(responses=(topic,))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("has_tls", [False, True])
def test_what_arrives_on_many_connections_at_once_is_told_apart(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop], has_tls: bool
) -> None:
    context, config = None, {}
    if has_tls:
        if not has_openssl():
            pytest.skip("no openssl on the path")
        made = make_certificates(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.server, made.server_key)
        config = {"security_protocol": "SSL", "ssl_ca_location": str(made.ca)}

    async def ask(connection: BrokerConnection, marks: range) -> None:
        futures = [connection.send(FetchRequest(), FetchResponse) for _ in marks]
        answers = await asyncio.gather(*futures)
        for number, (mark, answer) in enumerate(zip(marks, answers, strict=True)):
            found = answer.responses[0].partitions[0].records
            assert isinstance(found, memoryview)
            assert bytes(found) == bytes([mark]) * SIZES[number]

    async def run() -> None:
        script: Script = {ApiKey.FETCH: filled}
        async with scripted(script, context) as broker:
            shared = dialer(**config)
            connections = [await shared.connect(broker.endpoint) for _ in range(4)]
            await asyncio.gather(
                *(
                    ask(connection, range(number * 16, number * 16 + len(SIZES)))
                    for number, connection in enumerate(connections, 1)
                )
            )
            for connection in connections:
                await connection.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
