"""What every metadata store must do, as checks that any backend can run.

Write a `MetadataSubject` for your store, and run every function of `CHECKS` on a fresh one:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check): asyncio.run(check(MySubject()))

A check's name is its claim; it raises AssertionError when the claim does not hold. Claims about
logs are in `lakelog.testing.conformance_log`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

from lakelog.meta.port import VALUE_BYTES_MAX, KeyValue, MetadataStore
from lakelog.model.failures import Conflict, Unavailable


class ManualClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._started_ms = now_ms
        self._passed_s = 0.0

    def advance(self, seconds: float) -> None:
        """Let this much time pass."""
        assert seconds >= 0, seconds
        self._passed_s += seconds

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""
        return self._started_ms + round(self._passed_s * 1000)

    def monotonic_s(self) -> float:
        """Seconds since the clock was made."""
        return self._passed_s


class MetadataSubject(Protocol):
    """One metadata store that is put to the test; it is empty at the beginning."""

    async def open(self) -> MetadataStore:
        """Open another handle on the store, as another process would."""

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for the store and its handles, really or by their clock."""


Check: TypeAlias = Callable[[MetadataSubject], Awaitable[None]]


@asynccontextmanager
async def opened(subject: MetadataSubject) -> AsyncIterator[MetadataStore]:
    """A handle that is closed at the end."""
    store = await subject.open()
    try:
        yield store
    finally:
        await store.close()


async def conflicts(work: Awaitable[object]) -> bool:
    """Whether the work raises `Conflict`."""
    try:
        await work
    except Conflict:
        return True
    return False


async def value_of(store: MetadataStore, key: str) -> bytes | None:
    """The key's value alone."""
    found = await store.get(key)
    return None if found is None else found.value


async def an_absent_key_is_none(subject: MetadataSubject) -> None:
    """Nothing is there before the first put."""
    async with opened(subject) as store:
        assert await store.get("a") is None
        assert await store.range("") == []


async def a_put_is_read_back(subject: MetadataSubject) -> None:
    """Value and version are those of the put, also for empty and binary values."""
    async with opened(subject) as store:
        for key, value in {
            "a": b"1",
            "b": b"",
            "c/ü": bytes(range(256)),
            'it\'s "odd"': b"q",
        }.items():
            version = await store.put(key, value)
            assert version > 0
            assert await store.get(key) == KeyValue(key, value, version)


async def a_version_grows_with_every_change(subject: MetadataSubject) -> None:
    """Also when the value stays the same."""
    async with opened(subject) as store:
        versions = [await store.put("a", b"same") for _ in range(5)]
        assert versions == sorted(set(versions))


async def a_version_is_never_reused(subject: MetadataSubject) -> None:
    """Not after a deletion, and not after a restart."""
    async with opened(subject) as store:
        first = await store.put("a", b"1")
        assert await store.put("a", None) == 0
    async with opened(subject) as store:
        second = await store.put("a", b"1", expect=0)
        assert second > first
        assert await conflicts(store.put("a", b"2", expect=first))


async def an_expected_version_of_zero_means_absent(subject: MetadataSubject) -> None:
    """A key can be created exactly once."""
    async with opened(subject) as store:
        assert await store.put("a", b"1", expect=0) > 0
        assert await conflicts(store.put("a", b"2", expect=0))
        assert await value_of(store, "a") == b"1"


async def a_stale_put_conflicts_and_changes_nothing(subject: MetadataSubject) -> None:
    """Neither the value nor the version, for a change and for a deletion."""
    async with opened(subject) as store:
        old = await store.put("a", b"1")
        new = await store.put("a", b"2", expect=old)
        assert await conflicts(store.put("a", b"3", expect=old))
        assert await conflicts(store.put("a", None, expect=old))
        assert await store.get("a") == KeyValue("a", b"2", new)
        assert await conflicts(store.put("absent", b"1", expect=new))
        assert await store.get("absent") is None


async def a_deletion_can_be_repeated(subject: MetadataSubject) -> None:
    """Deleting what is not there is fine, unless another version was expected."""
    async with opened(subject) as store:
        version = await store.put("a", b"1")
        assert await store.put("a", None, expect=version) == 0
        assert await store.put("a", None) == 0
        assert await store.put("a", None, expect=0) == 0
        assert await conflicts(store.put("a", None, expect=version))


async def puts_race_and_one_wins(subject: MetadataSubject) -> None:
    """Of many puts that expect one version, through two handles, one succeeds."""
    async with opened(subject) as first, opened(subject) as second:
        version = await first.put("a", b"start")
        racers = [
            store.put("a", str(number).encode(), expect=version)
            for number, store in enumerate([first, second] * 10)
        ]
        outcomes = await asyncio.gather(*racers, return_exceptions=True)
        won = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, int)]
        assert len(won) == 1
        assert all(isinstance(outcome, int | Conflict) for outcome in outcomes)
        assert await value_of(second, "a") == str(won[0]).encode()


async def a_conflict_leaves_other_callers_alone(subject: MetadataSubject) -> None:
    """Puts that are under way together fail and succeed each for itself."""
    async with opened(subject) as store:
        puts = [store.put(f"k{n:02}", b"v", expect=n % 2) for n in range(20)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert [isinstance(outcome, Conflict) for outcome in outcomes] == [False, True] * 10
        assert [found.key for found in await store.range("k")] == [
            f"k{n:02}" for n in range(0, 20, 2)
        ]


async def a_range_is_sorted_by_code_point(subject: MetadataSubject) -> None:
    """Whatever alphabet the keys are written in."""
    keys = [
        "p/",
        "p/\x01",
        "p/A",
        "p/Z",
        "p/a",
        "p/é",
        "p/\ud7ff",
        "p/\ue000",
        "p/\uffff",
        "p/\U0001f600",
    ]
    keys += ["p/\U0010ffff", "p/\U0010ffff\U0010ffff"]
    async with opened(subject) as store:
        for key in reversed(keys):
            await store.put(key, b"")
        assert [found.key for found in await store.range("p/")] == sorted(keys)


async def a_range_takes_its_prefix_literally(subject: MetadataSubject) -> None:
    """No character is a wildcard, and a prefix may be a whole key, or end anywhere."""
    keys = [
        "a",
        "a%",
        "a%b",
        "a*",
        "a?",
        "a[b]",
        "a_",
        "a_b",
        "ab",
        "aé",
        "a\ud7ff",
        "b",
        "a\U0010ffffz",
    ]
    async with opened(subject) as store:
        for key in keys:
            await store.put(key, b"")
        for prefix in [
            "",
            "a",
            "a%",
            "a_",
            "a*",
            "a?",
            "a[",
            "aé",
            "a\ud7ff",
            "a\U0010ffff",
            "b",
            "c",
        ]:
            expected = sorted(key for key in keys if key.startswith(prefix))
            assert [found.key for found in await store.range(prefix)] == expected, prefix


async def a_range_is_one_moment(subject: MetadataSubject) -> None:
    """Of two keys that are written one after the other, the second is never ahead."""
    async with opened(subject) as writer, opened(subject) as reader:

        async def write() -> None:
            for number in range(50):
                await writer.put("pair/first", bytes([number]))
                await writer.put("pair/second", bytes([number]))

        writing = asyncio.gather(write())
        while not writing.done():
            found = {item.key: item.value for item in await reader.range("pair/")}
            if "pair/second" in found:
                assert found["pair/second"] <= found["pair/first"]
            await asyncio.sleep(0)
        await writing


async def the_greatest_value_survives(subject: MetadataSubject) -> None:
    """A value of the greatest size is kept; a greater one is a bug of the caller."""
    value = bytes(range(256)) * (VALUE_BYTES_MAX // 256)
    async with opened(subject) as store:
        await store.put("big", value)
        assert await value_of(store, "big") == value
        try:
            await store.put("big", value + b"x")
        except AssertionError:
            assert await value_of(store, "big") == value
        else:
            raise AssertionError("a value beyond the limit was taken")


async def two_handles_share_keys(subject: MetadataSubject) -> None:
    """What one has put the other reads, at once."""
    async with opened(subject) as first, opened(subject) as second:
        for number in range(10):
            version = await first.put("a", bytes([number]))
            assert await second.get("a") == KeyValue("a", bytes([number]), version)


async def keys_survive_a_restart(subject: MetadataSubject) -> None:
    """A closed handle takes nothing with it, and is of no more use."""
    store = await subject.open()
    version = await store.put("a", b"1")
    await store.close()
    await store.close()
    for work in (store.get("a"), store.range(""), store.put("a", b"2")):
        try:
            await work
        except Unavailable:
            continue
        raise AssertionError("a closed handle answered")
    async with opened(subject) as again:
        assert await again.get("a") == KeyValue("a", b"1", version)


async def keys_vanish_with_a_closed_session(subject: MetadataSubject) -> None:
    """Those of the session, and no others, for everybody."""
    async with opened(subject) as store, opened(subject) as other:
        session = await store.session(ttl_s=60)
        await store.put("s/1", b"1", session=session)
        await store.put("s/2", b"2", session=session)
        await store.put("s/3", b"3")
        assert len(await other.range("s/")) == 3
        await session.close()
        await session.close()
        assert [found.key for found in await other.range("s/")] == ["s/3"]
        assert await store.get("s/1") is None


async def keys_vanish_when_a_session_is_not_renewed(subject: MetadataSubject) -> None:
    """After the time to live, also while their owner still believes in them."""
    async with opened(subject) as store, opened(subject) as other:
        session = await store.session(ttl_s=2)
        await store.put("s/1", b"1", session=session)
        await subject.pass_time(2.5)
        assert await other.get("s/1") is None
        assert await store.range("s/") == []
        assert await conflicts(session.renew())
        assert await conflicts(store.put("s/2", b"2", session=session))
        assert await other.get("s/2") is None


async def a_renewed_session_lives_on(subject: MetadataSubject) -> None:
    """Each renewal gives a whole time to live."""
    async with opened(subject) as store, opened(subject) as other:
        session = await store.session(ttl_s=2)
        await store.put("s/1", b"1", session=session)
        for _ in range(3):
            await subject.pass_time(1.5)
            await session.renew()
        assert await value_of(other, "s/1") == b"1"


async def a_key_of_an_ended_session_is_absent(subject: MetadataSubject) -> None:
    """Another may take it, and keeps it, whatever its former owner does."""
    async with opened(subject) as old, opened(subject) as new:
        former = await old.session(ttl_s=2)
        first = await old.put("owner", b"old", expect=0, session=former)
        await subject.pass_time(2.5)
        latter = await new.session(ttl_s=60)
        second = await new.put("owner", b"new", expect=0, session=latter)
        assert second > first
        assert await conflicts(former.renew())
        assert await conflicts(old.put("owner", b"old", expect=first, session=former))
        await former.close()
        assert await old.get("owner") == KeyValue("owner", b"new", second)


async def a_put_without_the_session_makes_a_key_permanent(subject: MetadataSubject) -> None:
    """And a put with a session ties it again."""
    async with opened(subject) as store:
        session = await store.session(ttl_s=60)
        version = await store.put("kept", b"1", session=session)
        await store.put("kept", b"2", expect=version)
        await store.put("tied", b"1")
        await store.put("tied", b"2", session=session)
        await session.close()
        assert [found.key for found in await store.range("")] == ["kept"]


async def sessions_have_names_of_their_own(subject: MetadataSubject) -> None:
    """No name comes twice, also after a restart."""
    names = []
    for _ in range(3):
        async with opened(subject) as store:
            for _ in range(3):
                session = await store.session(ttl_s=60)
                names.append(session.id)
                await session.close()
    assert len(set(names)) == len(names)


CHECKS: Final[tuple[Check, ...]] = (
    an_absent_key_is_none,
    a_put_is_read_back,
    a_version_grows_with_every_change,
    a_version_is_never_reused,
    an_expected_version_of_zero_means_absent,
    a_stale_put_conflicts_and_changes_nothing,
    a_deletion_can_be_repeated,
    puts_race_and_one_wins,
    a_conflict_leaves_other_callers_alone,
    a_range_is_sorted_by_code_point,
    a_range_takes_its_prefix_literally,
    a_range_is_one_moment,
    the_greatest_value_survives,
    two_handles_share_keys,
    keys_survive_a_restart,
    keys_vanish_with_a_closed_session,
    keys_vanish_when_a_session_is_not_renewed,
    a_renewed_session_lives_on,
    a_key_of_an_ended_session_is_absent,
    a_put_without_the_session_makes_a_key_permanent,
    sessions_have_names_of_their_own,
)
