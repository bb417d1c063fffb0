"""Checkpoints in a store: pages written once, verified, pointed to in order, repaired, trimmed."""

import asyncio
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from tests.domain.build import B, Domain, idempotent
from tests.domain.dump import dump_state
from tests.domain.scripts import Step, scripts
from tests.domain.test_checkpoint_model import checkpoint_of
from tests.domain.test_machine_model import Pair
from tests.profiles import examples

from lakelog.domain import pages as pages_module
from lakelog.domain.checkpoint import digest
from lakelog.domain.checkpoint_store import CheckpointPointer, CheckpointStore, Diverged
from lakelog.domain.envelope import DomainRecord, Stamp, encode_record
from lakelog.domain.events import Barrier, Drop, ExpireProducers, Horizon
from lakelog.domain.options import DomainOptions
from lakelog.domain.state import DomainState
from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import Corrupt
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.streams import table as table_module
from lakelog.testing.conformance_meta import ManualClock

HOUR_MS = 3_600_000


class Place:
    """The stores of one domain, and checkpoint stores of as many brokers as wanted."""

    def __init__(self) -> None:
        self.clock = ManualClock(now_ms=1_000_000_000)
        self.store = MemoryMetadataStore(self.clock)
        self.objects = MemoryObjectStore(self.clock)
        self.log = self.store.log(keys.domain_log(0))

    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.store, self.objects, domain=0, options=DomainOptions())

    async def pointer(self) -> CheckpointPointer:
        found = await self.store.get(keys.checkpoint(0))
        assert found is not None
        return msgspec.msgpack.decode(found.value, type=CheckpointPointer)

    async def keys(self, part: str) -> list[str]:
        return [info.key async for info in self.objects.list("") if part in info.key]


def moved(domain: Domain) -> DomainState:
    domain.commit(B(1, 2), idempotent(70, domain.number, producer=domain.number))
    return domain.state.frozen()


@settings(max_examples=examples(40), deadline=None)
@given(scripts)
def test_a_checkpoint_of_changed_pages_is_the_checkpoint_of_the_whole_state(
    script: list[Step],
) -> None:
    async def main() -> None:
        place = Place()
        checkpoints = place.checkpoints()
        pair = Pair(producers_max=100)
        for number, step in enumerate(script):
            before = pair.state.position
            pair.step(step)
            if number % 2 or pair.state.position == before:
                continue
            await checkpoints.save(pair.state.frozen())
            (newest, *_) = (await place.pointer()).kept
            assert newest.position == pair.state.position
            assert newest.digest == digest(checkpoint_of(pair.state)[0])
            loaded = await place.checkpoints().load()
            assert loaded is not None
            assert dump_state(loaded) == dump_state(pair.state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "BUCKET_BITS", 1)
        patch.setattr(pages_module, "BUCKET_BITS", 1)
        asyncio.run(main())


def test_without_a_pointer_there_is_nothing_to_load() -> None:
    assert asyncio.run(Place().checkpoints().load()) is None


def test_the_pointer_never_moves_back() -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1, 70)
        slow, quick = place.checkpoints(), place.checkpoints()
        older, newer = moved(domain), moved(domain)
        await quick.save(newer)
        await slow.save(older)
        kept = (await place.pointer()).kept
        assert [one.position for one in kept] == [newer.position]

    asyncio.run(main())


def test_a_pointer_that_moved_while_the_pages_were_written_stays() -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1, 70)
        older, newer = moved(domain), moved(domain)
        slow, gate = place.checkpoints(), Gate(place.objects)
        slow._objects = gate
        saving = asyncio.gather(slow.save(older))
        await gate.reached.wait()
        await place.checkpoints().save(newer)
        gate.opened.set()
        await saving
        kept = (await place.pointer()).kept
        assert [one.position for one in kept] == [newer.position]

    asyncio.run(main())


@pytest.mark.parametrize("what", ["drop", "expiry"])
def test_a_page_is_written_again_when_something_went_from_it(what: str) -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1, 2)
        checkpoints = place.checkpoints()
        domain.commit(B(1), idempotent(2, 0))
        await checkpoints.save(domain.state.frozen())
        if what == "drop":
            domain.add(Drop(np.array([2], dtype=np.int64)))
        else:
            domain.add(Horizon(9_000), ExpireProducers(9_000))
        await checkpoints.save(domain.state.frozen())
        newest = (await place.pointer()).kept[0]
        assert newest.digest == digest(checkpoint_of(domain.state)[0])

    asyncio.run(main())


def test_a_page_that_did_not_change_is_not_written_again() -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1, 70)
        checkpoints = place.checkpoints()
        await checkpoints.save(moved(domain))
        before = set(await place.keys(".page"))
        domain.commit(B(70))
        await checkpoints.save(domain.state.frozen())
        assert len(set(await place.keys(".page")) - before) == 1

    asyncio.run(main())


def test_two_states_at_one_position_are_a_divergence() -> None:
    async def main() -> None:
        place = Place()
        mine, other = Domain(1), Domain(1)
        mine.commit(B(1, 2))
        other.commit(B(1, 3))
        await place.checkpoints().save(other.state.frozen())
        with pytest.raises(Diverged):
            await place.checkpoints().save(mine.state.frozen())

    asyncio.run(main())


def test_the_same_state_at_one_position_is_fine() -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1)
        domain.commit(B(1, 2))
        await place.checkpoints().save(domain.state.frozen())
        await place.checkpoints().save(domain.state.frozen())
        assert len((await place.pointer()).kept) == 1

    asyncio.run(main())


@pytest.mark.parametrize("part", [".manifest", ".page"])
def test_a_damaged_newest_checkpoint_is_passed_over_for_an_older_one(part: str) -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1)
        older = moved_one(domain)
        await place.checkpoints().save(older)
        known = set(await place.keys(part))
        await place.checkpoints().save(moved_one(domain))
        (fresh,) = set(await place.keys(part)) - known
        content = bytearray(await place.objects.get(fresh))
        content[len(content) // 2] ^= 1
        await place.objects.put(fresh, [bytes(content)])
        loaded = await place.checkpoints().load()
        assert loaded is not None
        assert dump_state(loaded) == dump_state(older)

    asyncio.run(main())


def moved_one(domain: Domain) -> DomainState:
    domain.commit(B(1, 2))
    return domain.state.frozen()


def test_when_no_checkpoint_can_be_read_the_domain_does_not_begin_anew() -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1)
        await place.checkpoints().save(moved_one(domain))
        await place.objects.delete(await place.keys("checkpoint"))
        with pytest.raises(Corrupt):
            await place.checkpoints().load()

    asyncio.run(main())


def test_tidying_trims_to_the_oldest_kept_and_archives_what_goes() -> None:
    """Rule 14: one rotten object must not lose a domain."""

    async def main() -> None:
        place, domain = Place(), Domain(1)
        checkpoints = place.checkpoints()
        record = encode_record(DomainRecord("a", Stamp(1, 1), 1, (Barrier(),)))
        positions = []
        for _ in range(5):
            frozen = moved_one(domain)
            positions.append(frozen.position)
            while (await place.log.read(after=0)).end < frozen.position:
                await place.log.append(record)
            await checkpoints.save(frozen)
            await checkpoints.tidy(now_ms=place.clock.now_ms())
        oldest = positions[-3]
        assert [one.position for one in (await place.pointer()).kept] == positions[:1:-1]
        assert (await place.log.read(after=0)).start == oldest + 1
        archived = [
            one
            for key in await place.keys("archive/")
            for one in msgspec.msgpack.decode(await place.objects.get(key))
        ]
        assert archived == [record] * oldest

    asyncio.run(main())


def test_pages_of_checkpoints_no_longer_kept_go_after_a_grace() -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1)
        checkpoints = place.checkpoints()
        for _ in range(5):
            await checkpoints.save(moved_one(domain))
        await checkpoints.tidy(now_ms=place.clock.now_ms())
        assert len(await place.keys(".manifest")) == 5
        place.clock.advance(2 * HOUR_MS / 1000)
        await checkpoints.tidy(now_ms=place.clock.now_ms())
        assert len(await place.keys(".manifest")) == 3
        assert len(await place.keys(".page")) == 3
        assert await place.checkpoints().load() is not None

    asyncio.run(main())


def test_a_save_that_ends_after_a_reload_does_not_bring_old_pages_back() -> None:
    """A broker stopped inside a save, reloaded at a newer checkpoint, and then goes on."""

    async def main() -> None:
        place, domain = Place(), Domain(1, 70)
        slow, other = place.checkpoints(), place.checkpoints()
        older = moved(domain)
        gate = Gate(place.objects)
        slow._objects = gate
        saving = asyncio.gather(slow.save(older))
        await gate.reached.wait()
        await other.save(moved(domain))
        slow._objects = place.objects
        state = await slow.load()
        assert state is not None
        gate.opened.set()
        await saving
        domain.state = state
        domain.commit(B(70))
        await slow.save(state.frozen())
        assert (await place.pointer()).kept[0].digest == digest(checkpoint_of(state)[0])

    asyncio.run(main())


class Gate(MemoryObjectStore):
    """An object store whose puts wait until the gate is opened."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        super().__init__(inner._clock)
        self._objects = inner._objects
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def put(self, key: str, parts: object) -> None:
        self.reached.set()
        await self.opened.wait()
        assert isinstance(parts, list)
        await super().put(key, parts)


class Rotting(MemoryObjectStore):
    """An object store that keeps other bytes than it was given, for some keys."""

    def __init__(self, inner: MemoryObjectStore, part: str) -> None:
        super().__init__(inner._clock)
        self._objects = inner._objects
        self._part = part

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        data = bytearray(b"".join(bytes(part) for part in parts))
        if self._part in key:
            data[len(data) // 2] ^= 1
        await super().put(key, [bytes(data)])


@pytest.mark.parametrize("part", [".page", ".manifest"])
def test_rule_14_what_reads_back_differently_is_not_pointed_to(part: str) -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1, 70)
        checkpoints = place.checkpoints()
        await checkpoints.save(moved(domain))
        before = await place.pointer()
        checkpoints._objects = Rotting(place.objects, part)
        with pytest.raises(Corrupt, match=part):
            await checkpoints.save(moved(domain))
        assert await place.pointer() == before
        checkpoints._objects = place.objects
        state = moved(domain)
        await checkpoints.save(state)
        loaded = await place.checkpoints().load()
        assert loaded is not None
        assert dump_state(loaded) == dump_state(state)

    asyncio.run(main())


def test_rule_14_an_archive_that_reads_back_differently_keeps_its_records_in_the_log() -> None:
    async def main() -> None:
        place, domain = Place(), Domain(1, 70)
        checkpoints = place.checkpoints()
        for number in range(6):
            record = DomainRecord("a", Stamp(1, number + 1), 1, (Barrier(),))
            await place.log.append(encode_record(record))
        for _ in range(DomainOptions().checkpoints_kept):
            await checkpoints.save(moved(domain))
        checkpoints._objects = Rotting(place.objects, "archive/")
        with pytest.raises(Corrupt, match="archive/"):
            await checkpoints.tidy(now_ms=place.clock.now_ms())
        assert (await place.log.read(after=0)).start == 1

    asyncio.run(main())
