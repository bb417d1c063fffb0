"""The coordinator goes away: for a moment, for longer than a session, for good, by kill -9."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peer import PeerAbsentError, find_peer
from tests.compat.groups.clusters import our_cluster
from tests.discovery.nodes import SESSION_S, await_agreement, eventually, started
from tests.discovery.proxy import Proxy
from tests.discovery.stands import SESSION_MS_MIN, KafkaPlace, Stand
from tests.lake.running import running_broker

from lakelog.discovery import ConnectionFailed, DiscoveryError, NodeState
from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

LONG_SESSION_S = 20.0
GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": str(SESSION_MS_MIN),
}


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as made:
        yield made


@pytest.fixture
def behind(proxy: Proxy, tmp_path: Path) -> Iterator[Stand]:
    """Our broker, which nodes reach through the proxy only."""
    with running_broker(tmp_path, {"broker.advertised": proxy.address, **GROUPS}) as broker:
        host, _, port = str(broker.running.address).rpartition(":")
        proxy.target = (host, int(port))
        stand = Stand("behind a proxy", proxy.address)
        stand.create(cut=4)
        yield stand


def test_a_short_cut_makes_it_suspected_and_costs_nothing(behind: Stand, proxy: Proxy) -> None:
    more = {"session_timeout": LONG_SESSION_S, "heartbeat_interval": 0.1}
    with started(behind, "cut", ["cut"], "a", **more) as (node,):
        await_agreement([node], 4)
        generation, held = node.generation, node.assigned_partitions()
        lost: list[object] = []
        failures: list[DiscoveryError] = []
        node.on_lost(lost.append)
        node.on_failure(failures.append)
        proxy.cut()
        eventually(lambda: node.state is NodeState.SUSPECTED)
        assert node.assigned_partitions() == held, "its session goes on"
        eventually(lambda: [each.state for each in node.members().value] == [NodeState.SUSPECTED])
        proxy.mend()
        await_agreement([node], 4)
        assert (node.generation, node.assigned_partitions()) == (generation, held)
        assert not lost
        assert [type(each) for each in failures] == [ConnectionFailed], "told once"


def test_a_cut_longer_than_the_session_loses_the_partitions_and_it_returns(
    behind: Stand, proxy: Proxy
) -> None:
    with started(behind, "cut", ["cut"], "a") as (node,):
        await_agreement([node], 4)
        lost: list[tuple[tuple[str, int], ...]] = []
        node.on_lost(lost.append)
        proxy.cut()
        taken_s = eventually(lambda: not node.assigned_partitions())
        assert taken_s < SESSION_S + 5.0
        eventually(lambda: lost)
        assert lost == [tuple(("cut", number) for number in range(4))]
        assert node.generation == -1
        proxy.mend()
        await_agreement([node], 4)


def test_stopping_while_nobody_answers_ends_within_the_session(behind: Stand, proxy: Proxy) -> None:
    with started(behind, "cut", ["cut"], "a") as (node,):
        await_agreement([node], 4)
        proxy.cut()
        node.stop()
        assert node.state is NodeState.LEFT


@pytest.mark.proof
def test_when_the_coordinator_is_killed_another_broker_takes_over(tmp_path: Path) -> None:
    with our_cluster(tmp_path, 2, session_ms=6000) as cluster:
        stand = Stand("ours", cluster.bootstrap)
        stand.create(killed=6)
        more = {"session_timeout": LONG_SESSION_S}
        with started(stand, "killed", ["killed"], "a", "b", **more) as nodes:
            await_agreement(nodes, 6)
            held = [node.assigned_partitions() for node in nodes]
            request = FindCoordinatorRequest(0, ("killed",), "killed")
            found = stand.call(request, FindCoordinatorResponse).coordinators[0]
            lost: list[object] = []
            for node in nodes:
                node.on_lost(lost.append)
            cluster.kill(found.node_id)
            (left,) = [number for number in cluster.brokers if number != found.node_id]
            survivor = Stand("ours", cluster.brokers[left].bootstrap)
            with started(survivor, "killed", ["killed"], "c", **more) as others:
                await_agreement([*nodes, *others], 6)
                assert not lost
                kept = [set(node.assigned_partitions()) for node in nodes]
                assert [len(part) for part in kept] == [2, 2]
                assert all(part <= set(before) for part, before in zip(kept, held, strict=True))


@pytest.mark.proof
def test_when_kafka_is_killed_and_comes_back_the_nodes_go_on(tmp_path: Path) -> None:
    try:
        place = KafkaPlace.prepare(find_peer(), tmp_path)
    except PeerAbsentError as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    broker = place.start()
    try:
        stand = Stand("kafka", broker.bootstrap)
        stand.create(killed=6)
        with started(stand, "killed", ["killed"], "a", session_timeout=60.0) as (node,):
            await_agreement([node], 6)
            broker.kill()
            eventually(lambda: node.state is NodeState.SUSPECTED)
            broker = place.start()
            await_agreement([node], 6)
    finally:
        broker.kill()
