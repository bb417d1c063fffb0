"""Bytes: what 200 nodes write, what a heartbeat costs; and that all of them are told."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.discovery.nodes import await_agreement, eventually, started
from tests.discovery.proxy import Proxy
from tests.discovery.stands import SESSION_MS_MIN, Stand
from tests.reading.running import running_broker

from lakelog.client.backoff import Backoff
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.discovery import KafkaDiscoveryConfig, NodeMetadata
from lakelog.discovery.errands import Beat, Errand
from lakelog.discovery.leading import plan_assignments
from lakelog.discovery.member_state import Member, Phase, make_member
from lakelog.discovery.membership_values import Described, Event, Synced
from lakelog.discovery.news import Audience, News
from lakelog.discovery.roster import RawMember
from lakelog.discovery.session import Session, Times
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.consumer_protocol import decode_assignment
from lakelog.wire.framing import encode_request
from lakelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NODES = 200
PARTITIONS = 2000
GROUP_RECORD_BYTES_MAX = 1_048_588
"""What Kafka takes for one record, and so for a whole group: subscriptions and assignments."""
DEFAULT_HEARTBEAT_S = 3.0
BEATS = 20


def config_of(number: int) -> KafkaDiscoveryConfig:
    """A node that says a lot about itself."""
    return KafkaDiscoveryConfig(
        node_id=f"engine-worker-{number:04d}.cluster.example",
        topics=("orders",),
        rpc_address=f"worker-{number:04d}.cluster.example:9100",
        raft_address=f"worker-{number:04d}.cluster.example:9200",
        metadata=NodeMetadata(
            cores=1 + number % 16,
            memory_bytes=64 << 30,
            failure_domain=f"zone-{number % 3}",
            tags={"role": "ingest", "pool": "blue"},
            custom={"build": "2026-11-15", "disk": "nvme"},
        ),
    )


def raw_member(member: Member) -> RawMember:
    node_id = member.node.node_id
    return RawMember(
        f"{node_id}-6f9619ff-8b86-d011-b42d-00c04fc964ff", node_id, member.subscription()
    )


def settled_members() -> tuple[list[RawMember], dict[str, bytes]]:
    """All members with what they hold after a rebalance, and the plan of the next one."""
    members = [make_member(config_of(number)) for number in range(NODES)]
    plan = _plan([raw_member(member) for member in members])
    holding = []
    for member in members:
        given = decode_assignment(plan[raw_member(member).member_id]).assigned_partitions
        held = tuple((topic.topic, number) for topic in given for number in topic.partitions)
        holding.append(raw_member(replace(member, held=held, generation=1)))
    return holding, _plan(holding)


def _plan(raws: list[RawMember]) -> dict[str, bytes]:
    return dict(plan_assignments(raws, {"orders": PARTITIONS}, leader=raws[0].instance_id or ""))


def test_two_hundred_nodes_fit_into_a_group() -> None:
    members, plan = settled_members()
    assignments = tuple(SyncGroupRequestAssignment(*pair) for pair in sorted(plan.items()))
    sync = SyncGroupRequest("g", 7, members[0].member_id, assignments=assignments)
    api = APIS[ApiKey.SYNC_GROUP]
    sync_bytes = sum(map(len, encode_request(api, 5, 1, "client", sync)))
    described_bytes = sum(len(raw.metadata) + len(plan[raw.member_id]) for raw in members)
    print(f"SyncGroup of {NODES} nodes: {sync_bytes:,} bytes; group: {described_bytes:,} bytes")
    assert sync_bytes < GROUP_RECORD_BYTES_MAX / 2
    assert described_bytes < GROUP_RECORD_BYTES_MAX / 2


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as made:
        yield made


def test_heartbeats_cost_less_than_a_kilobyte_a_second(proxy: Proxy, tmp_path: Path) -> None:
    more = {
        "broker.advertised": proxy.address,
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": str(SESSION_MS_MIN),
    }
    with running_broker(tmp_path, more) as broker:
        host, _, port = str(broker.running.address).rpartition(":")
        proxy.target = (host, int(port))
        stand = Stand("counted", proxy.address)
        stand.create(counted=4)
        quick = {"heartbeat_interval": 0.05, "topics_check_s": 3600.0}
        with started(stand, "counted", ["counted"], "a", **quick) as (node,):
            await_agreement([node], 4)
            before = proxy.byte_count
            eventually(lambda: proxy.byte_count > before)
            before, began_s = proxy.byte_count, time.monotonic()
            eventually(lambda: time.monotonic() - began_s > BEATS * 0.05)
            beat_bytes = (proxy.byte_count - before) / BEATS
        per_second = beat_bytes / DEFAULT_HEARTBEAT_S
        print(f"a heartbeat and its answer: {beat_bytes:.0f} bytes, {per_second:.0f} bytes/s")
        assert beat_bytes > 0
        assert per_second < 1024


class Silent:
    """Nothing is sent: the answers are given by hand."""

    async def run(self, errand: Errand) -> Event:
        raise AssertionError(errand)

    async def counts(self, topics: Sequence[str]) -> dict[str, int]:
        raise AssertionError(topics)

    async def beat_aside(self, beat: Beat) -> int | None:
        raise AssertionError(beat)

    def forget_coordinator(self) -> None: ...


def test_a_rebalance_of_two_hundred_nodes_is_told_and_then_listed() -> None:
    members, plan = settled_members()
    listed = tuple(replace(raw, assignment=plan[raw.member_id]) for raw in members)
    mine, member = members[0], make_member(config_of(0))

    async def rebalance() -> None:
        told: list[object] = []
        audience = Audience()
        audience.assigned.add(told.append)
        clock, entropy = SystemClock(), SystemEntropy()
        news = News(member, audience, clock)
        times = Times.of(config_of(0), topics_s=30.0, retry=Backoff(100, 1000))
        syncing = _syncing(member, mine)
        session = Session(syncing, Silent(), news, times, clock=clock, entropy=entropy)
        session.handle(Synced(0, plan[mine.member_id]))
        session.handle(Described(0, "Stable", listed))
        assert len(news.source.value) == NODES
        assert news.callbacks.close(10.0)
        assert told

    asyncio.run(rebalance())


def _syncing(member: Member, raw: RawMember) -> Member:
    return replace(
        member, phase=Phase.SYNCING, member_id=raw.member_id, joining_generation=2, generation=1
    )
