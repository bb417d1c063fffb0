"""What a replica may take for a proof of currency, and of which moment (rule 16)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.domain.test_replica import DomainCluster, GatedLog, create, run

from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Replica
from lakelog.domain.state import Done
from lakelog.meta.port import LogPage, MetadataLog
from lakelog.model.failures import Unavailable

QUIET = DomainOptions(idle_read_s=3600.0, fresh_s=3600.0)
"""Nothing is read but for a proof."""


class OvertakenLog:
    """A log that tells no news by itself, and where others write while a reply is on its way."""

    def __init__(self, inner: MetadataLog) -> None:
        self._inner = inner
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def append(self, record: bytes) -> int:
        position = await self._inner.append(record)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return position

    async def read(self, *, after: int) -> LogPage:
        page = await self._inner.read(after=after)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return page

    async def wait(self, *, after: int, timeout_s: float) -> None:
        await asyncio.Event().wait()

    async def trim(self, *, before: int) -> None:
        await self._inner.trim(before=before)


async def overtaken(cluster: DomainCluster) -> tuple[Replica, OvertakenLog]:
    """A replica that hears only what it asks for, or writes."""
    replica = cluster.replica("broker-1", QUIET)
    log = OvertakenLog(replica._log)
    replica._log = log
    await replica.start(found=True)
    return replica, log


@pytest.mark.parametrize("by_append", [True, False])
def test_what_was_acknowledged_before_a_reply_came_is_not_proved_by_it(by_append: bool) -> None:
    """Another's record may lie between our record, or the end we read, and the reply."""

    async def scenario(cluster: DomainCluster) -> None:
        replica, log = await overtaken(cluster)
        other = await cluster.born("broker-2")
        await replica.prove(arrived_s=cluster.clock.monotonic_s())  # so that its append is the next
        arrived_s = 0.0

        async def meanwhile() -> None:
            nonlocal arrived_s
            assert await other.submit(create(8)) == Done()
            arrived_s = cluster.clock.monotonic_s()  # a fetch comes here, after the acknowledgement

        log.meanwhile = meanwhile
        if by_append:
            assert await replica.submit(create(7)) == Done()
        else:
            await replica.prove(arrived_s=cluster.clock.monotonic_s())
        assert arrived_s
        assert not replica.is_proved(arrived_s=arrived_s)
        await replica.prove(arrived_s=arrived_s)
        assert replica.state.streams.facts(8) is not None
        await replica.close()
        await other.close()

    run(scenario)


def test_an_append_proves_what_was_acknowledged_before_it_began() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica, _ = await overtaken(cluster)
        arrived_s = cluster.clock.monotonic_s()
        assert not replica.is_proved(arrived_s=arrived_s)
        assert await replica.submit(create(7)) == Done()
        assert replica.is_proved(arrived_s=arrived_s)
        await replica.close()

    run(scenario)


def test_a_state_that_is_being_loaded_proves_nothing_whatever_was_proved_before() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        gate = asyncio.Event()
        gate.set()
        replica = cluster.replica("broker-1", QUIET)
        replica._log = GatedLog(replica._log, gate)
        await replica.start(found=True)
        arrived_s = cluster.clock.monotonic_s()
        await replica.prove(arrived_s=arrived_s)
        assert replica.is_proved(arrived_s=arrived_s)
        gate.clear()
        replica._serving = False  # as `_tail` does when it meets a hole
        replica._queue.end("loading")
        loading = asyncio.create_task(replica._be_born())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not replica.is_proved(arrived_s=arrived_s)
        with pytest.raises(Unavailable):
            await replica.prove(arrived_s=arrived_s)
        gate.set()
        await loading
        assert replica.is_proved(arrived_s=arrived_s)
        await replica.close()

    run(scenario)
