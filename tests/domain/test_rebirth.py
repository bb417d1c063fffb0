"""A replica that was away: it is born again, and what was pending has ended (rule 8; F1, F2)."""

import asyncio

import pytest
from tests.domain.test_replica import (
    DomainCluster,
    GatedLog,
    create,
    run,
    until,
    write_until_trimmed,
)

from lakelog.domain.replica import Replica
from lakelog.domain.state import Done
from lakelog.meta import keys
from lakelog.meta.port import MetadataLog
from lakelog.model.failures import OutcomeUnknown, Unavailable


class LossyLog(GatedLog):
    """A log whose calls wait at a gate, and that may lose an append."""

    def __init__(self, inner: MetadataLog, gate: asyncio.Event) -> None:
        super().__init__(inner, gate)
        self.lost: asyncio.Event | None = None
        """The next append is lost, which is noticed when this is set."""
        self.losing = False

    async def append(self, record: bytes) -> int:
        if self.lost is not None and not self.losing:
            self.losing = True
            await self.lost.wait()
            raise OutcomeUnknown("the append was lost")
        await self._gate.wait()
        return await super().append(record)


class Stopped:
    """A replica that was stopped while others went on, so that the log was trimmed beyond it."""

    def __init__(self, replica: Replica, log: LossyLog, gate: asyncio.Event) -> None:
        self.replica = replica
        self.log = log
        self._gate = gate

    @classmethod
    async def born(cls, cluster: DomainCluster, writer: str) -> "Stopped":
        gate = asyncio.Event()
        gate.set()
        replica = cluster.replica(writer)
        log = LossyLog(replica._log, gate)
        replica._log = log
        await replica.start(found=True)
        return cls(replica, log, gate)

    async def stand_still(self, cluster: DomainCluster, busy: Replica) -> None:
        self._gate.clear()
        await write_until_trimmed(cluster, busy, self.replica.state.position + 1)

    def go_on(self) -> None:
        self._gate.set()


def test_a_replica_that_stood_still_without_its_name_is_born_again_once_it_has_it() -> None:
    """Rule 8, F2: nobody took its name, so there is no reason to end."""

    async def scenario(cluster: DomainCluster) -> None:
        busy, late = await cluster.born("broker-1"), await Stopped.born(cluster, "broker-2")
        await late.stand_still(cluster, busy)
        asked: list[None] = []

        def holds_name() -> bool:
            asked.append(None)
            return False

        late.replica.holds_name = holds_name
        late.go_on()
        await until(lambda: len(asked) > 3)
        assert late.replica.stopped is None
        with pytest.raises(Unavailable, match="being loaded"):
            late.replica.check_fresh()
        won = await cluster.metadata.get(keys.incarnation("broker-2"))
        assert won is not None
        assert won.value == b"1"
        late.replica.holds_name = lambda: True
        await until(lambda: late.replica._serving)
        assert late.replica.state.writers["broker-2"].incarnation == 2
        assert await late.replica.submit(create(100_000)) == Done()
        await busy.close()
        await late.replica.close()  # raises what made it fail, if anything did

    run(scenario)


def test_a_reload_ends_what_is_pending() -> None:
    """Rule 8: what was on its way is unknown, what waited was certainly not written."""

    async def scenario(cluster: DomainCluster) -> None:
        busy, late = await cluster.born("broker-1"), await Stopped.born(cluster, "broker-2")
        late.log.lost = asyncio.Event()
        flying = late.replica.submit(create(100_000))
        await until(lambda: late.log.losing)
        waiting = late.replica.submit(create(100_001))
        await late.stand_still(cluster, busy)
        assert not flying.done()
        late.go_on()
        with pytest.raises(OutcomeUnknown, match="trimmed beyond what was applied"):
            await flying
        with pytest.raises(Unavailable, match="trimmed beyond what was applied"):
            await waiting
        late.log.lost.set()  # only now is the store done with it
        await until(lambda: late.replica._serving)
        assert late.replica.state.streams.facts(100_001) is None
        await busy.close()
        await late.replica.close()

    run(scenario)


def test_who_was_replaced_is_born_again_if_the_name_is_won_anew() -> None:
    """Another process wrote under the name and is gone: then the name is ours as before."""

    async def scenario(cluster: DomainCluster) -> None:
        replaced = await cluster.born("broker-1")
        other = await cluster.born("broker-1")
        assert await other.submit(create(6)) == Done()
        doubts: list[None] = []
        replaced.doubt_name = lambda: doubts.append(None)
        replaced.holds_name = lambda: not doubts
        reloads: list[int] = []
        position = replaced.state.position
        replaced.on_reload.append(lambda: reloads.append(replaced.state.position))
        with pytest.raises(OutcomeUnknown, match="newer incarnation"):
            await replaced.submit(create(7))
        assert len(doubts) == 1
        with pytest.raises(Unavailable):
            replaced.check_fresh()
        with pytest.raises(Unavailable):
            replaced.submit(create(8))
        assert await other.submit(create(9)) == Done()  # who has the name was not fenced
        await other.close()
        doubts.clear()
        await until(lambda: replaced._serving)
        assert replaced.state.writers["broker-1"].incarnation == 3
        assert reloads
        assert min(reloads) > position  # nobody was shown the past
        assert await replaced.submit(create(10)) == Done()
        found = [stream in replaced.state.streams.row_of for stream in (6, 7, 8, 9, 10)]
        assert found == [True, False, False, True, True]
        await replaced.close()

    run(scenario)
