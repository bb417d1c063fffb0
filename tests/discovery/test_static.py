"""Discovery from a list: the same protocol, and all nodes agree without a word."""

import asyncio

import pytest

from lakelog.discovery.failures import ConfigError
from lakelog.discovery.node import NodeId, NodeInfo, NodeMetadata, NodeState
from lakelog.discovery.static import Discovery, Nodes, StaticDiscovery

NODES = [
    NodeInfo(NodeId("n1"), "h1:1", "h1:2", NodeMetadata(cores=2)),
    NodeInfo(NodeId("n0"), "h0:1", "h0:2", NodeMetadata(cores=1)),
]
TOPICS = {"b": 2, "a": 4}


def discovery(node_id: str) -> StaticDiscovery:
    return StaticDiscovery(node_id, NODES, TOPICS)


def test_it_can_stand_wherever_discovery_is_wanted() -> None:
    swappable: Discovery = discovery("n0")
    swappable.start()
    assert [peer.node_id for peer in swappable.peers()] == ["n1"]
    swappable.stop()


def test_nodes_share_all_partitions_by_their_weights() -> None:
    both = [discovery("n0"), discovery("n1")]
    for each in both:
        each.start()
    first, second = (each.assigned_partitions() for each in both)
    assert sorted(first + second) == list(range(6))
    assert (len(first), len(second)) == (2, 4)
    assert sorted(both[0].topic_partitions() + both[1].topic_partitions()) == [
        *(("a", number) for number in range(4)),
        *(("b", number) for number in range(2)),
    ]
    assert both[0].members().next_change(0) == both[1].members().next_change(0)
    assert {each.leader for each in both} == {"n0"}
    assert {each.generation for each in both} == {1}
    owned = {peer.metadata.owned_partitions for each in both for peer in each.peers()}
    assert owned == {first, second}


def test_outside_start_and_stop_there_is_nothing() -> None:
    static = discovery("n0")

    def is_nothing() -> bool:
        return (
            static.peers() == ()
            and static.assigned_partitions() == ()
            and static.generation == -1
            and static.leader is None
        )

    states = [static.state]
    assert is_nothing()
    static.start()
    states.append(static.state)
    assert not is_nothing()
    static.stop()
    static.stop()
    states.append(static.state)
    assert is_nothing()
    static.start()
    states.append(static.state)
    assert len(static.peers()) == 1
    assert states == [NodeState.JOINING, NodeState.ACTIVE, NodeState.LEFT, NodeState.ACTIVE]


def test_a_watch_begins_with_what_stands_and_ends_with_the_discovery() -> None:
    static = discovery("n0")
    static.start()
    watch = static.members()
    static.announce(NodeMetadata(cores=64))
    static.announce(NodeMetadata(cores=64))
    static.stop()
    seen = list(watch)
    assert len(seen) == 1
    assert seen[0][0].metadata.cores == 64
    assert seen[0][0].metadata.owned_partitions == (0, 2)

    async def watched() -> list[Nodes]:
        static.start()
        fresh = static.members()
        static.stop()
        return [nodes async for nodes in fresh]

    assert len(asyncio.run(watched())) == 1


def test_an_announcement_moves_no_partition() -> None:
    static = discovery("n0")
    static.start()
    before = static.assigned_partitions()
    static.announce(NodeMetadata(cores=64))
    assert static.assigned_partitions() == before
    with pytest.raises(ConfigError):
        static.announce(NodeMetadata(cores=-1))


@pytest.mark.parametrize(
    ("node_id", "nodes", "topics", "said"),
    [
        ("n0", NODES, {}, "at least one topic"),
        ("n0", NODES, {"t": -1}, "cannot have -1 partitions"),
        ("n0", NODES, {"t": True}, "cannot have True partitions"),
        ("n7", NODES, {"t": 1}, "'n7', is not among them"),
        ("n0", [*NODES, NODES[0]], {"t": 1}, "'n1' is there more than once"),
        ("a b", [NodeInfo(NodeId("a b"))], {"t": 1}, "'a b' is no legal node id"),
        ("x", [NodeInfo(NodeId("x"), metadata=NodeMetadata(cores=0))], {"t": 1}, "cores"),
    ],
)
def test_what_cannot_work_is_refused(
    node_id: str, nodes: list[NodeInfo], topics: dict[str, int], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        StaticDiscovery(node_id, nodes, topics)
