"""What the conformance suite does not ask of the store in memory."""

import asyncio

from lakelog.meta.memory import MemoryMetadataStore
from lakelog.testing.conformance_meta import ManualClock


def test_two_runs_of_the_same_calls_give_the_same_names_and_versions() -> None:
    async def run() -> list[object]:
        clock = ManualClock()
        store = MemoryMetadataStore(clock)
        session = await store.session(ttl_s=1)
        seen: list[object] = [session.id, await store.put("a", b"1", session=session)]
        clock.advance(2)
        seen += [
            await store.get("a"),
            await store.put("a", b"2"),
            await store.log("l").append(b"x"),
        ]
        return seen

    assert asyncio.run(run()) == asyncio.run(run())


def test_waiting_leaves_no_task_and_no_timer_behind() -> None:
    async def run() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.log("l").wait(after=0, timeout_s=0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
