"""What the owner of a membership sees of it: how it stands now, what changes, what went wrong.

Rules: the membership's loop writes, any thread reads. How a member stands is one frozen value that
is replaced as a whole, so what one look at it shows goes together. News go to the watchers and to
the callbacks, in the order in which they happened; partitions that must be given back are out of
sight before anyone is told to let go of them.
"""

import asyncio
from dataclasses import replace
from typing import assert_never

from lakelog.clock import Clock
from lakelog.discovery.callbacks import CallbackThread, Listeners
from lakelog.discovery.failures import DiscoveryError, NotRunning
from lakelog.discovery.member_state import Member, Phase
from lakelog.discovery.membership_values import (
    Assigned,
    Change,
    Lost,
    MembersChanged,
    Reported,
    Revoked,
    StateChanged,
)
from lakelog.discovery.node import NodeInfo, NodeState, TopicPartition
from lakelog.discovery.partition_ids import PartitionCountChanged
from lakelog.discovery.watch import Source

Nodes = tuple[NodeInfo, ...]
Partitions = tuple[TopicPartition, ...]


class Audience:
    """Everyone's callbacks, by kind of news; they outlive a membership."""

    def __init__(self) -> None:
        self.changed: Listeners[Nodes] = Listeners()
        self.assigned: Listeners[Partitions] = Listeners()
        self.revoked: Listeners[Partitions] = Listeners()
        self.lost: Listeners[Partitions] = Listeners()
        self.partition_count: Listeners[PartitionCountChanged] = Listeners()
        self.failed: Listeners[DiscoveryError] = Listeners()


class News:
    """The owner of one membership, as the session knows it."""

    def __init__(self, member: Member, audience: Audience, clock: Clock) -> None:
        self.member = member
        self.source: Source[Nodes] = Source(())
        self.last_failure: DiscoveryError | None = None
        self.failure: DiscoveryError | None = None
        """What ended the membership."""
        self.callbacks = CallbackThread(f"lakelog-discovery-calls-{member.node.node_id}", clock)
        self.is_stopped_by_callback = False
        self._audience = audience
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
                self._audience.changed.tell(nodes, self.callbacks)

    def hear(self, change: Change) -> "asyncio.Future[None] | None":
        """Tell the callbacks; the future is done when those have returned that matter."""
        audience, thread = self._audience, self.callbacks
        match change:
            case StateChanged() | MembersChanged():
                return None  # seen by `look`
            case Assigned():
                audience.assigned.tell(change.partitions, thread)
            case Revoked():
                told = audience.revoked.tell(change.partitions, thread)
                # A callback that stops the node cannot be waited for by what it waits for.
                return None if self.is_stopped_by_callback else asyncio.wrap_future(told)
            case Lost():
                listeners = audience.lost if len(audience.lost) else audience.revoked
                listeners.tell(change.partitions, thread)
            case PartitionCountChanged():
                audience.partition_count.tell(change, thread)
            case Reported():
                self.last_failure = change.failure
                audience.failed.tell(change.failure, thread)
            case _:
                assert_never(change)
        return None

    def fail(self, failure: DiscoveryError) -> None:
        """The membership has ended by a failure."""
        self.last_failure = self.failure = failure
        self._settled.set()
        self._audience.failed.tell(failure, self.callbacks)
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
