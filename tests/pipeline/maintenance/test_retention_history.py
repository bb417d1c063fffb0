"""Histories of snapshots end with their topics, and what is too old goes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.pipeline.maintenance.sweep_tables import OnlyNames, topic_view

from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.port import SnapshotView
from lakelog.index.ports import IndexedTopic
from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.ids import TopicId
from lakelog.pipeline.maintenance.retention import HistoryRetention, HistoryRetentionOptions

GRACE_MS = 600_000
HOUR_MS = 3_600_000


@dataclass
class Watch:
    """A clock that a test sets."""

    time_ms: int = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000


@dataclass
class Topics(OnlyNames):
    """An index that knows topics alone."""

    found: list[IndexedTopic] = field(default_factory=list)

    async def topics(self) -> Sequence[IndexedTopic]:
        return list(self.found)

    async def named_files(self) -> frozenset[str]:
        raise AssertionError("nobody asks for this here")


class Histories:
    """Histories of some topics in a store in memory."""

    def __init__(self) -> None:
        self.clock = Watch()
        self.store = MemoryMetadataStore(self.clock)
        self.history = SnapshotHistory(self.store, self.clock)
        self.index = Topics()
        self.upkeep = HistoryRetention(
            self.history, self.index, self.clock, HistoryRetentionOptions(GRACE_MS, HOUR_MS)
        )

    def topic(self, number: int, *, history_ms: int) -> IndexedTopic:
        view = topic_view(f"t{number}", TopicId(number.to_bytes(16, "big")), number)
        made = IndexedTopic(
            **{name: getattr(view, name) for name in view.__slots__}
            | {"snapshots_history_ms": history_ms}
        )
        self.index.found.append(made)
        return made

    async def expire(self, topic: IndexedTopic, number: int) -> None:
        gone = SnapshotView(number, number, number, "append", {0: number})
        await self.history.remember(topic.name, topic.topic_id.hex(), [gone])

    async def known(self, topic: IndexedTopic) -> list[int]:
        head = await self.history.head(topic.topic_id.hex())
        return [one.snapshot_id for one in head.page.facts]


def run(work: Callable[[Histories], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work(Histories())

    asyncio.run(bounded())


def test_what_expired_too_long_ago_goes_and_the_rest_stays() -> None:
    async def work(histories: Histories) -> None:
        day, none, ever = (
            histories.topic(n, history_ms=ms) for n, ms in ((1, 86_400_000), (2, 0), (3, -1))
        )
        for number in range(1, 5):
            histories.clock.time_ms = number * 12 * HOUR_MS
            for topic in (day, none, ever):
                await histories.expire(topic, number)
        report = await histories.upkeep.apply_once()
        assert (report.topics, report.problems) == (0, ())
        assert await histories.known(day) == [2, 3, 4]
        assert await histories.known(none) == []
        assert await histories.known(ever) == [1, 2, 3, 4]

    run(work)


def test_a_clock_that_is_not_believed_forgets_nothing() -> None:
    """Rule 20: a clock that is ahead would forget what is young."""

    async def wrong() -> bool:
        return False

    async def work(histories: Histories) -> None:
        topic = histories.topic(1, history_ms=0)
        await histories.expire(topic, 1)
        trusted, histories.upkeep.is_clock_right = histories.upkeep.is_clock_right, wrong
        await histories.upkeep.apply_once()
        assert await histories.known(topic) == [1]
        histories.upkeep.is_clock_right = trusted
        await histories.upkeep.apply_once()
        assert await histories.known(topic) == []

    run(work)


def test_a_history_is_looked_at_once_in_a_while() -> None:
    async def work(histories: Histories) -> None:
        topic = histories.topic(1, history_ms=0)
        await histories.upkeep.apply_once()
        await histories.expire(topic, 1)
        await histories.upkeep.apply_once()
        assert await histories.known(topic) == []
        await histories.expire(topic, 2)
        await histories.upkeep.apply_once()
        assert await histories.known(topic) == [2]
        histories.clock.time_ms += HOUR_MS
        await histories.upkeep.apply_once()
        assert await histories.known(topic) == []

    run(work)


def test_the_history_of_a_topic_that_is_gone_goes_after_a_grace() -> None:
    async def work(histories: Histories) -> None:
        gone, stays = histories.topic(1, history_ms=HOUR_MS), histories.topic(2, history_ms=HOUR_MS)
        for topic in (gone, stays):
            await histories.expire(topic, 1)
        histories.index.found.remove(gone)
        assert (await histories.upkeep.apply_once()).topics == 0
        await histories.expire(gone, 2)  # a commit that was under way
        histories.clock.time_ms += GRACE_MS - 1
        assert (await histories.upkeep.apply_once()).topics == 0
        histories.clock.time_ms += 1
        assert (await histories.upkeep.apply_once()).topics == 1
        named = gone.topic_id.hex()
        assert not [one.key for one in await histories.store.range(keys.ROOT) if named in one.key]
        assert await histories.known(stays) == [1]
        assert (await histories.upkeep.apply_once()).topics == 0

    run(work)


def test_a_history_that_cannot_be_read_is_reported_and_the_others_go_on() -> None:
    async def work(histories: Histories) -> None:
        broken, fine = histories.topic(1, history_ms=0), histories.topic(2, history_ms=0)
        for topic in (broken, fine):
            await histories.expire(topic, 1)
        await histories.store.put(keys.snapshot_head(broken.topic_id.hex()), b"x")
        report = await histories.upkeep.apply_once()
        assert len(report.problems) == 1
        assert broken.topic_id.hex() in report.problems[0]
        assert await histories.known(fine) == []

    run(work)
