"""Records of any Kafka as Arrow, in the order of their time across partitions.

`ConsumerManager` is what users hold. Rules:

- Offsets are found before it is made; the end of each partition as of then divides history from
  what is live. While history is read, rows go out by timestamp, topic, partition and offset.
- One loop thread reads, one thread decodes; whoever calls `poll` sorts and builds. Calls may come
  from any thread, one at a time; `close` may come at any time.
- What goes wrong is raised by `poll`, with rows kept for later; a partition that cannot be read any
  more fails every `poll` until it is sought to somewhere else.
- rich draws the progress bar, and only when somebody asks: it is not imported before.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final

from lakelog.client.arrow_rows import history, lags, partition_states
from lakelog.client.core import ConsumerCore
from lakelog.client.options import (
    ConsumerOptions,
    Metrics,
    Snapshot,
    SourceTopic,
    parse_topics,
    whole_number,
)
from lakelog.client.watermark import ALL, NOTHING
from lakelog.clock import Clock, SystemClock
from lakelog.kafka_client.admin import TopicPartition
from lakelog.kafka_client.failures import BadConfig, Closed

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console


class PrimingBar:
    """The bar; a context manager, so that the terminal is put back in order."""

    def __init__(self, total: int, *, console: "Console | None" = None) -> None:
        from rich.progress import (  # noqa: PLC0415 - only when somebody wants a bar
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rows]:,} rows"),
            TextColumn("{task.fields[held]:,} held"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task("priming", total=max(total, 1), rows=0, held=0)
        self._total = max(total, 1)

    def __enter__(self) -> "PrimingBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, *, done: int, rows: int, held: int) -> None:
        """Draw how many offsets of the history are behind us."""
        self._progress.update(self._task, completed=min(done, self._total), rows=rows, held=held)

    def finish(self, *, rows: int) -> None:
        """Draw the end."""
        self._progress.update(self._task, completed=self._total, rows=rows, held=0)


WAIT_S_MAX: Final = 0.1
"""A waiting poll looks this often whether a partition became idle."""

ITERATION_MS: Final = 1000


class ConsumerManager:
    """Reads topics of any Kafka as Arrow record batches, in the order of their time.

    `config` has librdkafka's names. A partition is live once it was read to the end that it had
    when this was made, or to `cutoff_ms`; rows go out in order until all partitions are live, and
    as they come from then on. `out_of_order_ms` is how late a row may be within its partition.
    With `ordered=False` rows go out as they come from the start. At most `max_held_messages` rows
    and `max_held_bytes` bytes are held. A partition that answers nothing for `max_idle_ms` is not
    waited for. With `views` keys and values are not copied but refer to what was received.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of the user, by name and with a default
        self,
        config: Mapping[str, object],
        topics: Iterable[SourceTopic | Mapping[str, object] | object] | Snapshot,
        cutoff_ms: int | None = None,
        batch_size: int = 10_000,
        *,
        ordered: bool = True,
        max_held_messages: int | None = None,
        max_held_bytes: int = 256 * 1024 * 1024,
        out_of_order_ms: int = 60_000,
        max_idle_ms: int | None = None,
        views: bool = False,
        headers: bool = True,
        clock: Clock | None = None,
    ) -> None:
        options = ConsumerOptions(
            cutoff_ms=cutoff_ms,
            batch_size=batch_size,
            ordered=ordered,
            max_held_messages=max_held_messages,
            max_held_bytes=max_held_bytes,
            out_of_order_ms=out_of_order_ms,
            max_idle_ms=max_idle_ms,
            views=views,
            headers=headers,
        )
        source = topics if isinstance(topics, Snapshot) else parse_topics(topics)
        self._core = ConsumerCore(config, source, options, clock or SystemClock())

    @classmethod
    def restore(
        cls,
        config: Mapping[str, object],
        snapshot: Snapshot | Mapping[str, object] | str | bytes,
        **options: object,
    ) -> "ConsumerManager":
        """A consumer that gives out exactly what another one had not, when the snapshot was taken.

        The options are those of the constructor; ends and topics are those of the snapshot.
        """
        return cls(config, Snapshot.parse(snapshot), **options)  # type: ignore[arg-type]  # its own

    # Rows.

    def poll(self, timeout_ms: int = 1000) -> "pa.RecordBatch":
        """The next rows that may go, at most `batch_size`; none if none may within the time."""
        core = self._core
        end_s = core.clock.monotonic_s() + max(timeout_ms, 0) / 1000
        while True:
            batch = core.step()
            if batch is not None:
                return batch
            left_s = end_s - core.clock.monotonic_s()
            if left_s <= 0:
                return core.rows.empty()
            core.event_queue.wait(min(left_s, WAIT_S_MAX))

    async def poll_async(self, timeout_ms: int = 1000) -> "pa.RecordBatch":
        """As `poll`, without holding up the running loop."""
        core = self._core
        end_s = core.clock.monotonic_s() + max(timeout_ms, 0) / 1000
        while True:
            batch = core.step()
            if batch is not None:
                return batch
            left_s = end_s - core.clock.monotonic_s()
            if left_s <= 0:
                return core.rows.empty()
            await self._change(min(left_s, WAIT_S_MAX))

    async def _change(self, timeout_s: float) -> None:
        """Wait until something came, or so long."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(changed.set)
            except RuntimeError:
                return  # the loop was closed while nobody waited any more

        self._core.event_queue.call_when_changed(wake)
        try:
            async with asyncio.timeout(timeout_s):
                await changed.wait()
        except TimeoutError:
            return
        finally:
            self._core.event_queue.forget(wake)

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        """Batches with rows, until it is closed."""
        while True:
            try:
                batch = self.poll(ITERATION_MS)
            except Closed:
                return
            if batch.num_rows:
                yield batch

    async def __aiter__(self) -> "AsyncIterator[pa.RecordBatch]":
        """Batches with rows, until it is closed."""
        while True:
            try:
                batch = await self.poll_async(ITERATION_MS)
            except Closed:
                return
            if batch.num_rows:
                yield batch

    def priming(self, *, progress: bool = False) -> "Iterator[pa.RecordBatch]":
        """Batches with rows until everything is live; with a bar on the terminal if asked for."""
        if not progress:
            yield from self._priming()
            return
        reader = self._core.reader
        with PrimingBar(history(reader)[0]) as bar:
            for batch in self._priming():
                yield batch
                with self._core.turn:
                    _, done = history(reader)
                bar.show(done=done, rows=reader.rows_released, held=reader.held_rows)
            bar.finish(rows=reader.rows_released)

    def _priming(self) -> "Iterator[pa.RecordBatch]":
        while not self.is_live():
            batch = self.poll(ITERATION_MS)
            if batch.num_rows:
                yield batch

    # Where it stands.

    def is_live(self) -> bool:
        """Whether all partitions are live, and what was read until then was given out.

        Once live, it stays so.
        """
        with self._core.turn:
            return self._core.reader.is_live()

    def partition_state(self) -> "pa.RecordBatch":
        """One row for each partition (`PARTITION_STATE_SCHEMA`)."""
        with self._core.turn:
            return partition_states(self._core.reader, self._core.consumer_loop.scheduler.paused())

    def held_message_count(self) -> int:
        """How many rows were read and wait for their turn."""
        return self._core.reader.held_rows

    def held_bytes(self) -> int:
        """The memory of these rows."""
        return self._core.reader.held_bytes

    def paused_partition_count(self) -> int:
        """How many partitions wait because memory is full."""
        return len(self._core.consumer_loop.scheduler.paused())

    def priming_watermark_ms(self) -> int | None:
        """Up to which time rows may go; None before the first is known, and when all is live."""
        with self._core.turn:
            limit = self._core.reader.limit()
        return None if limit in (ALL, NOTHING) else limit.timestamp_ms

    get_priming_watermark = priming_watermark_ms

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets of each partition were not given out yet."""
        with self._core.turn:
            return lags(self._core.reader)

    def metrics(self) -> Metrics:
        """What was counted so far."""
        core = self._core
        reader, scheduler, fetcher = (
            core.reader,
            core.consumer_loop.scheduler,
            core.consumer_loop.fetcher,
        )
        refresh = core.consumer_loop.refresh
        assert refresh is not None, "made with the first partition"
        return Metrics(
            polls=core.polls,
            rows_received=reader.rows_received,
            rows_released=reader.rows_released,
            rows_held=reader.held_rows,
            rows_late=reader.late_rows,
            bytes_received=fetcher.counts.bytes_received,
            bytes_held=reader.held_bytes,
            fetches=fetcher.counts.fetches,
            fetches_failed=fetcher.counts.fetches_failed,
            batches_refetched=fetcher.counts.batches_refetched,
            squeezes=reader.squeezes,
            partitions_paused=scheduler.pauses,
            partitions_resumed=scheduler.resumes,
            paused_partitions=len(scheduler.paused()),
            partitions_added=refresh.counts.partitions_added,
            topics_recreated=refresh.counts.topics_recreated,
            offsets_reset=refresh.counts.offsets_reset,
        )

    # The position.

    def snapshot(self) -> Snapshot:
        """Where it is, as a value that `restore` goes on from."""
        with self._core.turn:
            return self._core.reader.snapshot()

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Read partitions from these offsets on; what is held of them is dropped."""
        core = self._core
        with core.turn:
            self._check_open()
            found = {state.place: state.progress.index for state in core.reader.current()}
            chosen: dict[int, int] = {}
            for (topic, partition), offset in offsets.items():
                index = found.get(TopicPartition(topic, partition))
                if index is None:
                    raise BadConfig("seek", f"{topic} [{partition}] is not read here")
                chosen[index] = whole_number("seek", offset, least=0)
            versions = core.thread.run(core.consumer_loop.seek(chosen))
            for index, offset in chosen.items():
                core.reader.seek(index, offset, versions[index])

    def commit(self) -> dict[TopicPartition, int]:
        """Commit what was given out to `group.id`, and return it: the next offsets to read.

        Where rows went out of order, it is the least offset that did not go.
        """
        self._check_group()
        with self._core.turn:
            self._check_open()
            reader = self._core.reader
            offsets = {state.place: reader.next_offset(state) for state in reader.current()}
        self._core.thread.run(self._core.consumer_loop.commit(offsets))
        return offsets

    def committed(self) -> dict[TopicPartition, int]:
        """What `group.id` committed of the partitions that are read here."""
        self._check_group()
        with self._core.turn:
            self._check_open()
            places = [state.place for state in self._core.reader.current()]
        return self._core.thread.run(self._core.consumer_loop.committed(places))

    def _check_group(self) -> None:
        if not self._core.settings.group_id:
            raise BadConfig("group.id", "is missing; commits belong to a group")

    def _check_open(self) -> None:
        if self._core.is_closed:
            raise Closed("the consumer is closed")

    # The end.

    def close(self) -> None:
        """Hang up and end all threads; again is allowed."""
        self._core.close()

    def __enter__(self) -> "ConsumerManager":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
