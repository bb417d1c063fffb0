"""Half-sent requests hold a share of the memory for each address, and not for long (R1)."""

import asyncio

import pytest
from prometheus_client import generate_latest
from tests.server.ports import LOOPS, PRODUCE, Talk, echo, port, request, run, settled

from lakelog.clock import SystemClock
from lakelog.server.address import Address
from lakelog.server.half_sent import HalfSent
from lakelog.server.listener import Listener
from lakelog.server.options import ServerOptions
from lakelog.telemetry import Metrics

MIB = 1 << 20
both_loops = pytest.mark.parametrize("loop", LOOPS)


class Receiver:
    """A session that notes when it may go on, and then asks again as a session does."""

    def __init__(self, share: HalfSent) -> None:
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
    share = HalfSent(100)
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
    share = HalfSent(100)
    large, small = Receiver(share), Receiver(share)
    large.receives(500)
    assert large.reading
    small.receives(0)
    assert small.reading


def test_who_has_the_pass_and_goes_away_leaves_it_to_another() -> None:
    share = HalfSent(100)
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
def test_a_client_that_sends_much_and_then_little_is_not_waited_for(loop: str) -> None:
    async def scenario() -> None:
        options = ServerOptions(frame_timeout_s=0.1, frame_rate_min_bytes=MIB)
        metrics = Metrics()
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
