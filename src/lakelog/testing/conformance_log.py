"""What the logs of every metadata store must do, as checks that any backend can run.

Used like `lakelog.testing.conformance_meta`, on the same subjects.
"""

import asyncio
from typing import Final

from lakelog.meta.port import (
    PAGE_BYTES_MAX,
    PAGE_RECORDS_MAX,
    RECORD_BYTES_MAX,
    LogPage,
    MetadataLog,
)
from lakelog.model.failures import Unavailable
from lakelog.testing.conformance_meta import Check, MetadataSubject, opened

LONG_S: Final = 20.0
"""A wait that must be ended by something else than its time."""


async def whole_log(log: MetadataLog, *, after: int = 0) -> list[bytes]:
    """All records, page by page, which are asserted to follow each other."""
    records: list[bytes] = []
    while True:
        page = await log.read(after=after + len(records))
        if not page.records:
            assert page.end == after + len(records), page.end
            return records
        assert page.start == after + len(records) + 1, page.start
        records += page.records


async def an_empty_log_ends_at_zero(subject: MetadataSubject) -> None:
    """Before its first record a log is empty, and reading does not make it."""
    async with opened(subject) as store:
        assert await store.log("l").read(after=0) == LogPage(1, (), 0)
        await store.log("l").trim(before=10)
        assert await store.log("l").append(b"first") == 1


async def positions_are_dense(subject: MetadataSubject) -> None:
    """The first record is 1 and each one is one more, in every log for itself (A1)."""
    async with opened(subject) as store:
        logs = [store.log("a"), store.log("b"), store.log("a/1")]
        for number in range(1, 21):
            for log in logs:
                assert await log.append(str(number).encode()) == number
        for log in logs:
            assert await whole_log(log) == [str(number).encode() for number in range(1, 21)]


async def appends_of_two_handles_interleave_without_holes(subject: MetadataSubject) -> None:
    """Each caller finds its own record at the position it was told."""
    async with opened(subject) as first, opened(subject) as second:

        async def write(log: MetadataLog, who: bytes) -> dict[int, bytes]:
            told = {}
            for number in range(50):
                record = who + b"%d" % number
                told[await log.append(record)] = record
            return told

        writers = [
            write((first, second)[number % 2].log("l"), b"%d/" % number) for number in range(8)
        ]
        told: dict[int, bytes] = {}
        for part in await asyncio.gather(*writers):
            assert not told.keys() & part.keys()
            told |= part
        records = await whole_log(second.log("l"))
        assert [told[position] for position in range(1, 401)] == records


async def an_append_is_seen_at_once_by_another_handle(subject: MetadataSubject) -> None:
    """A read that begins after an append was acknowledged sees it (rule 16)."""
    async with opened(subject) as first, opened(subject) as second:
        for number in range(1, 21):
            await first.log("l").append(b"%d" % number)
            page = await second.log("l").read(after=number - 1)
            assert page == LogPage(number, (b"%d" % number,), number)


async def records_come_back_as_they_were(subject: MetadataSubject) -> None:
    """Empty, binary and greatest ones; a greater one is a bug of the caller."""
    records = [b"", b"\x00", bytes(range(256)), b"\xff" * RECORD_BYTES_MAX, b"'; --"]
    async with opened(subject) as store:
        log = store.log("l'; --")
        for record in records:
            await log.append(record)
        assert await whole_log(log) == records
        try:
            await log.append(b"x" * (RECORD_BYTES_MAX + 1))
        except AssertionError:
            assert (await log.read(after=5)).end == 5
        else:
            raise AssertionError("a record beyond the limit was taken")


async def a_page_has_a_greatest_number_of_records(subject: MetadataSubject) -> None:
    """And the next page goes on behind it."""
    async with opened(subject) as store:
        log = store.log("l")
        await asyncio.gather(*(log.append(b"x") for _ in range(PAGE_RECORDS_MAX + 5)))
        page = await log.read(after=0)
        assert 0 < len(page.records) <= PAGE_RECORDS_MAX
        assert page.end == PAGE_RECORDS_MAX + 5
        assert len(await whole_log(log)) == PAGE_RECORDS_MAX + 5


async def a_page_has_a_greatest_size(subject: MetadataSubject) -> None:
    """But holds one record at least, whatever its size."""
    count = PAGE_BYTES_MAX // RECORD_BYTES_MAX + 2
    async with opened(subject) as store:
        log = store.log("l")
        for number in range(count):
            await log.append(bytes([number]) * RECORD_BYTES_MAX)
        page = await log.read(after=0)
        assert 0 < sum(map(len, page.records)) <= PAGE_BYTES_MAX
        assert page.end == count
        assert [record[0] for record in await whole_log(log)] == list(range(count))


async def a_read_at_the_end_or_beyond_is_empty(subject: MetadataSubject) -> None:
    """And says where the log ends, so that a reader who is ahead of it notices (A5)."""
    async with opened(subject) as store:
        log = store.log("l")
        await log.append(b"1")
        assert await log.read(after=1) == LogPage(2, (), 1)
        assert await log.read(after=100) == LogPage(101, (), 1)


async def a_read_behind_a_trim_says_where_it_starts(subject: MetadataSubject) -> None:
    """A hole is seen, never skipped in silence (A1)."""
    async with opened(subject) as store:
        log = store.log("l")
        for number in range(1, 601):
            await log.append(b"%d" % number)
        await log.trim(before=500)
        page = await log.read(after=3)
        assert (page.start, page.records[0], page.end) == (500, b"500", 600)
        assert await log.read(after=599) == LogPage(600, (b"600",), 600)
        await log.trim(before=10)
        assert (await log.read(after=0)).start == 500


async def a_trim_never_removes_the_newest_record(subject: MetadataSubject) -> None:
    """Whatever position it names (rule 1)."""
    async with opened(subject) as store:
        log, other = store.log("l"), store.log("m")
        for number in range(1, 6):
            await log.append(b"%d" % number)
            await other.append(b"%d" % number)
        for before in (5, 6, 1_000_000, 1 << 62):
            await log.trim(before=before)
            assert await log.read(after=0) == LogPage(5, (b"5",), 5)
        assert len(await whole_log(other)) == 5


async def positions_survive_trim_and_restart(subject: MetadataSubject) -> None:
    """No position is given twice, also when everything was trimmed (A2)."""
    for number in range(1, 5):
        async with opened(subject) as store:
            assert await store.log("l").append(b"%d" % number) == number
            await store.log("l").trim(before=1 << 40)
    async with opened(subject) as store:
        assert await store.log("l").read(after=0) == LogPage(4, (b"4",), 4)


async def a_wait_ends_with_its_time(subject: MetadataSubject) -> None:
    """When nothing is appended; and at once when there is no time."""
    async with opened(subject) as store, asyncio.timeout(LONG_S):
        await store.log("l").wait(after=0, timeout_s=0)
        await store.log("l").wait(after=0, timeout_s=0.02)


async def a_wait_for_what_is_there_is_none(subject: MetadataSubject) -> None:
    """A reader that has read up to a position learns of what was appended meanwhile."""
    async with opened(subject) as store, opened(subject) as other:
        await store.log("l").append(b"1")
        await store.log("l").read(after=0)
        await other.log("l").append(b"2")
        async with asyncio.timeout(LONG_S / 2):
            await store.log("l").wait(after=1, timeout_s=LONG_S)
            await other.log("l").wait(after=1, timeout_s=LONG_S)


async def a_wait_wakes_for_an_own_append(subject: MetadataSubject) -> None:
    """All who wait for it, and again for the next."""
    async with opened(subject) as store, asyncio.timeout(LONG_S / 2):
        log = store.log("l")
        for number in range(3):
            waits = [log.wait(after=number, timeout_s=LONG_S) for _ in range(3)]
            waiting = asyncio.gather(*waits)
            await asyncio.sleep(0)
            await log.append(b"x")
            await waiting


async def a_wait_wakes_for_another_handle(subject: MetadataSubject) -> None:
    """As it would for another process, also after a pause."""
    async with opened(subject) as store, opened(subject) as other, asyncio.timeout(LONG_S / 2):
        for number in range(5):
            waiting = asyncio.gather(store.log("l").wait(after=number, timeout_s=LONG_S))
            await asyncio.sleep(0)
            await other.log("l").append(b"x")
            await waiting
            assert (await store.log("l").read(after=0)).end == number + 1


async def a_wait_does_not_end_for_another_log(subject: MetadataSubject) -> None:
    """At least not every time: a store may wake for nothing, but must not spin."""
    async with opened(subject) as store:
        await store.log("busy").append(b"0")
        woken = 0
        for _ in range(10):
            waiting = asyncio.gather(store.log("quiet").wait(after=0, timeout_s=LONG_S))
            await store.log("busy").append(b"x")
            woken += waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert woken < 10


async def a_cancelled_append_happens_once_or_never(subject: MetadataSubject) -> None:
    """Cancellation leaves the outcome open, and everything else in order (rule 5)."""
    async with opened(subject) as store:
        log = store.log("l")
        for number in range(20):
            appending = [
                asyncio.gather(log.append(b"c%d" % number)),
                asyncio.gather(log.append(b"-")),
            ]
            for _ in range(number % 4):
                await asyncio.sleep(0)
            appending[0].cancel()
            await asyncio.gather(*appending, return_exceptions=True)
        await log.append(b"last")
        records = await whole_log(log)
        cancelled = [record for record in records if record.startswith(b"c")]
        assert len(set(cancelled)) == len(cancelled)
        assert records.count(b"-") == 20
        assert records[-1] == b"last"


async def a_cancelled_wait_leaves_the_log_usable(subject: MetadataSubject) -> None:
    """Cancelled or not, others wait on."""
    async with opened(subject) as store, asyncio.timeout(LONG_S / 2):
        log = store.log("l")
        cancelled = asyncio.gather(log.wait(after=0, timeout_s=LONG_S))
        waiting = asyncio.gather(log.wait(after=0, timeout_s=LONG_S))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        await log.append(b"x")
        await waiting


async def a_closed_handle_leaves_the_log_to_others(subject: MetadataSubject) -> None:
    """It answers `Unavailable`, and its records stay."""
    store = await subject.open()
    log = store.log("l")
    await log.append(b"1")
    await store.close()
    wait = log.wait(after=1, timeout_s=LONG_S)
    for work in (log.append(b"2"), log.read(after=0), log.trim(before=1), wait):
        try:
            async with asyncio.timeout(LONG_S / 2):
                await work
        except Unavailable:
            continue
        raise AssertionError("a closed handle answered")
    async with opened(subject) as other:
        assert await whole_log(other.log("l")) == [b"1"]


CHECKS: Final[tuple[Check, ...]] = (
    an_empty_log_ends_at_zero,
    positions_are_dense,
    appends_of_two_handles_interleave_without_holes,
    an_append_is_seen_at_once_by_another_handle,
    records_come_back_as_they_were,
    a_page_has_a_greatest_number_of_records,
    a_page_has_a_greatest_size,
    a_read_at_the_end_or_beyond_is_empty,
    a_read_behind_a_trim_says_where_it_starts,
    a_trim_never_removes_the_newest_record,
    positions_survive_trim_and_restart,
    a_wait_ends_with_its_time,
    a_wait_for_what_is_there_is_none,
    a_wait_wakes_for_an_own_append,
    a_wait_wakes_for_another_handle,
    a_wait_does_not_end_for_another_log,
    a_cancelled_append_happens_once_or_never,
    a_cancelled_wait_leaves_the_log_usable,
    a_closed_handle_leaves_the_log_to_others,
)
