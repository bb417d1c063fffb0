"""Several members and a model of their group: no partition ever has two owners, and all agree."""

import random
from dataclasses import replace

import pytest
from tests.discovery.tiny_group import TinyGroup, TinyNode
from tests.profiles import sampled

from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.failures import Fenced
from lakelog.discovery.member import Phase
from lakelog.discovery.membership_events import (
    Announce,
    CallbackOverdue,
    CallbackReturned,
    MembersChanged,
    PartitionsAssigned,
    PartitionsRevoked,
    SessionExpired,
    StopRequested,
)
from lakelog.discovery.node import NodeMetadata, PartitionCountChanged

COUNTS = {"a": 8, "b": 5}


def config(name: str, cores: int = 1) -> KafkaDiscoveryConfig:
    return KafkaDiscoveryConfig(node_id=name, topics=("a", "b"), metadata=NodeMetadata(cores=cores))


def check_owners(nodes: dict[str, TinyNode]) -> None:
    """No partition is worked on by two nodes."""
    seen: dict[tuple[str, int], str] = {}
    for name, node in nodes.items():
        for partition in node.working:
            assert partition not in seen, (partition, name, seen[partition])
            seen[partition] = name


def settle(nodes: dict[str, TinyNode]) -> None:
    """Deliver everything and let heartbeats go round until nothing happens any more."""
    for _ in range(1000):
        busy = False
        for node in nodes.values():
            while node.inbox:
                node.deliver()
                check_owners(nodes)
                busy = True
            while node.callbacks:
                node.call_back()
                busy = True
        before = [node.member for node in nodes.values()]
        for node in nodes.values():
            node.beat()
        if not busy and before == [node.member for node in nodes.values()]:
            return
    raise AssertionError("the group does not come to rest")


def check_agreed(group: TinyGroup, nodes: dict[str, TinyNode]) -> None:
    """All are in one generation, see the same members, and share every partition."""
    members = [node.member for node in nodes.values()]
    assert all(member.phase is Phase.SETTLED for member in members)
    assert {member.generation for member in members} == {group.generation}
    assert {member.nodes for member in members} == {members[0].nodes}
    assert [node.node_id for node in members[0].nodes] == sorted(nodes)
    assert len({member.leader for member in members}) == 1
    everything = sorted(number for member in members for number in member.assigned_partitions)
    assert everything == list(range(sum(group.counts.values())))
    for name, node in nodes.items():
        assert node.working == set(node.member.held)
        listed = next(each for each in members[0].nodes if each.node_id == name)
        assert listed.metadata.owned_partitions == node.member.assigned_partitions
        assert listed.metadata.cores == node.member.node.metadata.cores


def test_two_nodes_share_the_partitions_and_the_second_waits_for_what_it_gets() -> None:
    group = TinyGroup(dict(COUNTS))
    nodes = {"n1": TinyNode(group, config("n1"))}
    settle(nodes)
    assert len(nodes["n1"].working) == 13
    nodes["n2"] = TinyNode(group, config("n2"))
    generation = group.generation
    settle(nodes)
    check_agreed(group, nodes)
    assert group.generation == generation + 2
    assert sorted(len(node.working) for node in nodes.values()) == [6, 7]
    kept = [
        change
        for change in nodes["n1"].told
        if isinstance(change, PartitionsAssigned | PartitionsRevoked)
    ]
    assert [type(change) for change in kept] == [PartitionsAssigned, PartitionsRevoked]


def test_members_agree_after_one_rebalance_and_publish_only_changes() -> None:
    group = TinyGroup(dict(COUNTS))
    nodes = {name: TinyNode(group, config(name)) for name in ("n1", "n2", "n3")}
    settle(nodes)
    check_agreed(group, nodes)
    before = len([each for each in nodes["n1"].told if isinstance(each, MembersChanged)])
    for _ in range(5):
        settle(nodes)
    assert len([each for each in nodes["n1"].told if isinstance(each, MembersChanged)]) == before
    seen = nodes["n1"].member.nodes
    nodes["n3"].take(StopRequested())
    settle(nodes)
    del nodes["n3"]
    check_agreed(group, nodes)
    assert len(nodes["n1"].member.nodes) == len(seen) - 1


def test_a_quick_restart_makes_no_rebalance_and_gets_the_same_partitions() -> None:
    group = TinyGroup(dict(COUNTS))
    nodes = {name: TinyNode(group, config(name)) for name in ("n1", "n2", "n3")}
    settle(nodes)
    for name in ("n1", "n2"):  # one of them leads, or both follow
        held, generation = nodes[name].working, group.generation
        nodes[name] = TinyNode(group, config(name))
        settle(nodes)
        assert nodes[name].working == held
        assert group.generation == generation
    check_agreed(group, nodes)


def test_a_restart_with_more_cores_is_noticed_although_the_group_makes_no_rebalance() -> None:
    group = TinyGroup(dict(COUNTS))
    nodes = {name: TinyNode(group, config(name)) for name in ("n1", "n2", "n3")}
    settle(nodes)
    for name in sorted(nodes):
        nodes[name] = TinyNode(group, config(name, cores=11))
        settle(nodes)
        check_agreed(group, nodes)
        nodes[name].take(Announce(NodeMetadata(cores=1)))
        settle(nodes)
        check_agreed(group, nodes)


def test_a_second_process_with_a_node_id_fences_the_first() -> None:
    group = TinyGroup(dict(COUNTS))
    nodes = {"n1": TinyNode(group, config("n1"))}
    settle(nodes)
    first = nodes["n1"]
    nodes["n1"] = TinyNode(group, config("n1"))
    first.beat()
    assert isinstance(first.failure, Fenced)
    assert first.working == set()
    settle(nodes)
    check_agreed(group, nodes)


def test_more_partitions_are_told_to_everyone_and_shared() -> None:
    group = TinyGroup(dict(COUNTS))
    nodes = {name: TinyNode(group, config(name)) for name in ("n1", "n2", "n3")}
    settle(nodes)
    group.counts["a"] = 12
    for node in nodes.values():
        node.grow(group.counts)
    settle(nodes)
    check_agreed(group, nodes)
    for node in nodes.values():
        changes = [each for each in node.told if isinstance(each, PartitionCountChanged)]
        assert changes == [PartitionCountChanged("a", before=8, after=12)]


def test_a_draining_node_hands_over_and_stays_until_it_leaves() -> None:
    group = TinyGroup(dict(COUNTS))
    nodes = {name: TinyNode(group, config(name)) for name in ("n1", "n2", "n3")}
    settle(nodes)
    nodes["n2"].take(Announce(NodeMetadata(), is_draining=True))
    settle(nodes)
    check_agreed(group, nodes)
    assert nodes["n2"].working == set()


class Chaos:
    """One seeded run: anything may happen to anyone, in any order."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.calmness = self.chance.choice([3, 10, 30])
        self.group = TinyGroup(dict(COUNTS))
        self.nodes: dict[str, TinyNode] = {}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            check_owners(self.nodes)

    def step(self) -> None:
        quiet = [self.deliver, self.deliver, self.deliver, self.deliver, self.beat, self.beat]
        loud = [self.start, self.crash, self.stop, self.restart, self.announce]
        louder = [self.disconnect, self.expire, self.grow, self.hang]
        self.chance.choice(quiet * self.calmness + [self.call_back] * 6 + loud + louder)()

    def pick(self) -> TinyNode | None:
        return self.nodes[self.chance.choice(sorted(self.nodes))] if self.nodes else None

    def deliver(self) -> None:
        node = self.pick()
        if node is not None and node.inbox:
            node.deliver()
            if node.member.phase is Phase.GONE:
                del self.nodes[node.name]

    def beat(self) -> None:
        node = self.pick()
        if node is not None:
            node.beat()

    def call_back(self) -> None:
        node = self.pick()
        if node is not None and node.callbacks:
            node.call_back()

    def start(self) -> None:
        name = f"n{self.chance.randrange(5)}"
        if name not in self.nodes:
            self.group.remove(name)  # its session is long over
            self.nodes[name] = TinyNode(self.group, config(name, self.chance.choice([1, 2, 4])))

    def crash(self) -> None:
        node = self.pick()
        if node is not None:
            del self.nodes[node.name]
            self.group.remove(node.name)

    def stop(self) -> None:
        node = self.pick()
        if node is not None:
            node.take(StopRequested())
            if node.member.phase is Phase.GONE:
                del self.nodes[node.name]

    def restart(self) -> None:
        node = self.pick()
        if node is not None:
            again = replace(config(node.name), metadata=node.member.node.metadata)
            self.nodes[node.name] = TinyNode(self.group, again)

    def announce(self) -> None:
        node = self.pick()
        if node is not None:
            node.take(Announce(NodeMetadata(cores=self.chance.choice([1, 2, 4]))))

    def disconnect(self) -> None:
        node = self.pick()
        if node is not None and node.member.phase is not Phase.LEAVING:
            node.disconnect()

    def expire(self) -> None:
        node = self.pick()
        if node is not None and node.member.phase not in (Phase.LEAVING, Phase.OVERDUE):
            self.group.remove(node.name)
            node.working.clear()
            node.take(SessionExpired())
            if node.member.phase is not Phase.JOINING or not node.inbox:
                node.disconnect()

    def grow(self) -> None:
        node = self.pick()
        topic = self.chance.choice(sorted(self.group.counts))
        self.group.counts[topic] = min(16, self.group.counts[topic] + self.chance.randrange(2))
        if node is not None:
            node.grow(self.group.counts)

    def hang(self) -> None:
        node = self.pick()
        if node is None or node.member.phase is Phase.LEAVING:
            return
        if node.member.phase is Phase.OVERDUE:
            node.take(CallbackReturned())
        else:
            node.working.clear()
            node.take(CallbackOverdue())

    def calm(self) -> None:
        """Nothing happens any more but what the group itself needs."""
        for node in self.nodes.values():
            if node.member.phase is not Phase.LEAVING:
                node.disconnect()
            if node.member.phase is Phase.OVERDUE:
                node.take(CallbackReturned())
        settle(self.nodes)
        self.nodes = {
            n: node for n, node in self.nodes.items() if node.member.phase is not Phase.GONE
        }
        for node in self.nodes.values():
            node.grow(self.group.counts)
        settle(self.nodes)


@pytest.mark.parametrize("seed", [*sampled(range(120), 6), 307])
def test_no_partition_has_two_owners_whatever_happens_and_all_agree_in_the_end(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.run(100 * chaos.calmness)
    for name in ("n1", "n2"):
        if name not in chaos.nodes:
            chaos.nodes[name] = TinyNode(chaos.group, config(name))
    chaos.calm()
    assert sorted(seat.instance_id for seat in chaos.group.seats.values()) == sorted(chaos.nodes)
    check_agreed(chaos.group, chaos.nodes)
