"""Every effect of the saga fails in every way, and then every two of them, one after the other.

`python -m tests.pipeline.saga.crash_matrix [--pairs] [--jobs N] [--only TEXT]` runs it on SQLite
with the built-in catalog. A case is a story with one or two points: the first time that anybody
reaches the effect of the first point, it fails as the point says; from then on the second is waited
for. After that fresh pipelines run until nothing is left to do, and everything is checked: C1 to C5
of the log and its tables, V1 to V7 of the saga, and that nothing is gone that anything names (G1).
"""

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TypeVar

from tests.pipeline.pipeline_faults import send
from tests.pipeline.pipeline_place import EAGER, Place, sqlite_place
from tests.pipeline.saga.crash_checks import Content, flaws

from lakelog.catalog.port import CatalogLimits
from lakelog.catalog.tables import builtin_tables
from lakelog.model.failures import OutcomeUnknown
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.planning.small_files import RewriteOptions
from lakelog.pipeline.ports import Effects
from lakelog.pipeline.round_report import RoundReport
from lakelog.pipeline.rounds import Pipeline

T = TypeVar("T")
ROUNDS_MAX = 12
CASE_S = 180.0
FILES = 4
"""How many files the table has before they are replaced."""

TIDY = replace(EAGER, upkeep_ms=0, rewrite=RewriteOptions(files_min=3))
"""Files are looked at in every round."""


class Mode(StrEnum):
    """How an effect fails."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    SWALLOWED = "reply swallowed"
    LOST = "request lost"
    RIVAL = "pause and a rival"
    TRIM = "trim and expiry before"
    TRIM_ALL = "trim of all before"


class Story(StrEnum):
    """What happens to the topic meanwhile."""

    ORDINARY = "ordinary"
    DROPPED = "dropped"
    """Its stream is dropped once its file is written and before the table has it."""
    REWRITTEN = "rewritten"
    """Its files are small and become one."""
    CLEANED = "cleaned"
    """Of its records the latest of each key stay."""
    UNREADABLE = "unreadable"
    """A batch in its first entry cannot be rows, and the entry becomes a segment."""
    SEGMENT = "segment"
    """The rows of a segment, which the table lacks, come before those of what follows it."""


_TASK = (
    "create task",
    "put file",
    "mark written",
    "commit table",
    "mark committed",
    "append swap",
    "mark swapped",
    "mark ready",
)
REACHED = {
    Story.ORDINARY: _TASK,
    Story.DROPPED: ("mark written", "mark aborted", "move table", "mark closed", "forget task"),
    Story.REWRITTEN: _TASK,
    Story.CLEANED: (*_TASK, "mark clean"),
    Story.UNREADABLE: (*_TASK, "mark closed"),
    Story.SEGMENT: _TASK,
}
"""The effects of each story when nothing fails; a claim comes after another failure."""


@dataclass(frozen=True, slots=True)
class Point:
    """An effect, and how it fails when it is reached next."""

    effect: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.effect}: {self.mode}"


@dataclass(frozen=True, slots=True)
class Case:
    """A story and its points, in order."""

    story: Story
    points: tuple[Point, ...]

    def __str__(self) -> str:
        return f"{self.story}, {' then '.join(map(str, self.points))}"


within_rival: ContextVar[bool] = ContextVar("within_rival", default=False)


class CrashError(Exception):
    """The process is gone."""


class JumpClock:
    """The machine's clock, put forward when leases have to be over."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_ms / 1000


async def survived(pipeline: Pipeline) -> RoundReport | None:
    """The report of a round, None when the pipeline crashed."""
    report = None
    try:
        report = await pipeline.round()
    except* CrashError:
        pass
    return report


@dataclass
class Run:
    """One case while it runs."""

    case: Case
    place: Place
    clock: JumpClock
    content: Content
    waiting: list[Point] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    dropped: bool = False
    one_rival: asyncio.Lock = field(default_factory=asyncio.Lock)

    def pipeline(self) -> Pipeline:
        tidy = self.case.story in (Story.REWRITTEN, Story.CLEANED)
        cleans = self.case.story is Story.CLEANED
        return self.place.pipeline(
            effects=Failing(self),
            clock=self.clock,
            options=TIDY if tidy else EAGER,
            scanner=InlineEngine(self.place.objects) if cleans else None,
        )

    def age(self) -> None:
        """Leases and waits are over."""
        self.clock.ahead_ms += EAGER.lease_ms + EAGER.retry_ms_max + 1

    async def to_rest(self) -> list[str]:
        """Fresh pipelines, one after another as they crash, until there is nothing to do."""
        pipeline = self.pipeline()
        report = None
        for _ in range(ROUNDS_MAX):
            self.age()
            report = await survived(pipeline)
            await pipeline.settled()
            if report is None:
                pipeline = self.pipeline()
            elif report.is_idle and not report.all_obstacles:
                return []
        return [f"no rest after {ROUNDS_MAX} rounds: {report}"]

    async def rival(self) -> None:
        """Another pipeline runs to its end; a rival of that one may run meanwhile, no other.

        Two that age each other's leases would take tasks from each other for ever.
        """
        if within_rival.get():
            found = await self.to_rest()
        else:
            async with self.one_rival:
                within_rival.set(True)
                found = await self.to_rest()
                within_rival.set(False)
        assert not found, found

    async def trim(self, *, everything: bool) -> None:
        """Trim the first stream, and make all older snapshots of its table expire."""
        stream = min(self.content.rows)
        facts = self.place.node.log.facts(stream)
        if facts is not None:
            offset = facts.head if everything else facts.log_start + 4
            offset = min(offset, facts.head)
            self.content.may_trim(stream, offset)
            await self.place.node.log.trim({stream: offset})
        for topic in self.place.topics:
            table = await self.place.tables.load(self.content.table_name(topic.name))
            for _ in range(2 if table is not None else 0):
                assert table is not None
                table = await self.place.tables.move(
                    table.name, topic_id=topic.topic_id.hex(), expect=table.token
                )

    async def after(self, effect: str) -> None:
        """The story goes on."""
        if self.case.story is Story.DROPPED and effect == "mark written" and not self.dropped:
            self.dropped = True
            await self.place.node.log.drop_streams(self.place.topics[0].streams)
            self.content.dropped()


class Failing(Effects):
    """The effects of one pipeline, which fail as the case says."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._is_dead = False

    async def do(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        if self._is_dead:
            raise CrashError
        self._run.seen.append(name)
        waiting = self._run.waiting
        if waiting and waiting[0].effect == name:
            return await self._fail(waiting.pop(0), action)
        result = await action()
        await self._run.after(name)
        return result

    async def _fail(self, point: Point, action: Callable[[], Awaitable[T]]) -> T:
        match point.mode:
            case Mode.CRASH_BEFORE:
                self._is_dead = True
                raise CrashError(str(point))
            case Mode.LOST:
                raise OutcomeUnknown(str(point))
            case Mode.RIVAL:
                await self._run.rival()
            case Mode.TRIM | Mode.TRIM_ALL:
                await self._run.trim(everything=point.mode is Mode.TRIM_ALL)
            case _:
                pass
        result = await action()
        await self._run.after(point.effect)
        if point.mode is Mode.CRASH_AFTER:
            self._is_dead = True
            raise CrashError(str(point))
        if point.mode is Mode.SWALLOWED:
            raise OutcomeUnknown(str(point))
        return result


@asynccontextmanager
async def _prepared(case: Case, folder: Path) -> AsyncIterator[Run]:
    async with sqlite_place(folder, local=False) as place:
        clock = JumpClock()
        limits = CatalogLimits(snapshots_kept=1, threads=2)
        await place.tables.close()
        place.tables = builtin_tables(place.meta, place.objects, clock, limits)
        alone = case.story in (Story.DROPPED, Story.UNREADABLE, Story.SEGMENT)
        streams = [1] if alone else [1, 2]
        cleans = case.story is Story.CLEANED
        await place.topic("orders", streams, is_compacted=cleans, dirty_ratio_min=0.0)
        if case.story in (Story.REWRITTEN, Story.CLEANED):
            for _ in range(FILES):
                await place.produce(*streams, batches=1, records=3)
                await place.pipeline().round()
        elif case.story in (Story.UNREADABLE, Story.SEGMENT):
            await send(place, 1, "gxg")
            if case.story is Story.SEGMENT:
                await _made_segment(place)
            await place.produce(1, batches=2)
        else:
            await place.produce(*streams, batches=3, records=3)
        content = await Content.of(place, is_cleaned=cleans)
        yield Run(case, place, clock, content, list(case.points))


async def _made_segment(place: Place) -> None:
    """Rounds until the first entry is a segment: the next task is for its rows."""
    pipeline = place.pipeline()
    for _ in range(ROUNDS_MAX):
        await pipeline.round()
        if "wal" not in await place.kinds(1):
            return
        await asyncio.sleep(EAGER.retry_ms / 1000)
    raise AssertionError("no segment was made")


async def run_case(case: Case, folder: Path) -> list[str]:
    """What is wrong after the case, and nothing when all is well."""
    async with asyncio.timeout(CASE_S), _prepared(case, folder) as run:
        if case.story is not Story.CLEANED:  # which has tasks from the second round on
            await survived(run.pipeline())
        found = await run.to_rest()
        if run.dropped:
            run.place.topics.clear()
            found += await run.to_rest()
        if len(run.waiting) == len(case.points):
            found.append("its first point was never reached")
        return found + await flaws(run.place, run.content)


def singles() -> Iterator[Case]:
    """Every effect in every way; a claim follows a crash."""
    for story, effects in REACHED.items():
        for effect, mode in product(effects, Mode):
            yield Case(story, (Point(effect, mode),))
    claimed = (Story.ORDINARY, Story.REWRITTEN, Story.CLEANED, Story.UNREADABLE, Story.SEGMENT)
    for story, mode in product(claimed, Mode):
        crash = Point("mark written", Mode.CRASH_AFTER)
        yield Case(story, (crash, Point("claim task", mode)))


def pairs() -> Iterator[Case]:
    """Every ordered pair of points of a story, claims among them."""
    for story, effects in REACHED.items():
        points = [Point(*one) for one in product((*effects, "claim task"), Mode)]
        for first, second in product(points, points):
            if first.effect != "claim task":
                yield Case(story, (first, second))


def attempt(case: Case, folder: Path | None = None) -> tuple[Case, list[str]]:
    """Run a case in a directory of its own."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            return attempt(case, Path(made))
    try:
        return case, asyncio.run(run_case(case, folder))
    except Exception:  # noqa: BLE001 - whatever escapes is a finding of this case
        return case, [traceback.format_exc(limit=-3)]


def sweep(cases: Sequence[Case], jobs: int) -> int:
    """Run the cases and tell which of them fail."""
    failed = 0
    began = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        for case, found in pool.map(attempt, cases, chunksize=4):
            failed += bool(found)
            for flaw in found[:5]:
                print(f"{case}\n  {flaw}", flush=True)
    print(f"{len(cases)} cases, {failed} failed, {time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


def main() -> int:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.saga.crash_matrix")
    parser.add_argument("--pairs", action="store_true", help="every ordered pair of points, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose text holds this")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th case, from the I-th on")
    options = parser.parse_args()
    first, step = (int(number) for number in options.part.split("/"))
    cases = [*singles(), *(pairs() if options.pairs else ())]
    return sweep([one for one in cases if options.only in str(one)][first::step], options.jobs)


if __name__ == "__main__":
    sys.exit(main())
