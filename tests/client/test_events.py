"""The queue between those who read and the one who gives out."""

import threading

from lakelog.client.events import BufferFull, EventQueue


def test_events_come_out_once_and_in_order() -> None:
    arrivals = EventQueue()
    first, second = BufferFull(), BufferFull()
    arrivals.put([first])
    arrivals.put([second])
    assert arrivals.drain() == [first, second]
    assert arrivals.drain() == []


def test_whoever_waits_is_woken_by_an_event() -> None:
    arrivals = EventQueue()
    woken = threading.Event()

    def wait() -> None:
        arrivals.wait(30)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    arrivals.put([BufferFull()])
    assert woken.wait(10)
    thread.join()


def test_whoever_comes_too_late_to_wait_does_not() -> None:
    arrivals = EventQueue()
    arrivals.put([BufferFull()])
    arrivals.wait(30)
    called: list[int] = []
    arrivals.call_when_changed(lambda: called.append(1))
    assert called == [1]


def test_a_waker_is_called_once_and_not_after_it_was_forgotten() -> None:
    arrivals = EventQueue()
    called: list[str] = []

    def one() -> None:
        called.append("one")

    def two() -> None:
        called.append("two")

    arrivals.call_when_changed(one)
    arrivals.call_when_changed(two)
    arrivals.forget(two)
    arrivals.put([BufferFull()])
    arrivals.put([BufferFull()])
    assert called == ["one"]


def test_a_close_wakes_all_and_nobody_waits_then() -> None:
    arrivals = EventQueue()
    called: list[int] = []
    arrivals.call_when_changed(lambda: called.append(1))
    arrivals.close()
    arrivals.wait(30)
    assert called == [1]
