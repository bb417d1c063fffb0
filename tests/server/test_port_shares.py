"""Half-sent requests hold a share of the memory for each address, and not for long (R1)."""

import asyncio
import random
from typing import cast

import pytest
from prometheus_client import generate_latest
from tests.server.port_stub import LOOPS, PRODUCE, Talk, echo, port, request, run, settled

from lakelog.clock import SystemClock
from lakelog.server.connection import ClientConnection
from lakelog.server.listener import Listener
from lakelog.server.options import Address, ServerOptions
from lakelog.server.port import AddressShare
from lakelog.telemetry import MetricsRegistry

MIB = 1 << 20
both_loops = pytest.mark.parametrize("loop", LOOPS)


class Receiver:
    """A connection that notes when it may go on, and then asks again as a connection does."""

    def __init__(self, share: AddressShare) -> None:
        self.share = share
        self.unframed_bytes = 0
        self.reading = True

    def receives(self, size_bytes: int) -> None:
        self.unframed_bytes += size_bytes
        self.share.add(size_bytes)
        self.reading = not self.share.must_wait(self)

    def completes(self) -> None:
        self.share.add(-self.unframed_bytes)
        self.unframed_bytes = 0
        self.share.completed(self)

    def may_go_on(self) -> None:
        self.reading = not self.share.must_wait(self)


def test_above_the_share_one_connection_at_a_time_goes_on() -> None:
    share = AddressShare(100)
    receivers = [Receiver(share) for _ in range(4)]
    for receiver in receivers:
        receiver.receives(40)
    assert [receiver.reading for receiver in receivers] == [True, True, True, False]
    receivers[0].receives(10)
    receivers[1].receives(10)
    assert [receiver.reading for receiver in receivers] == [False, False, True, False]
    assert share.waiting == 3
    receivers[2].completes()  # 140 are left: the first that waited has the pass
    assert [receiver.reading for receiver in receivers] == [False, False, True, True]
    receivers[3].completes()
    assert receivers[0].reading
    receivers[0].completes()  # 50 are left: everybody goes on
    assert all(receiver.reading for receiver in receivers)
    assert share.waiting == 0


def test_a_connection_without_a_half_sent_request_never_waits() -> None:
    share = AddressShare(100)
    large, small = Receiver(share), Receiver(share)
    large.receives(500)
    assert large.reading
    small.receives(0)
    assert small.reading


def test_who_has_the_pass_and_goes_away_leaves_it_to_another() -> None:
    share = AddressShare(100)
    first, second = Receiver(share), Receiver(share)
    first.receives(90)
    first.receives(90)
    second.receives(90)
    assert (first.reading, second.reading) == (True, False)
    first.completes()
    assert second.reading


@both_loops
def test_slow_senders_of_one_address_leave_room_for_others(loop: str) -> None:
    async def scenario() -> None:
        options = ServerOptions(connection_bytes_max=4 * MIB, total_bytes_max=16 * MIB)
        async with port(echo, options) as (listener, address):
            whole = request(1, key=PRODUCE, body=bytes(8 * MIB))
            slow = [await Talk.open(address) for _ in range(10)]
            for talk in slow:
                talk.send(whole[: 3 * MIB])
            held_bytes = await settled(lambda: listener.held_bytes)
            # Its share of 4 MiB, one request that has the pass, the read that went beyond the
            # share, and a small one of each.
            assert held_bytes <= (4 + 8 + 2 + 1) * MIB
            reader, writer = await asyncio.open_connection(
                address.host, address.port, local_addr=("127.0.0.2", 0)
            )
            other = Talk(reader, writer)
            other.send(whole)
            assert await other.receive() == 1
            for talk in slow:
                talk.send(whole[3 * MIB :])
            assert [await talk.receive() for talk in slow] == [1] * 10
            assert listener.held_bytes == 0
            for talk in (*slow, other):
                await talk.close()

    run(loop, scenario())


@both_loops
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_half_sent_requests_of_several_addresses_come_to_their_end(loop: str, share: float) -> None:
    async def scenario() -> None:
        options = ServerOptions(
            connection_bytes_max=MIB, total_bytes_max=4 * MIB, address_share_max=share
        )
        async with port(echo, options) as (listener, address):
            whole = request(1, key=PRODUCE, body=bytes(2 * MIB))
            talks = []
            for number in range(12):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, local_addr=(f"127.0.0.{2 + number % 3}", 0)
                )
                talks.append(Talk(reader, writer))
                talks[-1].send(whole[:MIB])
            await settled(lambda: listener.held_bytes)
            for talk in reversed(talks):
                talk.send(whole[MIB:])
            assert [await talk.receive() for talk in talks] == [1] * 12
            assert listener.held_bytes == 0
            for talk in talks:
                await talk.close()

    run(loop, scenario())


class Wire:
    """A transport that notes whether its connection is read, and what was answered."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.reading = True
        self.answers = 0

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return (self.host, 1) if name == "peername" else ("127.0.0.1", 9092)

    def set_write_buffer_limits(self, *, high: int) -> None:
        assert high > 0

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def writelines(self, parts: list[bytes]) -> None:
        assert parts
        self.answers += 1

    def abort(self) -> None:
        raise AssertionError("no connection has to end")

    close = abort


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_in_whatever_order_bytes_come_somebody_is_read_until_all_is_answered(
    seed: int, share: float
) -> None:
    chance = random.Random(seed)

    async def scenario() -> None:
        options = ServerOptions(
            connection_bytes_max=MIB, total_bytes_max=2 * MIB, address_share_max=share
        )
        listener = Listener(echo, clock=SystemClock(), metrics=MetricsRegistry(), options=options)
        connections = []
        for number in range(9):
            wire, connection = Wire(f"10.0.0.{number % 3}"), ClientConnection(listener._port)
            connection.connection_made(cast("asyncio.Transport", wire))
            sizes = (chance.randrange(100, 3 * MIB // 2) for _ in range(2))
            sent = b"".join(request(1, key=PRODUCE, body=bytes(size)) for size in sizes)
            connections.append((wire, connection, memoryview(sent)))
        while any(data for _, _, data in connections):
            read = [at for at, (wire, _, data) in enumerate(connections) if data and wire.reading]
            assert read, "everybody waits for another"
            at = chance.choice(read)
            wire, connection, data = connections[at]
            buffer = connection.get_buffer(-1)
            count = min(len(buffer), len(data), chance.choice((1_000, 100_000, MIB)))
            buffer[:count] = data[:count]
            connections[at] = (wire, connection, data[count:])
            connection.buffer_updated(count)
            for _ in range(6):
                await asyncio.sleep(0)
        assert listener.held_bytes == 0
        for wire, connection, _ in connections:
            assert wire.answers >= 1
            connection.connection_lost(None)
        assert listener._port.half_sent == {}
        await listener.close()

    asyncio.run(scenario())


@both_loops
def test_a_client_that_sends_much_and_then_little_is_not_waited_for(loop: str) -> None:
    async def scenario() -> None:
        options = ServerOptions(frame_timeout_s=0.1, frame_rate_min_bytes=MIB)
        metrics = MetricsRegistry()
        listener = Listener(echo, clock=SystemClock(), metrics=metrics, options=options)
        address = await listener.start(Address("127.0.0.1", 0))
        talk = await Talk.open(address)
        # At the least rate these bytes would be good for 32 s.
        talk.send(request(1, key=PRODUCE, body=bytes(64 * MIB))[: 32 * MIB])

        async def trickle() -> None:
            while not talk.reader.at_eof():
                talk.send(b"x")
                await asyncio.sleep(0)

        trickling = asyncio.create_task(trickle())
        async with asyncio.timeout(10):
            assert await talk.is_closed()
        trickling.cancel()
        assert b"lakelog_requests_stalled_total 1.0" in generate_latest(metrics.registry)
        assert b"lakelog_half_sent_bytes 0.0" in generate_latest(metrics.registry)
        assert listener.held_bytes == 0
        await talk.close()
        await listener.close()

    run(loop, scenario())
