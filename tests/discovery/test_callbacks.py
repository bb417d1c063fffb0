"""Callbacks run in order on a thread of their own, and their trouble stays there."""

import functools
import logging
import threading
from collections.abc import Iterator

import pytest

from lakelog.clock import SystemClock
from lakelog.discovery.callbacks import CallbackThread, Listeners
from lakelog.testing.conformance_meta import ManualClock

LONG_S = 10.0


@pytest.fixture
def thread() -> Iterator[CallbackThread]:
    made = CallbackThread("test-callbacks", SystemClock())
    yield made
    assert made.close(LONG_S)


def running() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "test-callbacks"]


def test_callbacks_run_in_order_and_elsewhere(thread: CallbackThread) -> None:
    heard: list[tuple[str, int, str]] = []
    listeners: Listeners[int] = Listeners()

    def hear(name: str, value: int) -> None:
        heard.append((name, value, threading.current_thread().name))

    for name in "ab":
        listeners.add(functools.partial(hear, name))
    told = [listeners.tell(number, thread) for number in range(3)]
    for each in told:
        each.result(LONG_S)
    assert [(name, value) for name, value, _ in heard] == [
        (name, value) for value in range(3) for name in "ab"
    ]
    assert {where for _, _, where in heard} == {"test-callbacks"}


def test_without_callbacks_there_is_no_thread(thread: CallbackThread) -> None:
    listeners: Listeners[int] = Listeners()
    assert listeners.tell(1, thread).done()
    assert not running()


def test_what_a_callback_raises_is_logged_and_the_next_one_runs(
    thread: CallbackThread, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []
    listeners: Listeners[int] = Listeners()
    listeners.add(lambda value: heard.append(value // 0))
    listeners.add(heard.append)
    with caplog.at_level(logging.ERROR, logger="lakelog.discovery"):
        listeners.tell(7, thread).result(LONG_S)
    assert heard == [7]
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_that_blocks_is_known_by_its_time() -> None:
    clock = ManualClock()
    thread = CallbackThread("test-callbacks", clock)
    began, go = threading.Event(), threading.Event()

    def block(_: int) -> None:
        began.set()
        assert go.wait(LONG_S)

    listeners: Listeners[int] = Listeners()
    listeners.add(block)
    assert thread.busy_s() == 0.0
    told = listeners.tell(1, thread)
    assert began.wait(LONG_S)
    clock.advance(5.0)
    assert thread.busy_s() == 5.0
    assert not thread.close(0.0)
    go.set()
    told.result(LONG_S)
    assert thread.close(LONG_S)
    assert thread.busy_s() == 0.0


def test_closing_finishes_what_was_asked_and_takes_nothing_new() -> None:
    thread = CallbackThread("test-callbacks", SystemClock())
    heard: list[int] = []
    listeners: Listeners[int] = Listeners()
    listeners.add(heard.append)
    for number in range(100):
        listeners.tell(number, thread)
    assert thread.close(LONG_S)
    assert heard == list(range(100))
    assert listeners.tell(100, thread).done()
    assert heard == list(range(100))
    assert not running()
    assert thread.close(LONG_S), "a second time is no harm"


def test_a_callback_may_close_its_own_thread() -> None:
    thread = CallbackThread("test-callbacks", SystemClock())
    listeners: Listeners[int] = Listeners()
    answers: list[bool] = []
    listeners.add(lambda _: answers.append(thread.close(LONG_S)))
    listeners.tell(1, thread).result(LONG_S)
    assert answers == [True]
    assert thread.close(LONG_S)
    assert not running()


def test_a_coroutine_function_is_no_callback(thread: CallbackThread) -> None:
    async def wrong(_: int) -> None: ...

    listeners: Listeners[int] = Listeners()
    with pytest.raises(TypeError, match="plain function"):
        listeners.add(wrong)
