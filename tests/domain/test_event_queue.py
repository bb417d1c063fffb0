"""What the writer puts into one record: as much as fits, and never more (rule 25, B6)."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.domain.test_replica import DomainCluster, run

from lakelog.domain.envelope import Stamp, pack_record
from lakelog.domain.event_queue import EVENT_BYTES_MAX, EventTooLarge
from lakelog.domain.events import Kind, Trim
from lakelog.domain.state import Trimmed
from lakelog.meta.port import RECORD_BYTES_MAX


def trim(streams: int) -> Trim:
    """An event of 16 bytes a stream and few more; nobody knows the streams."""
    return Trim(np.arange(streams, dtype=np.int64), np.ones(streams, dtype=np.int64))


def test_the_greatest_event_fills_a_record_of_the_longest_name() -> None:
    data = pack_record("w" * 255, Stamp(1, 1), 1, [(Kind.TRIM, bytes(EVENT_BYTES_MAX))])
    assert len(data) == RECORD_BYTES_MAX


def test_events_that_wait_share_records_of_at_most_their_limit() -> None:
    """Each of many small events takes some bytes of the record beside its own."""

    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("w" * 255)
        outcomes = [replica.submit(trim(60)) for _ in range(2_500)]
        failed = asyncio.ensure_future(replica.failed())
        waiting: list[asyncio.Future[Any]] = [outcomes[-1], failed]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert not failed.done(), failed.exception()
        assert all(isinstance(outcome.result(), Trimmed) for outcome in outcomes)
        sizes = [len(record) for record in (await cluster.domain_log.read(after=0)).records]
        assert max(sizes) <= RECORD_BYTES_MAX
        assert sorted(sizes)[-2] > RECORD_BYTES_MAX - 2_000  # and they are as full as they can be
        failed.cancel()
        await replica.close()

    run(scenario)


def test_an_event_that_fits_into_no_record_is_refused_at_once() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        with pytest.raises(EventTooLarge):
            replica.submit(trim(RECORD_BYTES_MAX // 16))
        assert isinstance(await replica.submit(trim(1)), Trimmed)
        await replica.close()

    run(scenario)
