"""Pointers of tables: one winner, and no doubt turned into a no."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.kit import NAME, Fault, FaultyMeta, Place, Weather, memory, nth, on_disk, run

from lakelog.catalog.pointers import ABSENT, Pointers, TablePointer, encode_pointer, parse_pointer
from lakelog.catalog.port import TableName
from lakelog.meta import keys
from lakelog.meta.port import KeyValue
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Unavailable

Open = Callable[[], AbstractAsyncContextManager[Place]]


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def in_memory() -> AsyncIterator[Place]:
        yield memory()

    return in_memory if request.param == "memory" else lambda: on_disk(tmp_path)


def test_a_pointer_is_made_moved_listed_and_dropped(place: Open) -> None:
    async def work() -> None:
        async with place() as there:
            pointers = Pointers(there.meta)
            assert await pointers.get(NAME) is None
            made = await pointers.move(NAME, "s3://b/1.json", expect=ABSENT)
            assert await pointers.get(NAME) == made
            moved = await pointers.move(NAME, "s3://b/2.json", expect=made.version)
            assert (moved.metadata_location, moved.version > made.version) == (
                "s3://b/2.json",
                True,
            )
            other = await pointers.move(TableName("a/b", "x"), "s3://b/3.json", expect=ABSENT)
            assert await pointers.namespaces() == ["a/b", "kafka"]
            assert await pointers.tables("kafka") == [moved]
            assert await pointers.tables("a/b") == [other]
            assert await pointers.tables("a") == []
            await pointers.drop(NAME, expect=moved.version)
            assert await pointers.get(NAME) is None

    run(work)


def test_of_two_that_move_one_pointer_one_hears_of_the_conflict(place: Open) -> None:
    async def work() -> None:
        async with place() as there:
            one, two = Pointers(there.meta), Pointers(there.meta)
            made = await one.move(NAME, "1", expect=ABSENT)
            for stale in (ABSENT, made.version + 100):
                with pytest.raises(Conflict):
                    await two.move(NAME, "2", expect=stale)
            await two.move(NAME, "2", expect=made.version)
            for attempt in (one.move(NAME, "3", expect=made.version), one.drop(NAME, expect=1)):
                with pytest.raises(Conflict):
                    await attempt
            found = await one.get(NAME)
            assert found is not None
            assert found.metadata_location == "2"

    run(work)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_one_lost_message_is_made_good_by_the_same_put_again(place: Open, fault: Fault) -> None:
    async def work() -> None:
        async with place() as there:
            pointers = Pointers(FaultyMeta(there.meta, Weather(nth("key-put", 1, fault))))
            made = await pointers.move(NAME, "1", expect=ABSENT)
            assert await Pointers(there.meta).get(NAME) == made

    run(work)


def test_a_rival_on_top_of_a_lost_reply_leaves_the_outcome_unknown(place: Open) -> None:
    async def work() -> None:
        async with place() as there:
            base = await Pointers(there.meta).move(NAME, "0", expect=ABSENT)

            class Rival(FaultyMeta):
                """Somebody builds on our pointer between our put and its repetition."""

                puts = 0

                async def put(self, key: str, value: bytes | None, **more: object) -> int:
                    self.puts += 1
                    if self.puts == 1:
                        version = await there.meta.put(key, value, expect=base.version)
                        await Pointers(there.meta).move(NAME, "theirs", expect=version)
                        raise OutcomeUnknown("lost")
                    return await there.meta.put(key, value, expect=base.version)

            with pytest.raises(OutcomeUnknown):
                await Pointers(Rival(there.meta, Weather())).move(NAME, "1", expect=base.version)

    run(work)


def test_what_stays_lost_is_unknown_and_never_a_conflict() -> None:
    async def work() -> None:
        there = memory()
        base = await Pointers(there.meta).move(NAME, "0", expect=ABSENT)
        lost = Pointers(FaultyMeta(there.meta, Weather(lambda kind, key: Fault.LOST_REQUEST)))
        for attempt in (
            lost.move(NAME, "1", expect=base.version),
            lost.drop(NAME, expect=base.version),
        ):
            with pytest.raises(OutcomeUnknown):
                await attempt

    run(work)


def test_a_definite_no_of_the_store_is_passed_on_until_something_was_unknown() -> None:
    async def work() -> None:
        there = memory()
        down = Pointers(FaultyMeta(there.meta, Weather(lambda kind, key: Fault.UNAVAILABLE)))
        with pytest.raises(Unavailable):
            await down.move(NAME, "1", expect=ABSENT)
        faults = iter([Fault.LOST_REPLY, Fault.UNAVAILABLE, Fault.UNAVAILABLE])
        worse = Pointers(FaultyMeta(there.meta, Weather(lambda kind, key: next(faults))))
        with pytest.raises(OutcomeUnknown):
            await worse.move(NAME, "1", expect=ABSENT)

    run(work)


def test_a_drop_without_a_reply_is_repeated() -> None:
    async def work() -> None:
        there = memory()
        base = await Pointers(there.meta).move(NAME, "0", expect=ABSENT)
        lost = Weather(nth("key-put", 1, Fault.LOST_REQUEST))
        await Pointers(FaultyMeta(there.meta, lost)).drop(NAME, expect=base.version)
        assert await Pointers(there.meta).get(NAME) is None

    run(work)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{}", b"[]", b"null", b"\xff", b'{"format":2}', b'{"format":1}'),
        encode_pointer(TableName("kafka", "another"), "x"),
        b'{"format":1,"namespace":"kafka","table":7,"metadata_location":"x"}',
    ],
)
def test_a_value_that_is_no_pointer_of_this_table_is_corrupt(value: bytes) -> None:
    async def work() -> None:
        there = memory()
        await there.meta.put(keys.table(NAME.namespace, NAME.table), value)
        with pytest.raises(Corrupt):
            await Pointers(there.meta).get(NAME)

    run(work)


NAMES = st.text(st.characters(exclude_categories=()), max_size=8)


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_two_tables_share_a_key(space: str, name: str, other: str, another: str) -> None:
    key = keys.table(space, name)
    assert (key == keys.table(other, another)) == ((space, name) == (other, another))
    found = KeyValue(key, encode_pointer(TableName(space, name), "x"), 1)
    assert parse_pointer(found) == TablePointer(TableName(space, name), "x", 1)
