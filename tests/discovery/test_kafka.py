"""`KafkaDiscovery` as its user meets it: making one, watching it, ending it in every way."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.discovery.nodes import await_agreement, configured, eventually
from tests.discovery.stands import Stand

from lakelog.discovery import (
    ConfigError,
    Discovery,
    GroupRefused,
    KafkaDiscovery,
    KafkaDiscoveryConfig,
    NodeMetadata,
    NodeState,
    NotRunning,
)

LONG_S = 30.0


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [each.name for each in threading.enumerate() if each.name.startswith("lakelog-d")]


def made(stand: Stand, node_id: str = "a", group: str = "kafka") -> KafkaDiscovery:
    stand.create(kafka=4)
    return KafkaDiscovery(configured(stand, node_id, group, ["kafka"]))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (KafkaDiscoveryConfig(), "at least one topic"),
        (KafkaDiscoveryConfig(topics=("t",), bootstrap_servers=""), "bootstrap servers"),
        (KafkaDiscoveryConfig(topics=("t",), session_timeout=4000.0), "session.timeout.ms"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_at_once(
    config: KafkaDiscoveryConfig, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        KafkaDiscovery(config)


def test_it_is_a_discovery_and_knows_nothing_before_it_starts(ours: Stand) -> None:
    node: Discovery = made(ours)
    assert node.state is NodeState.JOINING
    assert (node.generation, node.leader) == (-1, None)
    assert (node.peers(), node.assigned_partitions(), node.topic_partitions()) == ((), (), ())
    with pytest.raises(NotRunning):
        node.announce(NodeMetadata())
    node.stop()


def test_a_with_block_joins_and_leaves(ours: Stand) -> None:
    with made(ours) as node:
        await_agreement([node], 4)
        assert node.is_leader
        assert node.leader == "a"
        node.start()
        assert node.topic_partitions() == tuple(("kafka", number) for number in range(4))
    after = [node.state, node.generation, node.peers(), node.assigned_partitions()]
    assert after == [NodeState.LEFT, -1, (), ()]
    assert not ours.described("kafka").members


def test_a_stopped_node_can_start_again(ours: Stand) -> None:
    node = made(ours)
    heard: list[object] = []
    node.on_assigned(heard.append)
    for times in (1, 2):
        node.start()
        await_agreement([node], 4)
        node.stop()
        assert len(heard) == times


def test_watchers_see_changes_only_and_end_when_it_stops(ours: Stand) -> None:
    first, second = made(ours, "a"), made(ours, "b")
    seen: list[list[str]] = []

    async def watch() -> None:
        async for nodes in first.members():
            seen.append([str(each.node_id) for each in nodes])
            assert len(seen) < 2 or nodes != before[-1]
            before.append(nodes)

    before: list[object] = []
    with first:
        watching = threading.Thread(target=lambda: asyncio.run(watch()))
        watching.start()
        with second:
            await_agreement([first, second], 4)
        await_agreement([first], 4)
    watching.join(LONG_S)
    assert not watching.is_alive()
    assert seen[0] == ["a"]
    assert ["a", "b"] in seen
    assert seen[-1] == ["a"]


def test_callbacks_hear_what_is_given_and_taken_in_order(ours: Stand) -> None:
    first, second = made(ours, "a"), made(ours, "b")
    held: set[tuple[str, int]] = set()
    steps: list[str] = []

    def given(partitions: tuple[tuple[str, int], ...]) -> None:
        assert not held & set(partitions)
        held.update(partitions)
        steps.append("given")

    def taken(partitions: tuple[tuple[str, int], ...]) -> None:
        assert held >= set(partitions)
        held.difference_update(partitions)
        steps.append("taken")
        assert not set(partitions) & set(first.topic_partitions()), "out of sight before it is told"

    first.on_assigned(given)
    first.on_revoked(taken)
    with first:
        await_agreement([first], 4)
        with second:
            await_agreement([first, second], 4)
            eventually(lambda: held == set(first.topic_partitions()))
        await_agreement([first], 4)
    assert not held
    assert steps == ["given", "taken", "given", "taken"]


def test_a_callback_may_stop_its_own_node(ours: Stand) -> None:
    node = made(ours)
    node.on_assigned(lambda _: node.stop())
    with contextlib.suppress(NotRunning):  # it may be quicker than `start`
        node.start()
    eventually(lambda: node.state is NodeState.LEFT)
    eventually(lambda: not ours.described("kafka").members)
    eventually(lambda: not any("calls" in each.name for each in threading.enumerate()))


def test_a_callback_may_stop_its_node_while_partitions_wait_to_be_let_go_of(ours: Stand) -> None:
    first, second = made(ours, "a"), made(ours, "b")
    heard: list[str] = []

    def stop_when_there_are_two(nodes: tuple[object, ...]) -> None:
        if len(nodes) > 1 or first.state is not NodeState.ACTIVE:
            return
        eventually(lambda: len(first.assigned_partitions()) < 4)
        first.stop()
        heard.append("stopped")

    first.on_change(stop_when_there_are_two)
    first.on_revoked(lambda _: heard.append("revoked"))
    first.start()
    with second:
        eventually(lambda: "revoked" in heard)
        assert heard[0] == "stopped"
        await_agreement([second], 4)


def test_two_threads_may_stop_it_at_once(ours: Stand) -> None:
    node = made(ours)
    node.start()
    threads = [threading.Thread(target=node.stop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert node.state is NodeState.LEFT


def test_a_forgotten_node_and_the_end_of_a_process_do_not_hang(ours: Stand) -> None:
    ours.create(kafka=4)
    program = f"""
from lakelog.discovery import KafkaDiscovery, KafkaDiscoveryConfig
node = KafkaDiscovery(KafkaDiscoveryConfig(
    node_id="forgotten", bootstrap_servers={ours.bootstrap!r}, group_id="forgotten",
    topics=("kafka",)))
node.on_change(lambda nodes: None)
node.start()
print(len(node.assigned_partitions()))
"""
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    assert time.monotonic() - began_s < LONG_S / 2


def test_a_session_that_the_broker_does_not_allow_is_a_clear_error(ours: Stand) -> None:
    ours.create(kafka=4)
    config = configured(ours, "a", "kafka", ["kafka"], session_timeout=0.1, heartbeat_interval=0.01)
    with pytest.raises(GroupRefused, match="session_timeout"):
        KafkaDiscovery(config).start(LONG_S)


def test_what_it_announces_is_checked_before_anybody_hears_of_it(ours: Stand) -> None:
    with made(ours) as node:
        with pytest.raises(ConfigError):
            node.announce(NodeMetadata(cores=0))
        with pytest.raises(ConfigError):
            node.announce(NodeMetadata(custom={"x": "y" * 100_000}))
        await_agreement([node], 4)


def test_a_draining_node_stays_and_holds_nothing(ours: Stand) -> None:
    with made(ours, "a") as first, made(ours, "b") as second:
        await_agreement([first, second], 4)
        second.announce(NodeMetadata(), draining=True)
        eventually(lambda: len(first.assigned_partitions()) == 4)
        eventually(lambda: second.state is NodeState.DRAINING)
        eventually(
            lambda: [each.state for each in first.peers()] == [NodeState.DRAINING],
            first.peers,
        )
        assert second.assigned_partitions() == ()
