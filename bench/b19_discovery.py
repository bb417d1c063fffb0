"""B19: what discovery computes: assignments, the news of a rebalance, the bytes of 200 nodes.

No broker takes part. The peer of an assignment is kafka-python's sticky assignor, on the same
members and partitions: a first assignment, then one after a node has gone, in turns. Then what the
state machine and its shell do between the answer of a rebalance and the callbacks, and how long a
node takes to read a list of 200; last the bytes that a group of 200 nodes keeps at its coordinator,
of which Kafka allows a MiB.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TypeVar

from bench.arena import Arena
from bench.results import KAFKA, OURS, Metric, Sample
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.discovery import KafkaDiscoveryConfig, LaminarPartitionAssignor, NodeMetadata
from lakelog.discovery.assignor import Assignment, GroupMember
from lakelog.discovery.callbacks import DiscoveryCallbacks, MembershipView
from lakelog.discovery.group_requests import GroupRequest, SendHeartbeat
from lakelog.discovery.member import Member, Phase, make_member
from lakelog.discovery.membership_events import DescribeAnswered, Event, SyncAnswered
from lakelog.discovery.roster import RawMember, plan_assignments
from lakelog.discovery.session import MembershipSession, SessionTimes
from lakelog.retry import Backoff
from lakelog.wire.codec import decode_assignment

NAME = "b19"
METRICS = (
    Metric("assign_ms", "ms", more_is_better=False),
    Metric("again_ms", "ms after a node has gone", more_is_better=False),
    Metric("callback_ms", "ms", more_is_better=False),
    Metric("list_ms", "ms", more_is_better=False),
    Metric("group_kb", "kB at the coordinator", more_is_better=False),
)
TOPIC = "orders"
NODES = 200
GROUP_PARTITIONS = 2_000
TURNS = 7
CELLS = ((100, 3), (100, 20), (10_000, 3), (10_000, 20), (10_000, 200))
PEER_NODES_MAX = 20
"""Beyond this the peer takes minutes."""

T = TypeVar("T")


def run(arena: Arena) -> None:
    """Measure assignments, then a rebalance, then sizes."""
    for partitions, nodes in CELLS:
        for number in range(max(arena.scale.rounds, 3)):
            bench_partition_assignor(arena, partitions, nodes, number)
    for number in range(TURNS):
        bench_rebalance_callback(arena, number)


def bench_partition_assignor(arena: Arena, partitions: int, nodes: int, number: int) -> None:
    """Assign, then assign again without the last node."""
    cell = f"{partitions:,} partitions, {nodes} nodes"
    assign_ms, again_ms = assigned_by_us(partitions, nodes)
    values = {"assign_ms": assign_ms, "again_ms": again_ms}
    arena.recorder.add(Sample(NAME, cell, OURS, number, values))
    if nodes <= PEER_NODES_MAX and number == 0:
        assign_ms, again_ms = assigned_by_peer(partitions, nodes)
        values = {"assign_ms": assign_ms, "again_ms": again_ms}
        arena.recorder.add(Sample(NAME, cell, KAFKA, number, values))


def assigned_by_us(partitions: int, nodes: int) -> tuple[float, float]:
    """Milliseconds of both assignments by `laminar-range`."""
    members = [GroupMember(f"m{at:04}", f"{at}", cores=1 + at % 4) for at in range(nodes)]
    topics = {TOPIC: range(partitions)}
    first, first_ms = timed(lambda: LaminarPartitionAssignor.assign(members, topics))
    left = members[:-1]
    again, again_ms = timed(lambda: LaminarPartitionAssignor.assign(left, topics, first))
    check(first, partitions)
    check(again, partitions)
    return first_ms, again_ms


def check(assignment: Assignment, partitions: int) -> None:
    """Every partition has exactly one member."""
    given = sorted(partition for each in assignment.values() for _, partition in each)
    assert given == list(range(partitions)), "a partition is missing or given twice"


def assigned_by_peer(partitions: int, nodes: int) -> tuple[float, float]:
    """Milliseconds of both assignments by kafka-python's sticky assignor."""
    from kafka.coordinator.assignors.sticky.sticky_assignor import (  # noqa: PLC0415 - it warns
        StickyAssignorUserData,
        StickyPartitionAssignor,
    )

    cluster = SimpleNamespace(
        topics=lambda: {TOPIC},
        partitions_for_topic=lambda _: set(range(partitions)),
    )
    assignor = StickyPartitionAssignor()

    def members(held: dict[str, Sequence[int]], names: Sequence[str]) -> list[SimpleNamespace]:
        found = []
        for name in names:
            previous = [(TOPIC, list(held.get(name, ())))]
            data = StickyAssignorUserData(previous_assignment=previous, generation=1)
            metadata = SimpleNamespace(topics=[TOPIC], user_data=data if held else None)
            found.append(SimpleNamespace(member_id=name, metadata=metadata))
        return found

    names = [f"m{at:04}" for at in range(nodes)]
    first, first_ms = timed(lambda: assignor.assign(cluster, members({}, names)))
    held: dict[str, Sequence[int]] = {
        name: [at for _, some in given.assigned_partitions for at in some]
        for name, given in first.items()
    }
    _, again_ms = timed(lambda: assignor.assign(cluster, members(held, names[:-1])))
    return first_ms, again_ms


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it returns, and the milliseconds it took."""
    began = time.perf_counter()
    found = work()
    return found, (time.perf_counter() - began) * 1e3


class Silent:
    """A cluster that is never asked."""

    async def run(self, request: GroupRequest) -> Event:
        """Nobody calls it."""
        raise AssertionError(request)

    async def counts(self, topics: Sequence[str]) -> dict[str, int]:
        """Nobody calls it."""
        raise AssertionError(topics)

    async def beat_aside(self, beat: SendHeartbeat) -> int | None:
        """Nobody calls it."""
        raise AssertionError(beat)

    def forget_coordinator(self) -> None:
        """Nothing is known."""


def bench_rebalance_callback(arena: Arena, number: int) -> None:
    """From a rebalance's answer to the callbacks, then to the list of all nodes."""
    members, plan = settled_members()
    listed = tuple(replace(raw, assignment=plan[raw.member_id]) for raw in members)
    callback_ms, list_ms = asyncio.run(rebalance(members[0], plan, listed))
    size = sum(len(raw.metadata) + len(plan[raw.member_id]) for raw in members)
    values = {"callback_ms": callback_ms, "list_ms": list_ms, "group_kb": size / 1e3}
    cell = f"a rebalance of {NODES} nodes, {GROUP_PARTITIONS:,} partitions"
    arena.recorder.add(Sample(NAME, cell, OURS, number, values))


async def rebalance(
    mine: RawMember, plan: dict[str, bytes], listed: tuple[RawMember, ...]
) -> tuple[float, float]:
    """Milliseconds until the callbacks are told, and for the list."""
    told: list[object] = []
    audience = DiscoveryCallbacks()
    audience.assigned.add(told.append)
    clock = SystemClock()
    member = make_member(config_of(0))
    news = MembershipView(member, audience, clock)
    times = SessionTimes.of(config_of(0), topics_s=30.0, retry=Backoff(100, 1_000))
    syncing = replace(
        member, phase=Phase.SYNCING, member_id=mine.member_id, joining_generation=2, generation=1
    )
    session = MembershipSession(
        syncing, Silent(), news, times, clock=clock, entropy=SystemEntropy()
    )
    _, callback_ms = timed(lambda: session.handle(SyncAnswered(0, plan[mine.member_id])))
    _, list_ms = timed(lambda: session.handle(DescribeAnswered(0, "Stable", listed)))
    assert len(news.source.value) == NODES, "everybody is listed"
    assert news.callbacks.close(10.0), "callbacks end"
    assert told, "the callback was called"
    return callback_ms, list_ms


def config_of(number: int) -> KafkaDiscoveryConfig:
    """A node that says a lot about itself."""
    host = f"worker-{number:04d}.cluster.example"
    return KafkaDiscoveryConfig(
        node_id=f"engine-{host}",
        topics=(TOPIC,),
        rpc_address=f"{host}:9100",
        raft_address=f"{host}:9200",
        metadata=NodeMetadata(
            cores=1 + number % 16,
            memory_bytes=64 << 30,
            failure_domain=f"zone-{number % 3}",
            tags={"role": "ingest", "pool": "blue"},
        ),
    )


def raw_member(member: Member) -> RawMember:
    """The member as the coordinator knows it."""
    node_id = member.node.node_id
    return RawMember(f"{node_id}-6f9619ff", node_id, member.subscription())


def settled_members() -> tuple[list[RawMember], dict[str, bytes]]:
    """All members with what they hold after a rebalance, and the plan of the next one."""
    members = [make_member(config_of(number)) for number in range(NODES)]
    plan = planned([raw_member(member) for member in members])
    holding = []
    for member in members:
        given = decode_assignment(plan[raw_member(member).member_id]).assigned_partitions
        held = tuple((topic.topic, number) for topic in given for number in topic.partitions)
        holding.append(raw_member(replace(member, held=held, generation=1)))
    return holding, planned(holding)


def planned(raws: list[RawMember]) -> dict[str, bytes]:
    """What the leader gives to everybody."""
    return dict(plan_assignments(raws, {TOPIC: GROUP_PARTITIONS}, leader=raws[0].instance_id or ""))
