"""From snapshots of a topic's table to offsets of the topic, and back, for users.

    lakelog.tables.snapshots("orders", server="http://127.0.0.1:8080")
    lakelog.tables.offsets("orders", snapshot_id, server=…)        where a snapshot ends
    lakelog.tables.snapshot_at("orders", time=…, server=…)         which one was it
    lakelog.tables.seen_by("orders", "billing", server=…)          how far a group is
    lakelog.tables.read_seen("orders", "billing", server=…)        exactly the rows it has seen

A broker is asked over its HTTP port (`server`), or one that a configuration file leads to
(`config`), as in `lakelog.read`. Every failure has a name and says what is missing.
"""

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from lakelog.catalog.snapshot_page import SnapshotFact
from lakelog.config.named_options import CONFIG, SERVER, BadOption, parse_cluster
from lakelog.index.http_client import BrokerClient, known_brokers
from lakelog.index.messages import READ
from lakelog.lake.read.arrow_reader import read, run_on_thread
from lakelog.lake.read.http_index import HttpIndex
from lakelog.lake.read.read_options import ASSIGN, ENDING_OFFSETS
from lakelog.lake.read.read_request import arrow_schema, chosen_columns, default_columns
from lakelog.lake.read.topic_source import find_cluster
from lakelog.model.failures import Unavailable
from lakelog.tables.client import SnapshotClient, SnapshotSearch
from lakelog.tables.values import (
    NoSnapshot,
    Offsets,
    TableSnapshot,
    UnknownSnapshot,
    is_within,
    milliseconds,
    offsets_of,
    snapshot_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

ResultT = TypeVar("ResultT")


def snapshots(
    topic: str, *, server: str | None = None, config: str | None = None, limit: int | None = None
) -> tuple[TableSnapshot, ...]:
    """The snapshots of a topic's table, the oldest first, those too that it let go of.

    With a limit, the newest so many.
    """
    if limit is not None and limit < 0:
        raise BadOption("limit", f"limit is {limit}, but must not be negative")

    async def work(client: SnapshotClient) -> tuple[TableSnapshot, ...]:
        found = await client.found(topic)
        while not _is_enough(found, limit) and await found.older() is not None:
            continue
        return tuple(_snapshot(found, one) for one in reversed(found.all()[:limit]))

    return _asked(work, server=server, config=config)


def offsets(
    topic: str, snapshot: int, *, server: str | None = None, config: str | None = None
) -> Offsets:
    """Where a snapshot ends: for each partition the first offset that it does not hold."""

    async def work(client: SnapshotClient) -> Offsets:
        found = await client.found(topic)
        while found.get(snapshot) is None and await found.older() is not None:
            continue
        fact = found.get(snapshot)
        if fact is not None:
            return _snapshot(found, fact).offsets
        raise UnknownSnapshot(
            f"the table of {topic} has no snapshot {snapshot}: it never had, or it let go of it"
            " longer ago than the topic's lakelog.snapshots.history.ms"
        )

    return _asked(work, server=server, config=config)


def snapshot_at(
    topic: str,
    *,
    offsets: Mapping[int, int] | None = None,
    time: datetime | None = None,
    server: str | None = None,
    config: str | None = None,
) -> TableSnapshot:
    """The newest snapshot that holds nothing beyond these offsets, or that was there at a time.

    A partition that the offsets do not name holds nothing for them, and -1 stands for its end.
    """
    wanted, said = _wanted(offsets, time)

    async def work(client: SnapshotClient) -> TableSnapshot:
        found = await client.found(topic)
        best = await found.newest(wanted)
        if best is not None:
            return _snapshot(found, best)
        known = found.all()
        if not known:
            raise NoSnapshot(f"no snapshot of the table of {topic} is known")
        oldest = _snapshot(found, known[-1])
        raise NoSnapshot(
            f"no snapshot of the table of {topic} is at or before {said}: the oldest that is known"
            f" is {oldest.id} of {oldest.time.isoformat()}"
        )

    return _asked(work, server=server, config=config)


def seen_by(
    topic: str, group: str, *, server: str | None = None, config: str | None = None
) -> Offsets:
    """How far a group has committed, partition by partition; -2 where it committed nothing."""

    async def work(client: SnapshotClient) -> Offsets:
        found = await client.committed(group, topic)
        return offsets_of(topic, found.offsets, partition_count=found.partition_count)

    return _asked(work, server=server, config=config)


def read_seen(
    topic: str,
    group: str,
    *,
    columns: Sequence[str] | None = None,
    server: str | None = None,
    config: str | None = None,
) -> "pa.Table":
    """The rows before the offsets that a group has committed, as far as the log still has them."""
    chosen = default_columns(include_headers=False) if columns is None else chosen_columns(columns)
    ends = _asked(lambda client: _seen(client, topic, group), server=server, config=config)
    if not ends:
        return arrow_schema(chosen).empty_table()
    named = {str(partition): end for partition, end in ends.items()}
    options = {ASSIGN: json.dumps({topic: list(ends)}), ENDING_OFFSETS: json.dumps({topic: named})}
    return read(columns=chosen, options=options, server=server, config=config)


async def _seen(client: SnapshotClient, topic: str, group: str) -> dict[int, int]:
    """Where to end in each partition that has something which the group has seen."""
    committed = await client.committed(group, topic)
    index = HttpIndex(client.brokers)
    try:
        topics = await index.topics([topic])
        if not topics or topics[0].topic_id != committed.topic_id:
            raise Unavailable(f"{topic} was deleted, or made again, while it was asked about")
        streams = topics[0].streams
        bounds = await index.bounds(streams)
    finally:
        await index.close()
    ends = {}
    for partition, offset in sorted(committed.offsets.items()):
        found = bounds.get(streams[partition]) if partition < len(streams) else None
        if found is not None and found.log_start < min(offset, found.head):
            ends[partition] = min(offset, found.head)
    return ends


def _is_enough(found: SnapshotSearch, limit: int | None) -> bool:
    """Whether no older snapshot can be among the newest so many."""
    if limit is None:
        return False
    known = found.all()
    return len(known) >= limit and (not limit or known[limit - 1].sequence_number >= found.reached)


def _wanted(
    offsets: Mapping[int, int] | None, time: datetime | None
) -> tuple[Callable[[SnapshotFact], bool], str]:
    """Which snapshots are early enough, and how that is said."""
    if (offsets is None) == (time is None):
        raise BadOption("offsets", "give either offsets or time")
    if time is not None:
        try:
            time_ms = milliseconds(time)
        except ValueError as reason:
            raise BadOption("time", str(reason)) from reason
        return (lambda one: one.timestamp_ms <= time_ms), time.isoformat()
    given = dict(offsets or {})
    if not all(isinstance(one, int) for pair in given.items() for one in pair):
        raise BadOption("offsets", f"{given!r} is not offsets by partition, as {{0: 5}}")
    return (lambda one: is_within(one.vector, given)), f"{given}"


def _snapshot(found: SnapshotSearch, fact: SnapshotFact) -> TableSnapshot:
    return snapshot_of(
        fact,
        found.topic,
        partition_count=found.partition_count,
        is_live=fact.snapshot_id in found.live,
    )


def _asked(
    work: Callable[[SnapshotClient], Awaitable[ResultT]],
    *,
    server: str | None,
    config: str | None,
) -> ResultT:
    """Run it with a client of the cluster, on a thread: the caller's may have a loop already."""
    given = {name: text for name, text in ((SERVER, server), (CONFIG, config)) if text is not None}
    connection = parse_cluster(given, has_bootstrap=False)

    async def run() -> ResultT:
        environment = os.environ  # noqa: TID251 - a user's process has no other root
        brokers = (await find_cluster(connection, environment)).brokers
        brokers_client = BrokerClient(known_brokers(brokers), READ.path, serves="readers")
        try:
            return await work(SnapshotClient(brokers_client, brokers))
        finally:
            await brokers_client.close()

    return run_on_thread(run())
