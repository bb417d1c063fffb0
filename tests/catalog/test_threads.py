"""Threads that call back to the loop, in time or not at all."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.catalog.kit import run

from lakelog.catalog.threads import Calls, LibraryThreads
from lakelog.clock import SystemClock
from lakelog.model.failures import Corrupt, OutcomeUnknown, Unavailable


async def forever() -> int:
    never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return await never


async def seven() -> int:
    return 7


async def corrupt() -> int:
    raise Corrupt("as it is")


def test_a_call_runs_on_the_loop_and_the_work_elsewhere() -> None:
    async def work() -> None:
        loop_thread = threading.get_ident()

        async def where() -> int:
            return threading.get_ident()

        def blocking(calls: Calls) -> tuple[int, int, int]:
            with ThreadPoolExecutor(1) as library:  # PyIceberg has threads of its own
                nested = library.submit(calls.read, where).result()
            return threading.get_ident(), calls.read(where), nested

        bridge = LibraryThreads(SystemClock(), threads=1)
        there, here, nested = await bridge.run(blocking, timeout_s=10)
        assert there != loop_thread
        assert here == nested == loop_thread
        await bridge.close()

    run(work)


def test_a_failure_of_the_store_arrives_as_it_is() -> None:
    async def work() -> None:
        bridge = LibraryThreads(SystemClock(), threads=1)
        with pytest.raises(Corrupt, match="as it is"):
            await bridge.run(lambda calls: calls.read(corrupt), timeout_s=10)
        await bridge.close()

    run(work)


def test_a_write_without_an_answer_is_unknown_and_a_read_is_not() -> None:
    async def work() -> None:
        bridge = LibraryThreads(SystemClock(), threads=1)
        with pytest.raises(OutcomeUnknown):
            await bridge.run(lambda calls: calls.write(forever), timeout_s=0.02)
        with pytest.raises(Unavailable):
            await bridge.run(lambda calls: calls.read(forever), timeout_s=0.02)
        await bridge.close()

    run(work)


def test_after_the_deadline_nothing_more_is_asked_for() -> None:
    async def work() -> None:
        bridge = LibraryThreads(SystemClock(), threads=1)
        begun = []

        async def begins() -> None:
            begun.append(1)

        def blocking(calls: Calls) -> None:
            with pytest.raises(Unavailable):
                calls.read(forever)
            calls.write(begins)

        with pytest.raises(Unavailable, match="nothing more"):
            await bridge.run(blocking, timeout_s=0.02)
        assert not begun
        await bridge.close()

    run(work)


def test_a_cancelled_operation_cancels_its_call_and_ends_its_thread() -> None:
    async def work() -> None:
        bridge = LibraryThreads(SystemClock(), threads=1)
        ended: list[str] = []
        calling = asyncio.Event()

        async def long() -> None:
            calling.set()
            try:
                await forever()
            finally:
                ended.append("call")

        def blocking(calls: Calls) -> None:
            try:
                calls.write(long)
            except OutcomeUnknown:
                ended.append("unknown")
                with pytest.raises(Unavailable):
                    calls.write(seven)
                ended.append("thread")
                raise

        running = asyncio.ensure_future(bridge.run(blocking, timeout_s=60))
        await calling.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert {"unknown", "thread"} <= set(ended)
        await asyncio.wait_for(bridge.close(), 10)
        assert sorted(ended) == ["call", "thread", "unknown"]

    run(work)


def test_a_library_that_hangs_is_left_and_what_it_did_is_unknown() -> None:
    async def work() -> None:
        bridge = LibraryThreads(SystemClock(), threads=1, hang_s=0.05)
        free = threading.Event()
        with pytest.raises(OutcomeUnknown):
            await bridge.run(lambda calls: free.wait(), timeout_s=0.05)
        with pytest.raises(Unavailable, match="no thread"):
            await bridge.run(lambda calls: 7, timeout_s=0.05)
        waiting = asyncio.ensure_future(bridge.run(lambda calls: 7, timeout_s=60))
        free.set()
        assert await waiting == 7
        await bridge.close()

    run(work)


def test_a_caller_that_gives_up_does_not_wait_for_a_library_that_hangs() -> None:
    async def work() -> None:
        bridge = LibraryThreads(SystemClock(), threads=1, hang_s=0.05)
        began, free = threading.Event(), threading.Event()

        def hang(calls: Calls) -> None:
            began.set()
            free.wait()

        running = asyncio.ensure_future(bridge.run(hang, timeout_s=60))
        await asyncio.to_thread(began.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(bridge.close(), 10)
        free.set()

    run(work)
