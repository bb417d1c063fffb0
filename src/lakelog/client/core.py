"""What a consumer is made of, and its one step: take in what came, give out what may go.

Rules: one lock guards the reader's state, and is held for a step, never while waiting. `close` ends
both threads; also when the consumer could not be made, none is left.
"""

import asyncio
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelog.client.arrow_rows import MessageRows
from lakelog.client.consumer_loop import ConsumerLoop
from lakelog.client.decoder import MemoryAccount
from lakelog.client.events import ConsumerEvents, PartitionAdded
from lakelog.client.options import ConsumerOptions, Snapshot, SourceTopic, check_policies
from lakelog.client.reader import OrderedReader, ReaderOptions
from lakelog.client.watermark import Rule
from lakelog.clock import Clock, SystemEntropy
from lakelog.kafka_client.failures import Closed
from lakelog.kafka_client.loop_thread import LoopThread
from lakelog.kafka_client.settings import ClientSettings

if TYPE_CHECKING:
    import pyarrow as pa


class ConsumerCore:
    """The threads, the reader and the loop's part of one consumer."""

    def __init__(
        self,
        config: Mapping[str, object],
        source: tuple[SourceTopic, ...] | Snapshot,
        options: ConsumerOptions,
        clock: Clock,
    ) -> None:
        self.settings = ClientSettings.parse(config)
        if not isinstance(source, Snapshot):
            check_policies(source, self.settings.group_id)
        self.options = options
        self.clock = clock
        self.turn = threading.Lock()
        self.is_closed = False
        self.polls = 0
        self.event_queue = ConsumerEvents()
        self._memory = MemoryAccount()
        self.reader = OrderedReader(
            ReaderOptions(
                rule=Rule(options.cutoff_ms, options.out_of_order_ms),
                is_ordered=options.ordered,
                idle_ms_max=options.max_idle_ms,
            ),
            self._memory,
        )
        names = self.reader.names
        self.rows = MessageRows(names, views=options.views, headers=options.headers)
        self.thread = LoopThread("lakelog-consumer")
        try:
            self.consumer_loop, joined = self.thread.run(self._open(source))
        except BaseException:
            self.thread.close()
            raise
        # Whoever forgets to close is forgiven, also at the interpreter's exit.
        self._finalizer = weakref.finalize(self, _end, self.thread, self.consumer_loop)
        self.reader.take_in(joined)
        self._tell_loop()

    async def _open(
        self, source: tuple[SourceTopic, ...] | Snapshot
    ) -> tuple[ConsumerLoop, list[PartitionAdded]]:
        consumer_loop = ConsumerLoop(
            self.settings,
            self.options,
            self.event_queue,
            self._memory,
            clock=self.clock,
            entropy=SystemEntropy(),
        )
        try:
            if isinstance(source, Snapshot):
                return consumer_loop, await consumer_loop.restore(source)
            return consumer_loop, await consumer_loop.open(source)
        except BaseException:
            await consumer_loop.close()
            raise

    def step(self) -> "pa.RecordBatch | None":
        """The next rows that may go, if any; raises what went wrong."""
        with self.turn:
            if self.is_closed:
                raise Closed("the consumer is closed")
            self.polls += 1
            reader = self.reader
            reader.take_in(self.event_queue.drain())
            reader.find_idle(self.clock.monotonic_s())
            failure = reader.first_failure()
            if failure is not None:
                raise failure.with_traceback(None)
            taken = reader.release(self.options.batch_size)
            self._tell_loop()
            return None if taken is None else self.rows.build(taken)

    def _tell_loop(self) -> None:
        """Let the loop know what it should: who is not waited for any more, and of room."""
        wait_changes = self.reader.wait_changes
        if wait_changes:
            self.reader.wait_changes = {}
            self.thread.call(
                self.consumer_loop.await_no_more, wait_changes, is_primed=self.reader.is_primed
            )
        elif self.consumer_loop.scheduler.is_full:
            self.thread.call(self.consumer_loop.wake)

    def close(self) -> None:
        """End everything; again is allowed."""
        with self.turn:
            if self.is_closed:
                return
            self.is_closed = True
        self.event_queue.close()
        self._finalizer()


def _end(thread: LoopThread, consumer_loop: ConsumerLoop) -> None:
    """Hang up and end both threads, from any thread: the collector runs on any."""
    if _is_on(thread):
        threading.Thread(target=_end, args=(thread, consumer_loop), name="lakelog-close").start()
        return
    try:
        thread.run(consumer_loop.close())
    except Closed:
        return  # a forked child: the threads are its parent's
    finally:
        consumer_loop.close_decoder()
        thread.close()


def _is_on(thread: LoopThread) -> bool:
    try:
        return asyncio.get_running_loop() is thread.loop
    except RuntimeError:
        return False
