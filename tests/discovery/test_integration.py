"""004's integration tests: nodes that find each other through a real broker, ours and Kafka's."""

from tests.discovery.node_process import NodeProcess, status
from tests.discovery.nodes import (
    SESSION_S,
    agree,
    await_agreement,
    configured,
    eventually,
    settings,
    started,
)
from tests.discovery.stands import Stand

from lakelog.discovery import KafkaDiscovery, NodeState


def test_two_nodes_join_and_receive_partitions(stand: Stand) -> None:
    stand.create(two=8)
    with started(stand, "two", ["two"], "a", "b") as nodes:
        await_agreement(nodes, 8)
        assert [len(node.assigned_partitions()) for node in nodes] == [4, 4]
        assert [str(peer.node_id) for peer in nodes[0].peers()] == ["b"]
        assert sum(node.is_leader for node in nodes) == 1


def test_more_cores_receive_more_partitions(stand: Stand) -> None:
    stand.create(weighted=8)
    with (
        started(stand, "weighted", ["weighted"], "small", cores=1) as small,
        started(stand, "weighted", ["weighted"], "large", cores=3) as large,
    ):
        await_agreement([*small, *large], 8)
        assert [len(node.assigned_partitions()) for node in (*small, *large)] == [2, 6]
        (peer,) = small[0].peers()
        assert peer.metadata.cores == 3


def test_node_failure_the_survivor_gets_the_partitions(stand: Stand) -> None:
    stand.create(killed=6)
    with started(stand, "killed", ["killed"], "survivor") as (survivor,):
        await_agreement([survivor], 6)
        with NodeProcess(**settings(stand, "victim", "killed", ["killed"])) as victim:
            victim.wait(lambda now: len(now["partitions"]) == 3)
            await_agreement([survivor], 6, others=["victim"])
            victim.kill()
            taken_s = await_agreement([survivor], 6)
            assert len(survivor.assigned_partitions()) == 6
            assert taken_s < 3 * SESSION_S + 2


def test_node_rejoin_the_restarted_node_receives_partitions(stand: Stand) -> None:
    stand.create(again=6)
    config = settings(stand, "returning", "again", ["again"])
    with started(stand, "again", ["again"], "steady") as (steady,):
        with NodeProcess(**config) as first:
            before = first.wait(lambda now: len(now["partitions"]) == 3)
            first.kill()
            eventually(lambda: agree([steady], 6), lambda: status(steady))
        with NodeProcess(**config) as second:
            after = second.wait(lambda now: len(now["partitions"]) == 3)
            assert after["generation"] > before["generation"]
            await_agreement([steady], 6, others=["returning"])


def test_a_quick_restart_makes_no_rebalance(stand: Stand) -> None:
    stand.create(quick=6)
    config = {**settings(stand, "quick", "quick", ["quick"]), "session_timeout": 10.0}
    more = {"session_timeout": 10.0}
    with started(stand, "quick", ["quick"], "steady", **more) as (steady,):
        with NodeProcess(**config) as first:
            before = first.wait(lambda now: len(now["partitions"]) == 3)
            first.kill()
        with NodeProcess(**config) as second:
            after = second.wait(lambda now: len(now["partitions"]) == 3)
            assert after["generation"] == before["generation"]
            assert after["partitions"] == before["partitions"]
            assert steady.generation == before["generation"]


def test_graceful_leave_without_waiting_for_the_session(stand: Stand) -> None:
    stand.create(graceful=6)
    more = {"session_timeout": 60.0}
    with started(stand, "graceful", ["graceful"], "stays", "goes", **more) as (stays, goes):
        await_agreement([stays, goes], 6)
        goes.stop()
        assert goes.state is NodeState.LEFT
        assert goes.assigned_partitions() == ()
        assert await_agreement([stays], 6) < 5.0


def test_multi_topic_partitions_are_numbered_across_topics(stand: Stand) -> None:
    stand.create(first_topic=3, second_topic=5)
    topics = ["second-topic", "first-topic"]
    with started(stand, "multi", topics, "a", "b") as nodes:
        await_agreement(nodes, 8)
        first_ids = {"second-topic": 0, "first-topic": 5}
        for node in nodes:
            mine = {first_ids[topic] + number for topic, number in node.topic_partitions()}
            assert set(node.assigned_partitions()) == mine
        assert sum(len(node.topic_partitions()) for node in nodes) == 8


def test_ten_nodes_settle_and_share_everything(stand: Stand) -> None:
    stand.create(ten=40)
    names = [f"node-{number}" for number in range(10)]
    with started(stand, "ten", ["ten"], *names) as nodes:
        await_agreement(nodes, 40)
        assert {len(node.assigned_partitions()) for node in nodes} == {4}


def test_starting_twice_and_stopping_twice_is_no_harm(ours: Stand) -> None:
    ours.create(twice=2)
    node = KafkaDiscovery(configured(ours, "a", "twice", ["twice"]))
    node.start()
    await_agreement([node], 2)
    node.stop()
    node.stop()
    assert node.state is NodeState.LEFT
