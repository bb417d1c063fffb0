"""The budget of the offset index: who waits, who is refused, and when that is over (rule 25)."""

import logging
from dataclasses import replace
from typing import Any

import pytest
from tests.log.placing import placed, request
from tests.log.test_log import read, values
from tests.memory_cluster import QUICK, TOPIC, MemoryCluster, MemoryNode, batch, run

from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped, Verdict
from lakelog.log.budgets import throttle_ms
from lakelog.log.options import LogOptions
from lakelog.log.writes import WrittenDomain
from lakelog.model.failures import Unavailable
from lakelog.streams.objects import FileKind, FileName, digest

ENTRY_BYTES = 56 + 29
"""What a record in an object of its own takes: an entry and an object."""
SMALL = replace(QUICK, index_bytes_max=20 * ENTRY_BYTES, index_throttle_ms_max=1)


@pytest.mark.parametrize(
    ("held_bytes", "waits_ms"),
    [
        (0, 0),
        (800, 0),
        (801, 5),
        (850, 250),
        (900, 500),
        (999, 995),
        (1_000, 1_000),
        (9_000, 1_000),
    ],
)
def test_requests_wait_the_longer_the_less_room_is_left(held_bytes: int, waits_ms: int) -> None:
    assert throttle_ms(held_bytes, LogOptions(index_bytes_max=1_000)) == waits_ms


@pytest.mark.parametrize(("name", "value"), [("index_bytes_max", 0), ("index_throttle_ms_max", -1)])
def test_a_budget_of_nothing_is_refused(name: str, value: int) -> None:
    limit: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        LogOptions(**limit)


async def send(cluster: MemoryCluster, node: MemoryNode, stream: int) -> None:
    """Append one record as a producer does; raises `Unavailable` when there is no room."""
    if not node.log.has_room(1):
        await node.log.room(1, deadline_s=cluster.soon())
    outcome = await node.log.append([stream], [batch(b"a")], deadline_s=cluster.soon())
    assert outcome.verdicts == [Verdict.ACCEPTED]


async def filled(
    cluster: MemoryCluster, *streams: int, options: LogOptions = SMALL
) -> tuple[MemoryNode, int]:
    """A node whose index takes no more, and how many records its first stream has."""
    node = await cluster.node(options=options)
    await node.log.create_streams(TOPIC, first_partition=0, streams=streams)
    for count in range(1_000):
        try:
            await send(cluster, node, streams[0])
        except Unavailable:
            return node, count
    raise AssertionError("the index has no limit")


async def trim(node: MemoryNode, count: int) -> None:
    await node.log.trim({1: count - 1})


async def drop(node: MemoryNode, _: int) -> None:
    await node.log.drop_streams([1])


async def swap(node: MemoryNode, count: int) -> None:
    names = {piece.name for piece in node.log.pieces(1)}
    file = FileName(FileKind.PARQUET, "compaction/v1/topic=t/1-0-a1.parquet")
    replaces = tuple(sorted(digest(name) for name in names))
    swapped = await node.replica.submit(Swap(1, 0, count, file, 1_000, 1_000, replaces))
    assert swapped == Swapped(accepted=True)


@pytest.mark.parametrize("give_back", [trim, drop, swap])
def test_producers_are_refused_at_the_limit_and_go_on_when_entries_are_gone(
    give_back: object,
) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node, count = await filled(cluster, 1, 2)
        assert count == 20
        with pytest.raises(Unavailable, match=r"log\.index_bytes_max"):
            await send(cluster, node, 2)
        # What was acknowledged is there, and nothing else.
        assert values(await read(cluster, node, 1, 0)) == [(n, b"a") for n in range(20)]
        await give_back(node, count)  # type: ignore[operator]  # one of three
        assert node.log.has_room(1)
        await send(cluster, node, 2)
        assert values(await read(cluster, node, 2, 0)) == [(0, b"a")]

    run(scenario)


def test_few_dead_entries_are_given_back_before_producers_are_refused() -> None:
    """Entries that were swapped or trimmed long ago must not keep producers out for ever."""

    async def scenario(cluster: MemoryCluster) -> None:
        node, _ = await filled(cluster, 1)
        await node.log.trim({1: 2})
        assert node.replica.state.index.columns.count == 18
        await send(cluster, node, 1)
        await send(cluster, node, 1)
        with pytest.raises(Unavailable):
            await send(cluster, node, 1)
        assert len(values(await read(cluster, node, 1, 2))) == 20

    run(scenario)


def test_what_another_broker_writes_is_taken_in_however_full_the_index_is() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        one, count = await filled(cluster, 1)
        two = await cluster.node("broker-2")
        for _ in range(5):
            await send(cluster, two, 1)
        await one.log.prove([1], arrived_s=cluster.clock.monotonic_s(), deadline_s=cluster.soon())
        assert len(values(await read(cluster, one, 1, count))) == 5
        with pytest.raises(Unavailable):
            await send(cluster, one, 1)

    run(scenario)


def test_a_broker_that_begins_with_a_full_index_serves_and_refuses() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        large = await cluster.node("broker-1")
        await large.log.create_streams(TOPIC, first_partition=0, streams=[1])
        for _ in range(25):
            await send(cluster, large, 1)
        small = await cluster.node("broker-2", SMALL)
        assert not small.log.has_room(1)
        assert len(values(await read(cluster, small, 1, 0))) == 25
        with pytest.raises(Unavailable):
            await send(cluster, small, 1)

    run(scenario)


def test_a_write_of_others_is_refused_too_but_one_that_was_taken_in_is_known() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node(options=SMALL)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        taken = request(await placed(cluster, 1), version=1)
        await node.log.write(taken, deadline_s=cluster.soon())
        while node.log.has_room(1):
            await send(cluster, node, 1)
        for _ in range(10):
            await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
        asked = request(await placed(cluster, 1), version=2)
        with pytest.raises(Unavailable, match=r"log\.index_bytes_max"):
            await node.log.write(asked, deadline_s=cluster.soon())
        again = await node.log.write(taken, deadline_s=cluster.soon())
        assert again == (WrittenDomain(0, is_new=False),)

    run(scenario)


def test_refusals_are_counted_all_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node, _ = await filled(cluster, 1)
        for _ in range(30):
            with pytest.raises(Unavailable):
                await send(cluster, node, 1)

    with caplog.at_level(logging.WARNING, logger="lakelog.log"):
        run(scenario)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["index_throttled", "index_full"]
