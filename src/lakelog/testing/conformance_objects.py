"""What every object store must do, as checks that any backend can run.

Write an `ObjectSubject` for your store, and run every function of `CHECKS` on a fresh one:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check): asyncio.run(check(MySubject()))

A check's name is its claim; it raises AssertionError when the claim does not hold.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeAlias

from lakelog.clock import SeededEntropy
from lakelog.model.failures import Corrupt, Failure, NotFound, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.port import Buffer, ObjectStore, probe

SKEW_MS_MAX: Final = 60_000
"""How far clocks may be apart where records are deleted by age (rule 20)."""

HOSTILE_KEYS: Final = (
    *(
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a/.",
        "~incoming/a",
    ),
    *("a b", "a\\b", "a\nb", "a\x00b", "ä", "a%2fb", "a?b", "a#b", "a*", "a:b", "a+b", "x" * 1000),
)


class ObjectSubject(Protocol):
    """One object store that is put to the test; it is empty at the beginning."""

    async def open(self) -> ObjectStore:
        """Open another handle on the store, as another process would."""


Check: TypeAlias = Callable[[ObjectSubject], Awaitable[None]]


@asynccontextmanager
async def opened(subject: ObjectSubject) -> AsyncIterator[ObjectStore]:
    """A handle that is closed at the end."""
    store = await subject.open()
    try:
        yield store
    finally:
        await store.close()


async def fails(work: Awaitable[object], kind: type[Failure]) -> bool:
    """Whether the work raises a failure of this kind."""
    try:
        await work
    except kind:
        return True
    return False


async def listed(store: ObjectStore, prefix: str) -> dict[str, int]:
    """Keys and sizes of a listing, which is asserted to name no object twice."""
    found = [(info.key, info.size_bytes) async for info in store.list(prefix)]
    assert len(dict(found)) == len(found), "an object is listed twice"
    return dict(found)


async def an_object_is_read_back(subject: ObjectSubject) -> None:
    """Whatever its bytes are and however deep its key, through any handle, at once."""
    contents: dict[str, bytes] = {
        "plain": b"x",
        "wal/0/date=2026/11/15/01-ab.wo": bytes(range(256)) * 300,
        "A.b-c=d/E": b"\x00\xff",
    }
    async with opened(subject) as store, opened(subject) as other:
        for key, content in contents.items():
            await store.put(key, [content])
            view = await other.get(key)
            assert (view.format, view.ndim, view.itemsize) == ("B", 1, 1)
            assert bytes(view) == content


async def parts_are_joined_in_order(subject: ObjectSubject) -> None:
    """Thousands of them, of every kind of buffer, some of them empty."""
    parts: list[Buffer] = []
    for number in range(5000):
        part = number.to_bytes(3, "big") * (number % 7)
        parts.append((part, bytearray(part), memoryview(part))[number % 3])
    async with opened(subject) as store:
        await store.put("parts", parts)
        assert bytes(await store.get("parts")) == b"".join(parts)


async def an_object_may_be_empty(subject: ObjectSubject) -> None:
    """With no part at all, or an empty one."""
    nothing: list[Sequence[Buffer]] = [[], [b""], [memoryview(b""), b""]]
    async with opened(subject) as store:
        for parts in nothing:
            await store.put("empty", parts)
            assert bytes(await store.get("empty")) == b""
        assert await listed(store, "") == {"empty": 0}


async def a_large_object_survives(subject: ObjectSubject) -> None:
    """64 MiB in one piece; ranges of it are as exact as those of a small one."""
    block = bytes(range(256)) * 4096
    async with opened(subject) as store:
        await store.put("large", [number.to_bytes(8, "big") + block[8:] for number in range(64)])
        spans = [ByteRange(number << 20, (number << 20) + 9) for number in (63, 0, 17)]
        found = await store.get_ranges("large", spans)
        assert [bytes(part) for part in found] == [
            number.to_bytes(8, "big") + block[8:9] for number in (63, 0, 17)
        ]
        whole = await store.get("large")
        assert len(whole) == 64 << 20
        assert whole[-len(block) + 8 :] == block[8:]


async def ranges_are_exact(subject: ObjectSubject) -> None:
    """In the order asked for, overlapping, repeated, single bytes and the whole."""
    content = bytes(number * 7 % 251 for number in range(100_000))
    pairs = [
        (99_999, 100_000),
        (0, 1),
        (50, 60),
        (55, 70),
        (50, 60),
        (0, 100_000),
        (65_535, 65_537),
    ]
    pairs += [(number * 90, number * 90 + 3) for number in range(1000)]
    spans = [ByteRange(start, end) for start, end in pairs]
    async with opened(subject) as store:
        await store.put("r", [content])
        found = await store.get_ranges("r", spans)
        assert [bytes(part) for part in found] == [content[start:end] for start, end in pairs]
        assert await store.get_ranges("r", []) == []


async def a_range_beyond_the_end_is_corrupt(subject: ObjectSubject) -> None:
    """Never a shorter answer, even when the other ranges are there."""
    async with opened(subject) as store:
        await store.put("r", [b"0123456789"])
        for spans in ([(9, 11)], [(10, 11)], [(5000, 5001)], [(0, 1), (9, 11)]):
            asked = [ByteRange(start, end) for start, end in spans]
            assert await fails(store.get_ranges("r", asked), Corrupt), spans


async def an_empty_range_is_a_bug(subject: ObjectSubject) -> None:
    """Stores disagree on what it would mean."""
    async with opened(subject) as store:
        await store.put("r", [b"0123456789"])
        try:
            await store.get_ranges("r", [ByteRange(0, 1), ByteRange(3, 3)])
        except AssertionError:
            return
        raise AssertionError("an empty range was served")


async def a_missing_object_is_not_found(subject: ObjectSubject) -> None:
    """Also where its key is the beginning of another, or goes on behind it."""
    async with opened(subject) as store:
        await store.put("a/b/c", [b"x"])
        for key in ("nothing", "a", "a/b", "a/b/d", "a/b/c/d", "a/x/c"):
            assert await fails(store.get(key), NotFound), key
            assert await fails(store.get_ranges(key, [ByteRange(0, 1)]), NotFound), key


async def a_put_replaces_the_whole_object(subject: ObjectSubject) -> None:
    """By a longer one, a shorter one, and the same again (C4)."""
    async with opened(subject) as store:
        for content in (b"first", b"a longer one", b"x", b"x"):
            await store.put("k", [content])
            assert bytes(await store.get("k")) == content
        assert await listed(store, "") == {"k": 1}


async def readers_see_whole_objects_only(subject: ObjectSubject) -> None:
    """Puts of one key at once leave one of them, and no reader sees a mixture."""
    contents = [bytes([number]) * 200_000 for number in range(8)]
    async with opened(subject) as store, opened(subject) as other:
        await store.put("k", [contents[0]])
        putting = asyncio.gather(
            *((store, other)[number % 2].put("k", [contents[number]]) for number in range(8))
        )
        while not putting.done():
            assert bytes(await other.get("k")) in contents
            await asyncio.sleep(0)
        await putting
        assert bytes(await store.get("k")) in contents


async def many_puts_at_once_all_land(subject: ObjectSubject) -> None:
    """In new directories too, which several of them make at the same time."""
    keys = [f"new/{number % 5}/date=2026/{number}" for number in range(100)]
    async with opened(subject) as store:
        await asyncio.gather(*(store.put(key, [key.encode()]) for key in keys))
        assert await listed(store, "new/") == {key: len(key) for key in keys}
        found = await asyncio.gather(*(store.get(key) for key in keys))
        assert [bytes(content).decode() for content in found] == keys


async def a_listing_is_by_whole_segments(subject: ObjectSubject) -> None:
    """Everything below the prefix, at any depth, and nothing beside it."""
    keys = [
        "wal/0/date=2026/11/14/a",
        "wal/0/date=2026/11/15/b",
        "wal/0/c",
        "wal/00/d",
        "walrus",
        "x/y",
    ]
    async with opened(subject) as store:
        for key in keys:
            await store.put(key, [b"12"])
        for prefix in (
            "",
            "wal/",
            "wal/0/",
            "wal/0/date=2026/11/15/",
            "x/",
            "nothing/",
            "wal/0/c/",
        ):
            expected = {key: 2 for key in keys if key.startswith(prefix)}
            assert await listed(store, prefix) == expected, prefix


async def a_listing_tells_when(subject: ObjectSubject) -> None:
    """Later objects are not older, to the second."""
    async with opened(subject) as store:
        await store.put("t/1", [b"1"])
        await store.put("t/2", [b"2"])
        times = {info.key: info.modified_ms // 1000 async for info in store.list("t/")}
        assert 0 < times["t/1"] <= times["t/2"]


async def a_long_listing_is_complete(subject: ObjectSubject) -> None:
    """More objects than a page of any store holds."""
    keys = [f"many/{number % 10}/{number:04}" for number in range(1100)]
    async with opened(subject) as store:
        for start in range(0, len(keys), 100):
            await asyncio.gather(*(store.put(key, [b"x"]) for key in keys[start : start + 100]))
        assert sorted(await listed(store, "many/")) == sorted(keys)
        await store.delete(keys)
        assert await listed(store, "many/") == {}


async def a_deletion_can_be_repeated(subject: ObjectSubject) -> None:
    """What is gone is gone, what is not named stays, and its place can be used again."""
    async with opened(subject) as store, opened(subject) as other:
        for key in ("d/e/1", "d/e/2", "d/3"):
            await store.put(key, [b"x"])
        await store.delete(["d/e/1", "never/was", "d/e/2", "d/e/1"])
        await other.delete(["d/e/1"])
        await store.delete([])
        assert await listed(other, "") == {"d/3": 1}
        assert await fails(other.get("d/e/1"), NotFound)
        await store.put("d/e/1", [b"again"])
        assert bytes(await other.get("d/e/1")) == b"again"


async def puts_and_deletions_in_one_directory_get_along(subject: ObjectSubject) -> None:
    """A put never fails because somebody tidied its directory away."""
    async with opened(subject) as store, opened(subject) as other:

        async def come_and_go(handle: ObjectStore, name: str) -> None:
            for number in range(20):
                key = f"tidy/date=2026/{name}-{number}"
                await handle.put(key, [b"x"])
                await handle.delete([key])

        await asyncio.gather(*(come_and_go((store, other)[n % 2], str(n)) for n in range(4)))
        await store.put("tidy/date=2026/last", [b"y"])
        assert await listed(other, "tidy/") == {"tidy/date=2026/last": 1}


async def a_key_cannot_leave_its_prefix(subject: ObjectSubject) -> None:
    """A key that is not made of plain segments is a bug of the caller (S3)."""
    async with opened(subject) as store:
        for key in HOSTILE_KEYS:
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(store.put, key, [b"x"]),
                partial(store.get, key),
                partial(store.delete, [key]),
            ]
            for call in calls:
                try:
                    await call()
                except AssertionError:
                    continue
                raise RuntimeError(f"{key!r} was taken for a key")
        assert await listed(store, "") == {}


async def a_cancelled_put_leaves_the_store_usable(subject: ObjectSubject) -> None:
    """It may have happened or not, but never by half."""
    async with opened(subject) as store:
        for number in range(10):
            putting = asyncio.gather(store.put(f"c/{number}", [b"x" * 100_000]))
            for _ in range(number):
                await asyncio.sleep(0)
            putting.cancel()
            await asyncio.gather(putting, return_exceptions=True)
        await store.put("c/last", [b"x" * 100_000])
        sizes = await listed(store, "c/")
        assert set(sizes.values()) == {100_000}
        assert "c/last" in sizes


async def the_clock_is_ours(subject: ObjectSubject) -> None:
    """Within what deleting by age allows; measuring it leaves nothing behind."""
    async with opened(subject) as store:
        assert abs(await store.clock_skew_ms()) <= SKEW_MS_MAX
        assert await listed(store, "") == {}


async def the_probe_passes_and_leaves_nothing(subject: ObjectSubject) -> None:
    """What conforms is not refused at start."""
    async with opened(subject) as store:
        await probe(store, SeededEntropy("probe"))
        assert await listed(store, "") == {}


async def a_closed_handle_leaves_the_objects(subject: ObjectSubject) -> None:
    """It answers `Unavailable`, and others go on."""
    store = await subject.open()
    await store.put("k", [b"x"])
    await store.close()
    await store.close()
    assert await fails(store.get("k"), Unavailable)
    assert await fails(store.put("k", [b"y"]), Unavailable)
    assert await fails(store.delete(["k"]), Unavailable)
    async with opened(subject) as other:
        assert bytes(await other.get("k")) == b"x"


CHECKS: Final[tuple[Check, ...]] = (
    an_object_is_read_back,
    parts_are_joined_in_order,
    an_object_may_be_empty,
    a_large_object_survives,
    ranges_are_exact,
    a_range_beyond_the_end_is_corrupt,
    an_empty_range_is_a_bug,
    a_missing_object_is_not_found,
    a_put_replaces_the_whole_object,
    readers_see_whole_objects_only,
    many_puts_at_once_all_land,
    a_listing_is_by_whole_segments,
    a_listing_tells_when,
    a_long_listing_is_complete,
    a_deletion_can_be_repeated,
    puts_and_deletions_in_one_directory_get_along,
    a_key_cannot_leave_its_prefix,
    a_cancelled_put_leaves_the_store_usable,
    the_clock_is_ours,
    the_probe_passes_and_leaves_nothing,
    a_closed_handle_leaves_the_objects,
)
