"""The queue between those who read and the one who gives out."""

import threading

from lakelog.client.events import BufferFull, ConsumerEvents


def test_events_come_out_once_and_in_order() -> None:
    event_queue = ConsumerEvents()
    first, second = BufferFull(), BufferFull()
    event_queue.put([first])
    event_queue.put([second])
    assert event_queue.drain() == [first, second]
    assert event_queue.drain() == []


def test_whoever_waits_is_woken_by_an_event() -> None:
    event_queue = ConsumerEvents()
    woken = threading.Event()

    def wait() -> None:
        event_queue.wait(30)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    event_queue.put([BufferFull()])
    assert woken.wait(10)
    thread.join()


def test_whoever_comes_too_late_to_wait_does_not() -> None:
    event_queue = ConsumerEvents()
    event_queue.put([BufferFull()])
    event_queue.wait(30)
    called: list[int] = []
    event_queue.call_when_changed(lambda: called.append(1))
    assert called == [1]


def test_a_waker_is_called_once_and_not_after_it_was_forgotten() -> None:
    event_queue = ConsumerEvents()
    called: list[str] = []

    def one() -> None:
        called.append("one")

    def two() -> None:
        called.append("two")

    event_queue.call_when_changed(one)
    event_queue.call_when_changed(two)
    event_queue.forget(two)
    event_queue.put([BufferFull()])
    event_queue.put([BufferFull()])
    assert called == ["one"]


def test_a_close_wakes_all_and_nobody_waits_then() -> None:
    event_queue = ConsumerEvents()
    called: list[int] = []
    event_queue.call_when_changed(lambda: called.append(1))
    event_queue.close()
    event_queue.wait(30)
    assert called == [1]
