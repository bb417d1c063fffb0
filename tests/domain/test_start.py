"""What a start makes of a metadata store that is older than the object store (A5, rule 15)."""

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.memory_cluster import TOPIC, MemoryCluster, batch

from lakelog.clock import SeededEntropy, SystemClock, SystemEntropy
from lakelog.domain.options import DomainOptions
from lakelog.domain.start import UNNAMED_SPAN_MS, UnnamedObjects
from lakelog.log.options import LogOptions
from lakelog.log.retention import Sweeper
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.model.failures import Refused
from lakelog.model.ids import DomainId
from lakelog.objects.local import LocalObjectStore
from lakelog.wal.layout import make_wal_id, object_key

HOUR_MS = 3_600_000
OPTIONS = DomainOptions(idle_read_s=0.02, retry_s=0.001, retry_max_s=0.01)
ACCEPTING = DomainOptions(
    idle_read_s=0.02, retry_s=0.001, retry_max_s=0.01, accept_lost_metadata=True
)
QUICK = LogOptions(linger_ms=1)


class HandClock(SystemClock):
    """Wall time that a test sets; durations are real."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def boot(self) -> str:
        return "one"

    def uptime_s(self) -> float:
        return self.ms / 1000  # the machine ran all the while


class Disk:
    """A data directory: the stores of one broker that is started and stopped, or killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = HandClock()
        self.lives = 0

    @property
    def metadata(self) -> Path:
        return self.root / "metadata.db"

    def backed_up(self, name: str) -> Path:
        """A copy of the metadata file, made while nobody has it open."""
        copy = self.root / name
        shutil.copy(self.metadata, copy)
        return copy

    def put_back(self, copy: Path) -> None:
        for leftover in self.root.glob("metadata.db*"):
            leftover.unlink()
        shutil.copy(copy, self.metadata)

    async def start(self, options: DomainOptions = OPTIONS, *, writer: str = "broker-1") -> "Life":
        self.lives += 1
        life = Life(self, options, writer)
        try:
            await life.start()
        except BaseException:
            await life.kill()
            raise
        return life


class Life:
    """One process: from its start to its end."""

    def __init__(self, disk: Disk, options: DomainOptions, writer: str) -> None:
        self._disk = disk
        self._options = options
        self._writer = writer

    async def start(self) -> None:
        clock = self._disk.clock
        self.store = await SqliteMetadataStore.open(self._disk.metadata, clock)
        directory = self._disk.root / "objects"
        self.objects = await LocalObjectStore.open(directory, clock, SystemEntropy(), uptime=clock)
        cluster = MemoryCluster(clock, metadata=self.store, objects=self.objects)
        self.replica = cluster.replica(self._writer, self._options)
        fresh = self._disk.lives == 1
        await self.replica.start(found=fresh)
        entropy = SeededEntropy(f"{self._writer}.{self._disk.lives}")
        self.log = cluster.log([self.replica], entropy, QUICK)
        if fresh:
            await self.log.create_streams(TOPIC, first_partition=0, streams=[7])

    async def produce(self, value: bytes) -> int:
        appended = await self.log.append([7], [batch(value)], deadline_s=self.soon())
        return appended.offsets[0]

    def soon(self) -> float:
        return self._disk.clock.monotonic_s() + 5

    async def stop(self) -> None:
        await self.log.close(timeout_s=5)
        await self.replica.close()
        await self._end()

    async def kill(self) -> None:
        """End without a word, as `kill -9` does: what is on the disk is all there is."""
        if hasattr(self, "replica"):
            await self.replica._tasks.close()
        if hasattr(self, "log"):
            for committer in self.log._committers:
                await committer._tasks.close()
        await self._end()

    async def _end(self) -> None:
        for store in ("objects", "store"):
            if hasattr(self, store):
                await getattr(self, store).close()


def run(tmp_path: Path, scenario: Callable[[Disk], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario(Disk(tmp_path))

    asyncio.run(bounded())


def without_milestones(disk: Disk) -> None:
    shutil.rmtree(disk.root / "objects" / "milestone")


def test_an_older_copy_is_refused_after_an_orderly_stop(tmp_path: Path) -> None:
    async def scenario(disk: Disk) -> None:
        life = await disk.start()
        assert await life.produce(b"before") == 0
        await life.stop()
        copy = disk.backed_up("copy.db")
        life = await disk.start()
        assert await life.produce(b"acknowledged") == 1
        await life.stop()
        newest = disk.backed_up("newest.db")
        disk.put_back(copy)
        for _ in range(4):  # a supervisor repeats it; nothing may be written that makes up for it
            with pytest.raises(Refused, match="went back in time"):
                await disk.start()
        with pytest.raises(Refused, match="went back in time") as refused:
            await disk.start()
        text = str(refused.value)
        assert "--accept-lost-metadata" in text
        assert "positions 5 to 6" in text
        assert "1 WAL objects closed from 2023-11-14T22:13:20Z" in text
        disk.put_back(newest)
        life = await disk.start()
        assert await life.produce(b"next") == 2
        await life.stop()

    run(tmp_path, scenario)


@pytest.mark.parametrize("milestone_ms", [1, 3_600_000])
def test_a_copy_made_while_the_broker_ran_is_refused(tmp_path: Path, milestone_ms: int) -> None:
    """No start lies between copy and loss, which was all that was noted: offset 1 came twice.

    What shows it is what is noted while the log grows, or else what the end of the process notes.
    """

    async def scenario(disk: Disk) -> None:
        life = await disk.start(DomainOptions(idle_read_s=0.02, milestone_ms=milestone_ms))
        await life.produce(b"before")
        copy = disk.root / "copy.db"
        with_sqlite(disk.metadata, copy)
        assert await life.produce(b"acknowledged") == 1
        if milestone_ms == 1:
            while life.replica._milestones.is_due(life.replica.state):
                await asyncio.sleep(0.001)
            await life.kill()
        else:
            await life.stop()
        disk.put_back(copy)
        with pytest.raises(Refused, match="that it had reached 5"):
            await disk.start()

    run(tmp_path, scenario)


def with_sqlite(source: Path, target: Path) -> None:
    """A copy of a file that is in use, as `sqlite3 .backup` makes it."""
    with sqlite3.connect(source) as reading, sqlite3.connect(target) as writing:
        reading.backup(writing)
    reading.close()
    writing.close()


def test_an_accepted_loss_is_said_kept_and_not_asked_for_again(tmp_path: Path) -> None:
    async def scenario(disk: Disk) -> None:
        life = await disk.start()
        await life.produce(b"before")
        await life.stop()
        copy = disk.backed_up("copy.db")
        life = await disk.start()
        await life.produce(b"lost")
        await life.stop()
        disk.put_back(copy)
        life = await disk.start(ACCEPTING)
        assert life.replica.timeline.number == 2
        assert (life.replica.timeline.start, life.replica.timeline.reached) == (4, 6)
        assert await life.produce(b"again") == 1
        await life.kill()
        life = await disk.start()  # what was accepted is not asked for again …
        assert life.replica.timeline.number == 2
        later = disk.backed_up("later.db")
        await life.produce(b"and more")
        await life.stop()
        disk.put_back(later)
        with pytest.raises(Refused, match="went back in time"):  # … but the next loss is
            await disk.start()
        disk.put_back(copy)
        with pytest.raises(Refused, match="timeline 2, and this is 1"):
            await disk.start()
        life = await disk.start(ACCEPTING)
        assert life.replica.timeline.number == 3
        await life.stop()

    run(tmp_path, scenario)


def test_nothing_is_swept_for_a_day_after_a_loss_was_accepted(tmp_path: Path) -> None:
    """The only copies of lost commits look like garbage; a restart does not forget that."""
    now = LogOptions(grace_ms=0)

    async def scenario(disk: Disk) -> None:
        life = await disk.start()
        await life.produce(b"before")
        await life.stop()
        copy = disk.backed_up("copy.db")
        life = await disk.start()
        await life.produce(b"lost")
        await life.stop()
        disk.put_back(copy)
        await (await disk.start(ACCEPTING)).stop()
        life = await disk.start()
        sweeper = Sweeper(life.replica, life.objects, disk.clock, now)
        disk.clock.ms += 23 * HOUR_MS
        assert [await sweeper.sweep_once() for _ in range(3)] == [0, 0, 0]
        assert life.replica.state.horizon_ms == 0
        disk.clock.ms += 2 * HOUR_MS
        assert await sweeper.sweep_once() == 1
        await life.stop()

    run(tmp_path, scenario)


def test_two_logs_that_went_on_from_one_copy_are_told_apart(tmp_path: Path) -> None:
    """The same file on two machines with one bucket: positions alone would not show it."""

    async def scenario(disk: Disk) -> None:
        life = await disk.start()
        await life.produce(b"before")
        await life.stop()
        copy = disk.backed_up("copy.db")
        life = await disk.start()
        await life.produce(b"here")
        await life.stop()
        here = disk.root / "objects" / "milestone" / "v1" / "domain=0" / "broker-1.json"
        noted = here.read_bytes()
        without_milestones(disk)
        disk.put_back(copy)
        life = await disk.start()
        await life.produce(b"there")
        await life.produce(b"and on")
        await life.stop()
        here.write_bytes(noted)
        with pytest.raises(Refused, match="two logs went on from one copy"):
            await disk.start()

    run(tmp_path, scenario)


def test_a_wiped_object_store_is_refused(tmp_path: Path) -> None:
    async def scenario(disk: Disk) -> None:
        life = await disk.start()
        await life.produce(b"kept in the log")
        await life.stop()
        shutil.rmtree(disk.root / "objects")
        with pytest.raises(Refused, match="wiped, or is another one") as refused:
            await disk.start()
        assert "1 objects that it names are gone" in str(refused.value)
        await (await disk.start(ACCEPTING)).stop()
        await (await disk.start()).stop()

    run(tmp_path, scenario)


def test_a_metadata_file_that_is_gone_is_refused_before_a_new_log_begins(tmp_path: Path) -> None:
    async def scenario(disk: Disk) -> None:
        life = await disk.start()
        await life.produce(b"acknowledged")
        await life.stop()
        for _ in range(2):
            disk.metadata.unlink()
            disk.lives = 0  # to the broker it looks like a new cluster
            with pytest.raises(Refused, match="the log of domain 0 ends at 0"):
                await disk.start()

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("objects", "apart_ms", "refused"), [(65, 5_000, True), (64, 5_000, False)]
)
def test_many_unnamed_objects_count_only_where_no_milestone_vouches(
    tmp_path: Path, objects: int, apart_ms: int, refused: bool
) -> None:
    """An earlier version left no milestones; what a crash leaves is fewer and closer together."""

    async def scenario(disk: Disk) -> None:
        life = await disk.start()
        await life.produce(b"before")
        await life.stop()
        copy = disk.backed_up("copy.db")
        for number in range(objects):
            disk.clock.ms += apart_ms
            put_orphan(disk, number)
        await (await disk.start()).stop()  # a milestone vouches: a job may have left these
        disk.put_back(copy)
        without_milestones(disk)
        note = disk.root / "objects/checkpoint/v1/domain=0" / f"{2:020d}.milestone"
        note.parent.mkdir(parents=True)
        note.write_bytes(b"reached")  # as an earlier version did at its start
        if refused:
            with pytest.raises(Refused, match="more than a crash leaves behind"):
                await disk.start()
        else:
            await (await disk.start()).stop()

    run(tmp_path, scenario)


def put_orphan(disk: Disk, number: int) -> None:
    """A WAL object whose commit never landed."""
    wal_id = make_wal_id(disk.clock.ms, number.to_bytes(10, "big"))
    path = disk.root / "objects" / object_key("z", DomainId(0), wal_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"orphan")


def test_orphans_of_one_moment_are_no_loss_however_many() -> None:
    close = UnnamedObjects(("a",) * 5000, 0, UNNAMED_SPAN_MS, 0, 0)
    assert not close.is_suspicious()
    assert UnnamedObjects(("a",) * 5000, 0, UNNAMED_SPAN_MS + 1, 0, 0).is_suspicious()


def test_kills_between_any_two_steps_never_make_a_start_refuse(tmp_path: Path) -> None:
    """A milestone is never ahead of the log, wherever a life ends."""

    async def scenario(disk: Disk) -> None:
        often = DomainOptions(idle_read_s=0.02, milestone_ms=1, checkpoint_records=4)
        heard = 0
        for round_number in range(8):
            life = await disk.start(often)
            for _ in range(round_number % 5):
                assert await life.produce(b"x") == heard
                heard += 1
            dying = [life.log.append([7], [batch(b"y")], deadline_s=life.soon()) for _ in range(2)]
            for _ in range(round_number):
                await asyncio.sleep(0)
            await life.kill()
            for outcome in dying:
                outcome.cancel()
            life = await disk.start(often)
            facts = life.log.facts(7)
            assert facts is not None
            assert facts.head >= heard
            heard = facts.head
            await life.kill()

    run(tmp_path, scenario)
