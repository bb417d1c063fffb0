"""What goes wrong around a node: it says so by name, and the partitions have one owner at most."""

import socket
import threading
import time

import pytest
from bench.broker import free_ports
from tests.discovery.foreign import Foreign
from tests.discovery.node_process import NodeProcess
from tests.discovery.nodes import (
    HEARTBEAT_S,
    await_agreement,
    configured,
    eventually,
    settings,
    started,
)
from tests.discovery.stands import Stand

from lakelog.discovery import (
    ConnectionFailed,
    DiscoveryError,
    Fenced,
    KafkaDiscovery,
    NodeMetadata,
    NodeState,
    PartitionCountChanged,
    PollTimeoutExceeded,
    TopicMissing,
)
from lakelog.wire.codec import (
    ConsumerSubscription,
    decode_assignment,
    encode_subscription,
)

LONG_S = 30.0


def no_thread_of_discovery() -> bool:
    return not [each.name for each in threading.enumerate() if "lakelog-d" in each.name]


def test_a_frozen_member_loses_its_partitions_and_returns(stand: Stand) -> None:
    stand.create(frozen=6)
    with (
        started(stand, "frozen", ["frozen"], "steady") as (steady,),
        NodeProcess(**settings(stand, "sleeper", "frozen", ["frozen"])) as sleeper,
    ):
        before = sleeper.wait(lambda now: len(now["partitions"]) == 3)
        sleeper.freeze()
        await_agreement([steady], 6)
        sleeper.thaw()
        after = sleeper.wait(
            lambda now: len(now["partitions"]) == 3 and now["generation"] > before["generation"]
        )
        since = sleeper.heard()[sleeper.heard().index(before) :]
        assert any(not now["partitions"] for now in since), "it took no notice of its loss"
        assert after["state"] == "active"
        await_agreement([steady], 6, others=["sleeper"])


def test_of_two_nodes_with_one_id_the_older_is_fenced(stand: Stand) -> None:
    stand.create(fenced=4)
    younger = KafkaDiscovery(configured(stand, "twin", "fenced", ["fenced"]))
    with started(stand, "fenced", ["fenced"], "twin") as (older,):
        await_agreement([older], 4)
        failures: list[Exception] = []
        older.on_failure(failures.append)
        watch = older.members()
        with younger:
            eventually(lambda: older.state is NodeState.LEFT)
            await_agreement([younger], 4)
            assert older.assigned_partitions() == ()
            with pytest.raises(Fenced, match="twin"):
                list(watch)
            with pytest.raises(Fenced, match="twin"):
                older.check()
            eventually(lambda: failures)
            assert isinstance(failures[0], Fenced)
            older.stop()
            assert older.state is NodeState.LEFT
            await_agreement([younger], 4)


NOISE = b"\xff" * 100
SUBSCRIBER = encode_subscription(ConsumerSubscription(("foreign",), b"\x00nonsense"))


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00",
        NOISE,
        SUBSCRIBER,
        SUBSCRIBER[:15] + NOISE,
        encode_subscription(ConsumerSubscription(("elsewhere",), None)),
    ],
    ids=["nothing", "half a version", "noise", "a subscriber", "noise behind", "another topic"],
)
def test_a_foreign_member_with_corrupt_metadata_disturbs_nobody(
    stand: Stand, metadata: bytes
) -> None:
    if metadata == NOISE and stand.name != "ours":
        pytest.skip("Apache Kafka's coordinator itself fails on a negative number of topics")
    stand.create(foreign=6)
    group = f"foreign-{len(metadata)}"
    with started(stand, group, ["foreign"], "a", "b") as nodes:
        await_agreement(nodes, 6)
        before = nodes[0].generation
        with Foreign(stand.bootstrap, group, metadata) as foreign:
            eventually(lambda: foreign.assignments and nodes[0].generation > before)
            eventually(lambda: all(any(n.is_foreign for n in each.peers()) for each in nodes))
            assert not foreign.was_leader
            eventually(lambda: _shared(nodes, foreign, 6))
        await_agreement(nodes, 6)


def _shared(nodes: list[KafkaDiscovery], foreign: Foreign, count: int) -> bool:
    """Each partition is held once, the foreigner's included, if it reads the topic at all."""
    theirs = decode_assignment(foreign.assignments[-1] or b"\0\0\0\0\0\0\xff\xff\xff\xff")
    held = [number for node in nodes for _, number in node.topic_partitions()]
    held += [number for topic in theirs.assigned_partitions for number in topic.partitions]
    return sorted(held) == list(range(count))


def test_more_partitions_are_an_event_and_are_shared_out(stand: Stand) -> None:
    stand.create(grown=4)
    with started(stand, "grown", ["grown"], "a", "b") as nodes:
        await_agreement(nodes, 4)
        heard: list[PartitionCountChanged] = []
        for node in nodes:
            node.on_partition_count(heard.append)
        stand.grow("grown", 10)
        await_agreement(nodes, 10)
        eventually(lambda: len(heard) == 2)
        assert set(heard) == {PartitionCountChanged("grown", 4, 10)}


def test_announced_metadata_reaches_the_others_and_weighs(stand: Stand) -> None:
    stand.create(announced=8)
    with started(stand, "announced", ["announced"], "a", "b") as (first, second):
        await_agreement([first, second], 8)
        generation = first.generation
        second.announce(NodeMetadata(cores=3, tags={"role": "big"}))
        eventually(lambda: len(second.assigned_partitions()) == 6)
        await_agreement([first, second], 8)
        eventually(lambda: [peer.metadata.cores for peer in first.peers()] == [3])
        (peer,) = first.peers()
        assert dict(peer.metadata.tags) == {"role": "big"}
        generation = first.generation
        second.announce(NodeMetadata(cores=3, tags={"role": "big"}))
        watch = first.members()
        assert watch.next_change(0) is not None
        assert watch.next_change(3 * HEARTBEAT_S) is None, "nothing has changed"
        assert first.generation == generation


def test_a_callback_that_blocks_too_long_costs_the_membership_until_it_returns(
    stand: Stand,
) -> None:
    stand.create(blocked=4)
    with started(stand, "blocked", ["blocked"], "steady") as (steady,):
        go, began = threading.Event(), threading.Event()
        failures: list[DiscoveryError] = []
        slow = KafkaDiscovery(
            configured(stand, "slow", "blocked", ["blocked"], max_poll_interval=1.0)
        )

        def block(_: object) -> None:
            began.set()
            assert go.wait(LONG_S)

        slow.on_assigned(block)
        slow.on_failure(failures.append)
        try:
            slow.start()
            assert began.wait(LONG_S)
            eventually(lambda: slow.state is not NodeState.ACTIVE)
            await_agreement([steady], 4)
            assert slow.assigned_partitions() == ()
            assert isinstance(slow.last_failure, PollTimeoutExceeded)
            go.set()
            await_agreement([steady, slow], 4)
            assert any(isinstance(each, PollTimeoutExceeded) for each in failures)
        finally:
            go.set()
            slow.stop()


def test_nobody_there_is_a_named_failure_within_the_time() -> None:
    (port,) = free_ports(1)
    stand = Stand("nobody", f"127.0.0.1:{port}")
    node = KafkaDiscovery(configured(stand, "a", "g", ["t"]))
    began_s = time.monotonic()
    with pytest.raises(ConnectionFailed, match=str(port)):
        node.start(1.0)
    assert time.monotonic() - began_s < LONG_S / 2
    assert no_thread_of_discovery()


def test_a_missing_topic_is_named_and_nothing_is_left_behind(stand: Stand) -> None:
    node = KafkaDiscovery(configured(stand, "a", "missing", ["there-is-none"]))
    with pytest.raises(TopicMissing, match="there-is-none"):
        node.start(LONG_S)
    assert no_thread_of_discovery()
    assert node.state is NodeState.LEFT


def test_stopping_while_it_joins_ends_at_once(ours: Stand) -> None:
    ours.create(hurry=2)
    with Foreign(ours.bootstrap, "hurry", encode_subscription(ConsumerSubscription(("hurry",)))):
        node = KafkaDiscovery(configured(ours, "a", "hurry", ["hurry"]))
        starting = threading.Thread(target=_start_quietly, args=(node,))
        starting.start()
        began_s = time.monotonic()
        node.stop()
        starting.join(LONG_S)
        assert time.monotonic() - began_s < LONG_S / 2
    assert no_thread_of_discovery()


def test_stopping_while_it_connects_to_somebody_who_never_answers_ends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stand = Stand("silent", f"127.0.0.1:{silent.getsockname()[1]}")
        node = KafkaDiscovery(configured(stand, "a", "g", ["t"]))
        starting = threading.Thread(target=_start_quietly, args=(node,))
        starting.start()
        connection, _ = silent.accept()
        with connection:
            began_s = time.monotonic()
            node.stop()
            starting.join(LONG_S)
            assert time.monotonic() - began_s < LONG_S / 2
    assert node.state is NodeState.LEFT
    assert no_thread_of_discovery()


def _start_quietly(node: KafkaDiscovery) -> None:
    try:
        node.start()
    except DiscoveryError:
        return
