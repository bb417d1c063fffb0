"""Topics as Arrow, without Spark and without a broker on the way of the data.

    lakelog.read("orders", server="http://127.0.0.1:8080")            a pyarrow.Table
    lakelog.open("orders", server=…, columns=["value"])               a RecordBatchReader

The options are those of Spark's Kafka source, by the same names; `starting`, `ending`, `columns`
and `where` are shorter ways to say the usual ones. What is read is decided when the function is
called: the reader gives the rows of that moment, however late it is used. Rows come in the order of
topic, partition and offset. Several threads read and decode; memory is bounded by a few batches of
each split.

Whoever calls has no loop, or one that must not be blocked, as a notebook has. So the reading runs
on a loop of its own; its thread and everything that is open are gone when the last batch was taken
or the iterator is closed.
"""

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack

from lakelog.clock import Tasks
from lakelog.config.named_options import CONFIG, SERVER, BadOption
from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.read_options import (
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    parse_read,
)
from lakelog.lake.read.read_request import (
    Condition,
    ReadRequest,
    arrow_schema,
    checked_conditions,
    chosen_columns,
    default_columns,
    filters_of,
)
from lakelog.lake.read.splits import Split
from lakelog.lake.read.topic_source import (
    ClusterAddress,
    ReadPlan,
    TopicSource,
    find_cluster,
    open_source,
)

if TYPE_CHECKING:
    import pyarrow as pa

BATCHES_AHEAD: Final = 2
"""Batches of each split that wait to be taken."""

ResultT = TypeVar("ResultT")


def read_batches(
    reached: ClusterAddress, splits: Sequence[Split], options: RowOptions, *, threads: int
) -> "Generator[pa.RecordBatch, None, None]":
    """The rows of the splits, in order; nothing is open before the first is asked for."""
    if not splits:
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="lakelog-rows") as pool:
        running = _Running(reached, splits, replace(options, pool=pool), threads=threads)
        try:
            yield from running.batches()
        finally:
            running.stop()


def run_on_thread(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run it on a thread: the caller's may have a loop already, as in a notebook."""
    with ThreadPoolExecutor(1, thread_name_prefix="lakelog-plan") as pool:
        return pool.submit(asyncio.run, work).result()


class _Running:
    """A read in progress: a loop on a thread of its own, and a queue for every split."""

    def __init__(
        self, reached: ClusterAddress, splits: Sequence[Split], options: RowOptions, *, threads: int
    ) -> None:
        self._reached = reached
        self._threads = threads
        self._splits = splits
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="lakelog-read", daemon=True
        )
        self._queues: list[asyncio.Queue[pa.RecordBatch | BaseException | None]] = []
        self._tasks = Tasks()
        self._source: TopicSource | None = None

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The batches of all splits, one split after another."""
        self._thread.start()
        self._call(self._start())
        for queue in self._queues:
            while (found := self._call(queue.get())) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found

    def stop(self) -> None:
        """End what runs; the loop and its thread are gone then."""
        if self._thread.is_alive():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._source = await open_source(self._reached)
        slots = asyncio.Semaphore(self._threads)
        for split in self._splits:
            queue: asyncio.Queue[pa.RecordBatch | BaseException | None]
            queue = asyncio.Queue(BATCHES_AHEAD)
            self._queues.append(queue)
            work = self._pump(self._source, split, queue, slots)
            self._tasks.spawn(work, name="split")

    async def _pump(
        self,
        source: TopicSource,
        split: Split,
        queue: "asyncio.Queue[pa.RecordBatch | BaseException | None]",
        slots: asyncio.Semaphore,
    ) -> None:
        """The rows of one split into its queue; the semaphore is fair, so the first go first."""
        async with slots:
            try:
                async with aclosing(source.read(split, self._options)) as rows:
                    async for batch in rows:
                        await queue.put(batch)
            except Exception as error:  # noqa: BLE001 - raised in the thread that asked
                await queue.put(error)
            await queue.put(None)

    async def _end(self) -> None:
        await self._tasks.close()
        if self._source is not None:
            await self._source.close()

    def _call(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


Where: TypeAlias = "str | datetime | Mapping[Any, Any] | None"
"""`earliest`, `latest`, Spark's JSON, a time, or offsets by partition: {0: 5} or {"t": {0: 5}}."""

_log: Final = logging.getLogger(__name__)


class ReadOptions(TypedDict, total=False):
    """What a user may say of a read apart from the topic: the keywords of `lakelog.read`."""

    server: str | None
    """The HTTP address of a broker."""
    config: str | None
    """A configuration file, where there is no broker to ask."""
    columns: Sequence[str] | None
    starting: Where
    ending: Where
    where: Sequence[Sequence[object]]
    """Conditions, each a column, an operator and a value; all of them hold."""
    options: Mapping[str, str] | None
    """Options of Spark's Kafka source, by name."""


@dataclass(frozen=True, slots=True)
class ParsedRead:
    """What a call asks for: its options, what they mean, and which columns and rows."""

    options: Mapping[str, str]
    request: ReadRequest
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]


def read(
    topic: str | Sequence[str] | None = None,
    *,
    threads: int | None = None,
    **keywords: Unpack[ReadOptions],
) -> "pa.Table":
    """All rows as one table, by the keywords of `open`; raises `BadOption` and other failures."""
    return open(topic, threads=threads, **keywords).read_all()


def open(  # noqa: A001 - `lakelog.open` reads well
    topic: str | Sequence[str] | None = None,
    *,
    threads: int | None = None,
    **keywords: Unpack[ReadOptions],
) -> "pa.RecordBatchReader":
    """The rows as a reader of batches, planned now and read as they are taken.

    Keywords: `server` or `config` say where the topics are; `columns`, `starting`, `ending` and
    `where` which part of them; `options` whatever else Spark's Kafka source knows.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    call = read_call(topic, **keywords)
    task = _Task(call, threads or os.cpu_count() or 1)
    reached, plan = run_on_thread(task.planned())
    for note in plan.notes:
        _noted(note)
    return pa.RecordBatchReader.from_batches(arrow_schema(call.columns), task.rows(reached, plan))


def read_call(  # noqa: PLR0913 - `ReadOptions`, one by one: others are a `TypeError`
    topic: str | Sequence[str] | None,
    *,
    server: str | None = None,
    config: str | None = None,
    columns: Sequence[str] | None = None,
    starting: Where = None,
    ending: Where = None,
    where: Sequence[Sequence[object]] = (),
    options: Mapping[str, str] | None = None,
) -> ParsedRead:
    """What the arguments of a call mean; raises `BadOption`."""
    given = dict(options or {})
    if topic is not None:
        names = [topic] if isinstance(topic, str) else list(topic)
        _set(given, SUBSCRIBE, ",".join(names))
    _set(given, SERVER, server)
    _set(given, CONFIG, config)
    for value, offsets, time in (
        (starting, STARTING_OFFSETS, STARTING_TIMESTAMP),
        (ending, ENDING_OFFSETS, ENDING_TIMESTAMP),
    ):
        _set(given, time if isinstance(value, datetime) else offsets, _limit(value, topic))
    request = parse_read(given, streaming=False)
    chosen = (
        default_columns(include_headers=request.include_headers)
        if columns is None
        else chosen_columns(columns)
    )
    return ParsedRead(given, request, chosen, checked_conditions(where))


def _set(given: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        return
    if any(other.lower() == name.lower() for other in given):
        raise BadOption(name, f"{name} is given twice")
    given[name] = value


def _limit(value: Where, topic: str | Sequence[str] | None) -> str | None:
    """The text of an option for a place to begin or to end."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadOption("starting", f"{value!r} needs a time zone, as datetime.UTC")
        return str(round(value.timestamp() * 1000))
    if not all(isinstance(offsets, Mapping) for offsets in value.values()):
        if not isinstance(topic, str):
            raise BadOption(
                "starting", "offsets of several topics are {topic: {partition: offset}}"
            )
        value = {topic: value}
    by_name = {
        name: {str(partition): offset for partition, offset in offsets.items()}
        for name, offsets in value.items()
    }
    try:
        return json.dumps(by_name)
    except TypeError as reason:
        raise BadOption("starting", f"{value!r} is not offsets by partition: {reason}") from reason


@dataclass(frozen=True, slots=True)
class _Task:
    """One read: what, and with how many threads."""

    call: ParsedRead
    threads: int

    async def planned(self) -> tuple[ClusterAddress, ReadPlan]:
        """What the request means now, and where that is."""
        environment = os.environ  # noqa: TID251 - a user's process has no other root
        reached = await find_cluster(self.call.request.connection, environment)
        source = await open_source(reached)
        try:
            filters = filters_of(self.call.conditions)
            return reached, await source.plan(
                self.call.request, filters=filters, slots=self.threads
            )
        finally:
            await source.close()

    def rows(self, reached: ClusterAddress, plan: ReadPlan) -> "Iterator[pa.RecordBatch]":
        """The rows of the plan, in order; nothing is open before the first is asked for."""
        wanted = dict.fromkeys(
            (*self.call.columns, *(column for column, _, _ in self.call.conditions))
        )
        since_us = filters_of(self.call.conditions).timestamp_start_us
        fail = self.call.request.fail_on_data_loss
        options = RowOptions(tuple(wanted), fail, note=_noted, since_us=since_us)
        keep = self._keep()
        with closing(read_batches(reached, plan.splits, options, threads=self.threads)) as batches:
            for batch in batches:
                yield from keep(batch)

    def _keep(self) -> "Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]":
        """What takes the wanted rows and columns out of a batch."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        if not self.call.conditions:
            return lambda batch: iter((batch,))
        from pyarrow.parquet import filters_to_expression  # noqa: PLC0415 - as above

        expression = filters_to_expression(list(self.call.conditions))
        columns = list(self.call.columns)

        def keep(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
            found = pa.Table.from_batches([batch]).filter(expression).select(columns)
            yield from found.to_batches()

        return keep


def _noted(note: str) -> None:
    _log.warning("%s", note)
