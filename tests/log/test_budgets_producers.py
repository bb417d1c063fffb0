"""A budget for producers: the oldest go first, and none that a late commit could still need."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.domain.build import commit_of, create_of, idempotent
from tests.memory_cluster import QUICK, MemoryCluster, run

from lakelog.domain import state as state_module
from lakelog.domain.events import Genesis, Hello, Horizon
from lakelog.domain.replica import Replica
from lakelog.log import budgets as budget_module
from lakelog.log.budgets import WARN_INTERVAL_S, ProducerBudget
from lakelog.log.options import LogOptions
from lakelog.model.failures import Unavailable
from lakelog.streams.producers import PRODUCER_BYTES
from lakelog.telemetry import MetricsRegistry
from lakelog.testing.conformance_meta import ManualClock

TEN = replace(QUICK, producer_bytes_max=10 * PRODUCER_BYTES)
LATEST_MS = 2_000_000_000_000


async def alone() -> Sequence[str]:
    return ["broker-1"]


class Table:
    """A domain with one stream, and a budget over it; producer n wrote last at n."""

    def __init__(self, replica: Replica, options: LogOptions = TEN) -> None:
        self.replica = replica
        self.clock = ManualClock()
        self.metrics = MetricsRegistry()
        self.budget = ProducerBudget([replica], self.clock, options, self.metrics)

    @classmethod
    async def of(cls, cluster: MemoryCluster, *, rows: int) -> "Table":
        node = await cluster.node()
        await node.replica.submit(create_of(1))
        made = cls(node.replica)
        await made.write(range(1, rows + 1))
        return made

    async def write(self, producers: Sequence[int]) -> None:
        for producer in producers:
            sent = idempotent(1, 0, producer=producer)
            event = commit_of([sent], time_ms=LATEST_MS + producer, number=producer)
            await self.replica.submit(event)

    async def relieve(self) -> None:
        await self.budget.relieve(self.replica, alone)

    def producers(self) -> list[int]:
        table = self.replica.state.producers
        return [int(producer) for producer in table.columns["producer"][table.of_stream(0)]]

    def shown(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"domain": "0"})


def test_a_new_producer_is_refused_when_the_budget_is_spent_and_known_ones_are_served() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node(options=TEN)
        await node.replica.submit(create_of(1))
        assert node.log.takes_producer(1, 77)
        await Table(node.replica).write(range(10))
        assert not node.log.takes_producer(1, 77)
        assert node.log.takes_producer(1, 3)
        assert node.log.takes_producer(9, 77)  # there is no such stream: `apply` says so

    run(scenario)


def test_the_default_has_room_for_100_producers_on_2000_partitions_many_times_over() -> None:
    assert LogOptions().producer_bytes_max // PRODUCER_BYTES > 6 * 100 * 2_000


def test_when_the_table_is_nearly_full_the_oldest_go_before_their_time() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=9)
        await table.replica.submit(Horizon(LATEST_MS + 100))
        await table.relieve()
        assert table.producers() == [3, 4, 5, 6, 7, 8, 9]
        assert table.replica.state.producers.expired_max == 2

    run(scenario)


def test_one_record_lets_only_so_many_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: a record that lets hundreds of thousands go would hold up every broker's loop."""
    monkeypatch.setattr(budget_module, "EVICT_ROWS_MAX", 1)

    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=10)
        await table.replica.submit(Horizon(LATEST_MS + 100))
        for left in (9, 8, 8):
            await table.relieve()
            assert len(table.producers()) == left

    run(scenario)


def test_with_room_left_nobody_goes_before_the_time() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=8)
        await table.replica.submit(Horizon(LATEST_MS + 100))
        position = table.replica.state.position
        await table.relieve()
        assert (len(table.producers()), table.replica.state.position) == (8, position)

    run(scenario)


def test_nobody_younger_than_the_horizon_goes_even_when_the_table_is_full() -> None:
    """B9: a late commit of theirs could land twice."""

    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=10)
        await table.replica.submit(Horizon(LATEST_MS + 2))
        await table.relieve()
        assert table.producers() == [2, 3, 4, 5, 6, 7, 8, 9, 10]
        position = table.replica.state.position
        await table.relieve()
        assert table.replica.state.position == position  # nothing to let go: nothing is written

    run(scenario)


def founded_at_level_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lakelog.domain.start.Genesis",
        lambda cluster, domain, _level: Genesis(cluster, domain, 1),
    )
    monkeypatch.setattr(state_module, "PRODUCERS_MAX_BEFORE", 5)


def test_an_older_level_that_has_less_room_is_raised_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    founded_at_level_1(monkeypatch)

    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=3)
        await table.relieve()
        assert table.replica.state.level == 1
        await table.write([4])
        await table.relieve()
        assert table.replica.state.level == state_module.PRODUCERS_LEVEL
        await table.write([5, 6])
        assert len(table.producers()) == 6

    run(scenario)


def test_a_level_is_not_raised_over_a_broker_that_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    founded_at_level_1(monkeypatch)

    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=5)
        await table.replica.submit(Hello(2))

        with pytest.raises(Unavailable, match="broker-1"):
            await table.relieve()
        assert table.replica.state.level == 1
        assert not table.budget.takes(0, 1, 99)

    run(scenario)


def test_a_table_that_stays_nearly_full_is_told_of_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=8)
        for _ in range(3):
            await table.relieve()
        assert caplog.text.count("producers_nearly_full") == 1
        table.clock.advance(WARN_INTERVAL_S)
        await table.relieve()

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert caplog.text.count("producers_nearly_full") == 2


def test_rows_bytes_and_limit_can_be_seen() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        table = await Table.of(cluster, rows=4)
        assert table.shown("lakelog_producers") == 4
        assert table.shown("lakelog_producer_bytes") == 4 * PRODUCER_BYTES
        assert table.shown("lakelog_producer_bytes_max") == 10 * PRODUCER_BYTES

    run(scenario)
