"""Open and closed loops of raw requests on one event loop, for load in many small pieces."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from bench.payload import payloads
from bench.raw import PRODUCE, PRODUCE_VERSION, Pipe, batch, check_produced, produce_body

Result = TypeVar("Result")
IN_FLIGHT_BYTES_MAX = 32 << 20


def run_loop(work: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine on uvloop where it is there."""
    try:
        import uvloop  # noqa: PLC0415 - the loop is a choice of the platform
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def make_batches(record_bytes: int, records: int, count: int = 8) -> list[bytes]:
    """Return some prepared batches, all different."""
    now_ms = time.time_ns() // 1_000_000
    pool = payloads(record_bytes, 0.25, seed=1)
    return [batch(pool[start : start + records], now_ms) for start in range(count)]


async def saturate(
    port: int,
    topic: str,
    partitions: Sequence[int],
    prepared: Sequence[bytes],
    *,
    requests_max: int,
    seconds: float = math.inf,
) -> int:
    """Produce one batch per request to partitions in turn, as fast as it goes; return requests.

    It ends at so many requests or after so many seconds, whichever is first.
    """
    pipe = await Pipe.connect(port)
    window = asyncio.Semaphore(max(IN_FLIGHT_BYTES_MAX // len(prepared[0]), 1))
    sent = 0
    finished = asyncio.Event()

    async def receive() -> int:
        received = 0
        while not finished.is_set() or received < sent:
            check_produced(await pipe.receive())
            received += 1
            window.release()
        return received

    async with asyncio.TaskGroup() as group:
        answers = group.create_task(receive())
        until = time.perf_counter() + seconds
        while sent < requests_max and time.perf_counter() < until:
            await window.acquire()
            partition = partitions[sent % len(partitions)]
            body = produce_body(topic, [(partition, prepared[sent % len(prepared)])])
            sent += 1
            await pipe.send(PRODUCE, PRODUCE_VERSION, body)
        finished.set()
    await pipe.close()
    return answers.result()


async def offer(
    port: int, bodies: Callable[[int], bytes], requests_per_second: float, seconds: float
) -> list[float]:
    """Send at a fixed rate whatever the answers do; return seconds from write to answer."""
    pipe = await Pipe.connect(port)
    total = max(int(requests_per_second * seconds), 1)
    sent_at: list[float] = []
    latencies: list[float] = []

    async def receive() -> None:
        for index in range(total):
            check_produced(await pipe.receive())
            latencies.append(time.perf_counter() - sent_at[index])

    async with asyncio.TaskGroup() as group:
        group.create_task(receive())
        started = time.perf_counter()
        for index in range(total):
            pause = started + index / requests_per_second - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            body = bodies(index)
            sent_at.append(time.perf_counter())
            await pipe.send(PRODUCE, PRODUCE_VERSION, body)
    await pipe.close()
    return latencies
