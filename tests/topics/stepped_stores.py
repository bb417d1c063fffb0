"""The metadata store and the streams that topics need, failing where a test says so.

There is no log and no replica: streams are names alone. Real ones are those of
`tests.memory_cluster`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Any, TypeVar

from lakelog.clock import SeededEntropy
from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import KeyValue, MetadataLog, Session
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.model.ids import TopicId
from lakelog.testing.conformance_meta import ManualClock
from lakelog.testing.simulation import SimLoop, simulate
from lakelog.topics.registry import Topics
from lakelog.topics.settings import TopicDefaults
from lakelog.topics.topic import Topic, TopicState, decode

Result = TypeVar("Result")
STARTED_S = 1_000.0


def manual_clock() -> ManualClock:
    """Time that moves only when a test says so; it is not 0, which code may have for "never"."""
    clock = ManualClock()
    clock.advance(STARTED_S)
    return clock


class LoopClock:
    """The time of the loop that runs; it is not 0 either."""

    def now_ms(self) -> int:
        return 1_794_717_942_000 + int(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return STARTED_S + asyncio.get_running_loop().time()


def run_virtual(work: Coroutine[Any, Any, Result]) -> Result:
    """Run this in a loop whose time passes when everybody waits; ten minutes at most."""

    async def bounded(_: SimLoop) -> Result:
        async with asyncio.timeout(600):
            return await work

    return simulate(bounded, seed=0)[0]


class Crash(BaseException):
    """The process ends here: nothing above may catch this."""


class Fault(Enum):
    """What happens at a step."""

    UNAVAILABLE = auto()  # certainly not done
    LOST = auto()  # not done, and nobody can tell
    SWALLOWED = auto()  # done, and nobody can tell
    CRASH_BEFORE = auto()
    CRASH_AFTER = auto()


class Steps:
    """Counts the steps of everything that shares it, and fails at some of them."""

    def __init__(self) -> None:
        self.taken = 0
        self.faults: dict[int, Fault] = {}
        self.names: list[str] = []

    async def take(self, name: str, work: Callable[[], Awaitable[Result]]) -> Result:
        fault = self.faults.get(self.taken)
        self.taken += 1
        self.names.append(name)
        await asyncio.sleep(0)
        if fault is Fault.CRASH_BEFORE:
            raise Crash(name)
        if fault is Fault.UNAVAILABLE:
            raise Unavailable(name)
        writes = name.startswith(("put", "create", "drop"))
        if fault is Fault.LOST:
            raise OutcomeUnknown(name) if writes else Unavailable(name)
        result = await work()
        await asyncio.sleep(0)
        if fault is Fault.CRASH_AFTER:
            raise Crash(name)
        if fault is Fault.SWALLOWED:
            raise OutcomeUnknown(name) if writes else Unavailable(name)
        return result


class MemoryStreams:
    """The streams there are: what a log would know of them."""

    def __init__(self) -> None:
        self.alive: dict[int, tuple[TopicId, int]] = {}

    def create(self, topic: TopicId, first_partition: int, streams: Sequence[int]) -> None:
        for number, stream in enumerate(streams):
            self.alive.setdefault(stream, (topic, first_partition + number))

    def drop(self, streams: Sequence[int]) -> None:
        for stream in streams:
            self.alive.pop(stream, None)


class SteppedStreams:
    """One broker's way to the streams."""

    def __init__(self, streams: MemoryStreams, steps: Steps) -> None:
        self._streams = streams
        self._steps = steps

    async def create_streams(
        self, topic: TopicId, *, first_partition: int, streams: Sequence[int]
    ) -> None:
        async def work() -> None:
            self._streams.create(topic, first_partition, streams)

        await self._steps.take("create", work)

    async def drop_streams(self, streams: Sequence[int]) -> None:
        async def work() -> None:
            self._streams.drop(streams)

        await self._steps.take("drop", work)


class SteppedStore:
    """One broker's way to the metadata store."""

    def __init__(self, store: MemoryMetadataStore, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    async def get(self, key: str) -> KeyValue | None:
        return await self._steps.take(f"get {key}", lambda: self._store.get(key))

    async def range(self, prefix: str) -> list[KeyValue]:
        return await self._steps.take(f"range {prefix}", lambda: self._store.range(prefix))

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        return await self._steps.take(
            f"put {key}", lambda: self._store.put(key, value, expect=expect, session=session)
        )

    def log(self, name: str) -> MetadataLog:
        return self._store.log(name)

    async def session(self, *, ttl_s: float, keep_s: float = 0.0) -> Session:
        return await self._steps.take(
            "session", lambda: self._store.session(ttl_s=ttl_s, keep_s=keep_s)
        )

    async def close(self) -> None:
        await self._store.close()


class TopicStores:
    """A store and streams that several registries share, each with steps of its own."""

    def __init__(self, defaults: TopicDefaults | None = None) -> None:
        self.clock = manual_clock()
        self.store = MemoryMetadataStore(self.clock)
        self.streams = MemoryStreams()
        self.defaults = defaults
        self._made = 0

    def registry(self, steps: Steps | None = None) -> Topics:
        self._made += 1
        steps = steps or Steps()
        return Topics(
            SteppedStore(self.store.another(), steps),
            SteppedStreams(self.streams, steps),
            self.clock,
            SeededEntropy(f"registry {self._made}"),
            self.defaults,
        )

    async def key(self, name: str) -> Topic | None:
        found = await self.store.get(keys.topic(name))
        return None if found is None else decode(found.value, version=found.version)

    async def check_at_rest(self) -> dict[str, Topic]:
        """Every key is at rest, and exactly the streams of the topics exist; the topics."""
        topics = {}
        for found in await self.store.range(keys.TOPICS):
            topic = decode(found.value, version=found.version)
            assert topic.at_rest, topic
            topics[topic.name] = topic
        expected = {
            stream: (topic.id, partition)
            for topic in topics.values()
            for partition, stream in enumerate(topic.streams())
        }
        assert self.streams.alive == expected
        return topics

    async def settle(self, topics: Topics) -> None:
        """Let a broker finish what others left behind."""
        await topics.refresh()
        self.clock.advance(60)
        await topics.refresh()
        assert all(topic.state is TopicState.LIVE for topic in topics.cached_all())


async def make(topics: Topics, name: str, partitions: int = 3, **configs: str) -> Topic:
    """Create a topic; configs are written with `_` for `.`."""
    return await topics.create(
        name,
        partitions=partitions,
        replication_factor=1,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def run(scenario: Callable[[TopicStores], Awaitable[None]]) -> None:
    """Run a scenario on stores of its own."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario(TopicStores())

    asyncio.run(bounded())
