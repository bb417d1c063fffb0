"""A broker that says what a test tells it to, on loopback, in the test's own loop."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from lakelog.clock import SeededEntropy, Tasks
from lakelog.kafka_client.dialing import Dialer
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.kafka_client.settings import ClientSettings
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.codec import decode
from lakelog.wire.framing import RequestHeader, encode_response, parse_request_header
from lakelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from lakelog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HangUp(Exception):  # noqa: N818 - it is what happens
    """The broker closes the connection instead of an answer."""


@dataclass(frozen=True)
class Asked:
    """One request as the broker saw it."""

    header: RequestHeader
    message: Struct
    connection: int


Reply: TypeAlias = Struct | bytes | None
"""An answer; bytes as they stand; or none, ever."""


@dataclass
class Scripted:
    """The broker, what it was asked, and how many connections it took."""

    endpoint: BrokerAddress = field(default_factory=lambda: BrokerAddress("127.0.0.1", 1))
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    open: int = 0

    def apis(self) -> list[int]:
        return [asked.header.api_key for asked in self.asked]


Script: TypeAlias = Mapping[int, Callable[[Asked], Reply]]


def every_version(without: tuple[int, ...] = ()) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=tuple(
            ApiVersion(key, api.versions.start, api.versions.stop - 1)
            for key, api in APIS.items()
            if key not in without
        )
    )


def one_broker(scripted: Scripted, node_id: int = 1) -> MetadataResponse:
    endpoint = scripted.endpoint
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id, endpoint.host, endpoint.port),), cluster_id="c"
    )


@asynccontextmanager
async def listening(
    handle: Handler, tls: ssl.SSLContext | None = None
) -> AsyncIterator[BrokerAddress]:
    """A port that does whatever the handler does with each connection."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await handle(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, HangUp, asyncio.CancelledError):
            pass
        finally:
            running.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        while running:
            await asyncio.wait(list(running))
        await server.wait_closed()


@asynccontextmanager
async def scripted(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    """A broker that answers by its script; ApiVersions and Metadata have an answer of their own."""
    broker = Scripted()
    answers: dict[int, Callable[[Asked], Reply]] = {
        ApiKey.API_VERSIONS: lambda _: every_version(),
        ApiKey.METADATA: lambda _: one_broker(broker),
        **script,
    }

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker.connections += 1
        broker.open += 1
        number = broker.connections
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = memoryview(await reader.readexactly(size))
                asked = read_request(frame, number)
                broker.asked.append(asked)
                reply = answers[asked.header.api_key](asked)
                if isinstance(reply, bytes):
                    writer.write(reply)
                elif reply is not None:
                    writer.writelines(encode_response(asked.header, reply))
                await writer.drain()
        finally:
            broker.open -= 1

    async with listening(handle, tls) as endpoint:
        broker.endpoint = endpoint
        yield broker


def read_request(frame: memoryview, connection: int = 0) -> Asked:
    header = parse_request_header(frame)
    kind = APIS[header.api_key].request
    message, _ = decode(kind, header.api_version, frame, header.body_start)
    return Asked(header, message, connection)


def dialer(**config: object) -> Dialer:
    """A dialer with settings by their keys, underscores for dots."""
    given = {"bootstrap.servers": "127.0.0.1:1"}
    named = {key.replace("_", "."): value for key, value in config.items()}
    settings = ClientSettings.parse({**given, **named})
    return Dialer.load(settings, entropy=SeededEntropy("dialer"), tasks=Tasks())
