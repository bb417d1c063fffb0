"""A thread with a loop: it does what it is told, and it always ends."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from lakelog.kafka_client.failures import Closed, TimedOut
from lakelog.kafka_client.loop_thread import LoopThread


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_work_runs_on_the_thread_and_its_result_or_failure_comes_back() -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ZeroDivisionError("mine")

    with LoopThread("worker") as thread:
        assert thread.run(where()) == "worker"
        with pytest.raises(ZeroDivisionError, match="mine"):
            thread.run(fail())
    assert "worker" not in names()


def test_a_function_is_called_on_the_loop_in_order() -> None:
    seen: list[tuple[int, str]] = []
    done = threading.Event()
    with LoopThread("worker") as thread:
        for number in range(5):
            thread.call(seen.append, (number, "x"))
        thread.call(done.set)
        assert done.wait(10)
    assert seen == [(number, "x") for number in range(5)]


def test_a_caller_that_got_the_number_of_the_ended_thread_hears_that_it_is_closed() -> None:
    async def nothing() -> None:
        pass

    thread = LoopThread("worker")
    ended = thread.run(_number())
    thread.close()
    heard: list[str] = []
    same_number = threading.Event()

    def call() -> None:
        if threading.get_ident() == ended:
            same_number.set()
        try:
            thread.run(nothing())
        except Closed as closed:
            heard.append(str(closed))

    for _ in range(100):  # the first already, as a rule
        caller = threading.Thread(target=call)
        caller.start()
        caller.join()
        if same_number.is_set():
            break
    else:
        pytest.skip("this system does not give out the numbers of threads again")
    assert set(heard) == {"worker is closed"}


async def _number() -> int:
    return threading.get_ident()


def test_work_that_takes_too_long_is_cancelled() -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    with LoopThread("worker") as thread:
        with pytest.raises(TimedOut, match=r"within 0\.01 s"):
            thread.run(wait(), timeout_s=0.01)
        assert ended.wait(10)


def test_a_time_out_of_the_work_itself_is_not_taken_for_ours() -> None:
    async def fail() -> None:
        raise TimeoutError("the work's own")

    with LoopThread("worker") as thread, pytest.raises(TimeoutError, match="the work's own"):
        thread.run(fail(), timeout_s=10)


def test_closing_ends_what_runs_and_tells_who_waits() -> None:
    thread = LoopThread("worker")
    begun, cleaned = threading.Event(), threading.Event()
    heard: list[BaseException] = []

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)  # what is cancelled may still put things back
            cleaned.set()

    def caller() -> None:
        try:
            thread.run(wait())
        except Closed as failure:
            heard.append(failure)

    waiting = threading.Thread(target=caller)
    waiting.start()
    assert begun.wait(10)
    thread.close()
    waiting.join(10)
    assert cleaned.is_set()
    assert len(heard) == 1
    assert "worker" not in names()


def test_a_closed_thread_takes_nothing_and_closing_again_is_allowed() -> None:
    thread = LoopThread("worker")
    thread.close()
    thread.close()
    assert thread.is_closed

    async def nothing() -> None: ...

    with pytest.raises(Closed):
        thread.run(nothing())
    thread.call(pytest.fail, "it must not be called")


def test_a_forgotten_thread_ends() -> None:
    thread = LoopThread("forgotten")
    inner = weakref.ref(thread._core.thread)
    del thread
    gc.collect()
    left = inner()
    assert left is None or not left.is_alive()


def test_an_interpreter_that_exits_without_closing_does_not_hang() -> None:
    program = (
        "import asyncio, threading\n"
        "from lakelog.kafka_client.loop_thread import LoopThread\n"
        "kept = LoopThread('kept')\n"
        "begun = threading.Event()\n"
        "async def forever():\n"
        "    begun.set()\n"
        "    try:\n"
        "        await asyncio.get_running_loop().create_future()\n"
        "    finally:\n"
        "        print('put back', flush=True)\n"
        "asyncio.run_coroutine_threadsafe(forever(), kept.loop)\n"
        "begun.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "put back\n", "")


def test_a_forked_child_hears_that_the_thread_is_not_there() -> None:
    async def nothing() -> None: ...

    with LoopThread("worker") as thread:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                thread.run(nothing())
            except Closed:
                thread.close()
                code = 7
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        thread.run(nothing(), timeout_s=10)  # the parent's thread goes on
