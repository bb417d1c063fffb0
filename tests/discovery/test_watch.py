"""Watching a value: only changes, always the newest, from threads and loops."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.discovery.watch import Publisher, Watch

LONG_S = 10.0
SHORT_S = 0.01


def test_the_first_value_is_there_but_was_not_published() -> None:
    watch = Publisher(1).watch()
    assert watch.value == 1
    assert watch.next_change(SHORT_S) is None


def test_an_equal_value_is_no_change() -> None:
    source = Publisher((1, 2))
    assert not source.publish((1, 2))
    assert source.publish((1, 3))
    watch = source.watch()
    assert watch.next_change(SHORT_S) == (1, 3)
    assert not source.publish((1, 3))
    assert watch.next_change(SHORT_S) is None


def test_a_late_watcher_begins_with_what_stands() -> None:
    source = Publisher(0)
    source.publish(1)
    source.publish(2)
    assert source.watch().next_change(SHORT_S) == 2


def test_each_watcher_has_its_own_place() -> None:
    source = Publisher(0)
    first, second = source.watch(), source.watch()
    source.publish(1)
    assert first.next_change(SHORT_S) == 1
    source.publish(2)
    assert (first.next_change(SHORT_S), second.next_change(SHORT_S)) == (2, 2)


def test_closing_ends_iteration_after_the_last_value() -> None:
    source = Publisher(0)
    watch = source.watch()
    source.publish(5)
    source.close()
    assert list(watch) == [5]
    assert list(watch) == []
    assert not source.publish(6)


def test_a_failure_is_raised_after_the_last_value_by_every_watcher() -> None:
    source = Publisher(0)
    source.publish(5)
    source.close(ValueError("gone"))
    source.close()
    for _ in range(2):
        watch = source.watch()
        assert next(watch) == 5
        with pytest.raises(ValueError, match="gone"):
            next(watch)


def test_a_blocked_thread_is_woken_by_a_value_and_by_the_end() -> None:
    source = Publisher(0)
    seen: list[int] = []
    one = threading.Event()

    def read() -> None:
        for value in source.watch():
            seen.append(value)
            one.set()

    thread = threading.Thread(target=read)
    thread.start()
    source.publish(1)
    assert one.wait(LONG_S)
    source.close()
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert seen == [1]


def test_closing_a_watcher_ends_it_alone_and_from_another_thread() -> None:
    source = Publisher(0)
    mine, other = source.watch(), source.watch()
    thread = threading.Thread(target=list, args=(mine,))
    thread.start()
    mine.close()
    thread.join(LONG_S)
    assert not thread.is_alive()
    source.publish(1)
    assert list(mine) == []
    assert next(other) == 1


def test_closing_a_watcher_ends_async_iteration() -> None:
    source = Publisher(0)

    async def scene() -> list[int]:
        mine, other = source.watch(), source.watch()
        waiting = asyncio.ensure_future(other.next_change_async(LONG_S))
        reading = asyncio.ensure_future(mine.next_change_async(LONG_S))
        await asyncio.sleep(0)
        mine.close()
        assert await reading is None
        assert not waiting.done(), "it was not for the other one"
        source.publish(4)
        return [value async for value in mine] + [await waiting or 0]

    assert asyncio.run(scene()) == [4]


def test_async_iteration_hears_what_another_thread_publishes() -> None:
    source = Publisher(0)

    async def read() -> list[int]:
        return [value async for value in source.watch()]

    async def scene() -> list[int]:
        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, source.publish, 1)
        while source.value != 1 or not reading.done():
            await asyncio.sleep(0)
            source.close()
        return await reading

    assert asyncio.run(scene()) == [1]


def test_async_waiting_has_a_deadline_and_leaves_nothing_behind() -> None:
    source = Publisher(0)

    async def scene() -> None:
        assert await source.watch().next_change_async(SHORT_S) is None

    asyncio.run(scene())
    assert not source._wakers
    assert source.publish(1)


def test_a_watcher_whose_loop_was_closed_does_not_disturb_the_source() -> None:
    source = Publisher(0)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(source.watch().next_change_async())
    loop.run_until_complete(asyncio.sleep(0))
    wakers = set(source._wakers)
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    source._wakers |= wakers
    assert len(wakers) == 1
    assert source.publish(1)


def test_values_published_from_many_threads_end_at_the_last_one() -> None:
    source = Publisher(-1)
    watch: Watch[int] = source.watch()
    threads = [threading.Thread(target=source.publish, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert watch.next_change(LONG_S) == source.value


@given(st.lists(st.one_of(st.integers(0, 3), st.none())))
def test_a_watcher_sees_changes_only_and_ends_with_the_newest(steps: list[int | None]) -> None:
    """A number is published, None is a look by the watcher."""
    source = Publisher(0)
    watch = source.watch()
    seen: list[int] = []
    published = [0]
    for step in steps:
        if step is None:
            found = watch.next_change(0)
            seen += [] if found is None else [found]
        elif source.publish(step):
            assert step != published[-1]
            published.append(step)
    source.close()
    seen += list(watch)
    remaining = iter(published[1:])
    assert all(value in remaining for value in seen), "out of order"
    if len(published) > 1:
        assert seen[-1] == published[-1]
