"""What the owner of a membership sees of it: its state, what changes, and the callbacks it gave.

Rules of what is seen: the membership's loop writes, any thread reads. How a member stands is one
frozen value that is replaced as a whole, so what one look at it shows goes together. Changes go to
the watchers and to the callbacks, in the order in which they happened; partitions that must be
given back are out of sight before anyone is told to let go of them.

Rules of callbacks: they run one after the other, in the order of what happened, on a thread of
their own and never on the one that keeps a node in its group: whatever they do, heartbeats go on.
How long the one that runs has run is known, so that somebody can draw the conclusion. What a
callback raises is logged and ends nothing. The thread starts with the first call and is a daemon's:
a callback that never returns must not hold up the end of a process.
"""

import asyncio
import functools
import inspect
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, Generic, TypeVar, assert_never

from lakelog.clock import Clock
from lakelog.discovery.failures import DiscoveryError, NotRunning
from lakelog.discovery.member import Member, Phase
from lakelog.discovery.membership_events import (
    Change,
    MembersChanged,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Reported,
    StateChanged,
)
from lakelog.discovery.node import NodeInfo, NodeState, PartitionCountChanged, TopicPartition
from lakelog.discovery.watch import Publisher

T = TypeVar("T")
Call = Callable[[], object]

log: Final = logging.getLogger("lakelog.discovery")


class CallbackThread:
    """The thread on which callbacks run."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[Sequence[Call], Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._closed = False
        self._busy_since_s: float | None = None

    def run(self, calls: Sequence[Call]) -> Future[None]:
        """Have these called in turn; the future is done when all have returned."""
        done: Future[None] = Future()
        with self._lock:
            if self._closed or not calls:
                done.set_result(None)
                return done
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._waiting.put((calls, done))
        return done

    @property
    def is_current(self) -> bool:
        """Whether this is asked by a callback."""
        return self._thread is threading.current_thread()

    def busy_s(self) -> float:
        """For how long the callback that runs has run; 0 if none does."""
        since_s = self._busy_since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    def close(self, timeout_s: float) -> bool:
        """Call nothing new, and wait for what was asked before; false if it takes longer.

        A callback may close its own thread: that ends when the callback returns.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _work(self) -> None:
        while (next_up := self._waiting.get()) is not None:
            calls, done = next_up
            for call in calls:
                self._busy_since_s = self._clock.monotonic_s()
                try:
                    call()
                except Exception:
                    log.exception("a callback of discovery failed")
                finally:
                    self._busy_since_s = None
            done.set_result(None)


class Listeners(Generic[T]):
    """The callbacks for one kind of news."""

    def __init__(self) -> None:
        self._callbacks: tuple[Callable[[T], object], ...] = ()

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[T], object]) -> None:
        """Call this one too, from the next news on."""
        if inspect.iscoroutinefunction(callback):
            raise TypeError(f"a callback is a plain function, not {callback!r}")
        self._callbacks = (*self._callbacks, callback)

    def tell(self, view: T, thread: CallbackThread) -> Future[None]:
        """Tell all of them on that thread; the future is done when all have returned."""
        return thread.run([functools.partial(callback, view) for callback in self._callbacks])


Nodes = tuple[NodeInfo, ...]
Partitions = tuple[TopicPartition, ...]


class DiscoveryCallbacks:
    """Everyone's callbacks, by kind of news; they outlive a membership."""

    def __init__(self) -> None:
        self.changed: Listeners[Nodes] = Listeners()
        self.assigned: Listeners[Partitions] = Listeners()
        self.revoked: Listeners[Partitions] = Listeners()
        self.lost: Listeners[Partitions] = Listeners()
        self.partition_count: Listeners[PartitionCountChanged] = Listeners()
        self.failed: Listeners[DiscoveryError] = Listeners()


class MembershipView:
    """The owner of one membership, as the session knows it."""

    def __init__(self, member: Member, subscribers: DiscoveryCallbacks, clock: Clock) -> None:
        self.member = member
        self.source: Publisher[Nodes] = Publisher(())
        self.last_failure: DiscoveryError | None = None
        self.failure: DiscoveryError | None = None
        """What ended the membership."""
        self.callbacks = CallbackThread(f"lakelog-discovery-calls-{member.node.node_id}", clock)
        self.is_stopped_by_callback = False
        self._subscribers = subscribers
        self._is_over = False
        self._settled = asyncio.Event()

    @property
    def state(self) -> NodeState:
        """How the node stands in its group."""
        return NodeState.LEFT if self._is_over else self.member.state

    @property
    def is_gone(self) -> bool:
        """Whether the node is no member and will not be one again."""
        return self._is_over or self.member.phase is Phase.GONE

    async def joined(self) -> None:
        """Wait until the node is a member and has seen the others; raises what prevented it."""
        while not self.member.nodes:
            if self.failure is not None:
                raise self.failure
            if self.is_gone:
                raise NotRunning("it was stopped before it was a member")
            self._settled.clear()
            await self._settled.wait()

    async def left(self) -> None:
        """Wait until the node is no member."""
        while not self.is_gone:
            self._settled.clear()
            await self._settled.wait()

    def end(self) -> None:
        """Nothing will happen any more."""
        self._is_over = True
        self._settled.set()
        self.source.close()

    # --- what the session calls -----------------------------------------------------------------

    def look(self, member: Member) -> None:
        """This is how it stands now."""
        before, self.member = self.member, member
        if before.phase is not member.phase or before.nodes is not member.nodes:
            self._settled.set()
        if before.nodes is not member.nodes or before.state is not member.state:
            nodes = _with_own_state(member)
            if self.source.publish(nodes):
                self._subscribers.changed.tell(nodes, self.callbacks)

    def hear(self, change: Change) -> "asyncio.Future[None] | None":
        """Tell the callbacks; the future is done when those have returned that matter."""
        subscribers, thread = self._subscribers, self.callbacks
        match change:
            case StateChanged() | MembersChanged():
                return None  # seen by `look`
            case PartitionsAssigned():
                subscribers.assigned.tell(change.partitions, thread)
            case PartitionsRevoked():
                told = subscribers.revoked.tell(change.partitions, thread)
                # A callback that stops the node cannot be waited for by what it waits for.
                return None if self.is_stopped_by_callback else asyncio.wrap_future(told)
            case PartitionsLost():
                listeners = subscribers.lost if len(subscribers.lost) else subscribers.revoked
                listeners.tell(change.partitions, thread)
            case PartitionCountChanged():
                subscribers.partition_count.tell(change, thread)
            case Reported():
                self.last_failure = change.failure
                subscribers.failed.tell(change.failure, thread)
            case _:
                assert_never(change)
        return None

    def fail(self, failure: DiscoveryError) -> None:
        """The membership has ended by a failure."""
        self.last_failure = self.failure = failure
        self._settled.set()
        self._subscribers.failed.tell(failure, self.callbacks)
        self.source.close(failure)

    def busy_s(self) -> float:
        """For how long a callback has been running."""
        return self.callbacks.busy_s()


def _with_own_state(member: Member) -> Nodes:
    """The members, this one as it knows itself: the others see only what it announced."""
    return tuple(
        replace(node, state=member.state) if node.node_id == member.node.node_id else node
        for node in member.nodes
    )
