"""The pages, served inside a loop that does other things too."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Counter

from lakelog.clock import SystemClock
from lakelog.http.service import serve_pages
from lakelog.model.failures import NotFound, Unavailable


class Parts:
    """A broker's parts, switched by the test."""

    def __init__(self) -> None:
        self.broker: str | None = None
        self.clock: str | None = None
        self.registry = CollectorRegistry()
        Counter("things", "Things", registry=self.registry).inc(3)

    async def index_of(self, topic: str, partition: int) -> list[dict[str, object]]:
        if topic == "absent":
            raise NotFound("there is no topic 'absent'")
        if topic == "slow":
            raise Unavailable("no answer")
        return [{"startOffset": 0, "partition": partition}]


@asynccontextmanager
async def pages(parts: Parts) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        serving = asyncio.create_task(
            serve_pages(
                listening,
                checks={"broker": lambda: parts.broker, "clock": lambda: parts.clock},
                registry=parts.registry,
                index_of=parts.index_of,
                clock=SystemClock(),
            )
        )
        yield int(listening.getsockname()[1])
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled()


async def fetched(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


def test_a_clock_that_is_wrong_is_told_by_a_broker_that_stays_ready() -> None:
    async def scenario() -> None:
        parts = Parts()
        parts.clock = "the clock is 2592000 s ahead"
        async with pages(parts) as port:
            code, body = await fetched(port, "/readyz")
            assert code == 200
            assert json.loads(body)["parts"]["clock"]["reason"] == parts.clock

    asyncio.run(scenario())


def test_a_broker_that_stops_is_alive_but_not_ready_and_says_why() -> None:
    async def scenario() -> None:
        parts = Parts()
        async with pages(parts) as port:
            assert await fetched(port, "/healthz") == (200, b"ok\n")
            code, body = await fetched(port, "/readyz")
            assert (code, json.loads(body)["ready"]) == (200, True)
            parts.broker = "the broker is stopping"
            code, body = await fetched(port, "/readyz")
            assert code == 503
            assert json.loads(body)["parts"]["broker"]["reason"] == "the broker is stopping"
            assert (await fetched(port, "/healthz"))[0] == 200

    asyncio.run(scenario())


def test_metrics_are_in_prometheus_form() -> None:
    async def scenario() -> None:
        async with pages(Parts()) as port:
            code, body = await fetched(port, "/metrics")
            assert code == 200
            assert b"things_total 3.0" in body

    asyncio.run(scenario())


def test_the_index_answers_or_says_what_is_wrong() -> None:
    async def scenario() -> None:
        async with pages(Parts()) as port:
            code, body = await fetched(port, "/admin/index?topic=t&partition=2")
            assert code == 200
            assert json.loads(body)["entries"] == [{"startOffset": 0, "partition": 2}]
            for query, expected in (
                ("", 400),
                ("?topic=t", 400),
                ("?topic=t&partition=-1", 400),
                ("?topic=t&partition=99999999999999999999", 400),
                ("?topic=absent&partition=0", 404),
                ("?topic=slow&partition=0", 503),
            ):
                assert (await fetched(port, f"/admin/index{query}"))[0] == expected, query
            assert (await fetched(port, "/nothing"))[0] == 404

    asyncio.run(scenario())
