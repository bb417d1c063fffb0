"""Bytes: what 200 nodes write, what a heartbeat costs; and that all of them are told."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.b19_discovery import NODES, rebalance, settled_members
from tests.discovery.nodes import await_agreement, eventually, started
from tests.discovery.proxy import Proxy
from tests.discovery.stands import SESSION_MS_MIN, Stand
from tests.lake.running import running_broker

from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.framing import encode_request
from lakelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP_RECORD_BYTES_MAX = 1_048_588
"""What Kafka takes for one record, and so for a whole group: subscriptions and assignments."""
DEFAULT_HEARTBEAT_S = 3.0
BEATS = 20


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


def test_a_rebalance_of_two_hundred_nodes_is_told_and_then_listed() -> None:
    members, plan = settled_members()
    listed = tuple(replace(raw, assignment=plan[raw.member_id]) for raw in members)
    asyncio.run(rebalance(members[0], plan, listed))
