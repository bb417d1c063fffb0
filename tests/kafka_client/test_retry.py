"""Retries: the deadline of one call, and one broker's connection, never made in a storm."""

import asyncio
import itertools

import pytest
from bench.broker import free_ports
from tests.kafka_client.scripted import Asked, HangUp, Script, dialer, scripted

from lakelog.clock import SystemClock
from lakelog.kafka_client.failures import Closed, Unreachable
from lakelog.kafka_client.retry import Link, RetryDeadline
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse


class ManualClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


def test_a_deadline_counts_down_and_ends_at_nothing() -> None:
    clock = ManualClock()
    deadline = RetryDeadline(clock, 2.0)
    assert deadline.left_s() == 2.0
    clock.now_s += 1.5
    assert deadline.left_s() == 0.5
    assert not deadline.is_over()
    clock.now_s += 5
    assert deadline.left_s() == 0.0
    assert deadline.is_over()


def test_failures_are_counted() -> None:
    deadline = RetryDeadline(ManualClock(), 1.0)
    assert [deadline.failed() for _ in range(3)] == [1, 2, 3]


def link(**config: object) -> tuple[Link, "asyncio.Future[None]"]:
    closing = asyncio.get_running_loop().create_future()
    return Link(dialer(**config), SystemClock(), closing), closing


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
