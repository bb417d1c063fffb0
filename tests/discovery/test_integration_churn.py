"""Nodes come and go, and at no moment do two of them have one partition."""

import random
import threading
from collections.abc import Callable

from tests.discovery.nodes import await_agreement, configured
from tests.discovery.stands import Stand

from lakelog.discovery import KafkaDiscovery

NODES = 4
PARTITIONS = 12
STEPS = 10
Partitions = tuple[tuple[str, int], ...]


class Ledger:
    """Who has what, as the callbacks say; it keeps what should not be."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._owner: dict[tuple[str, int], str] = {}
        self.wrong: list[str] = []
        self.moves = 0

    def given(self, name: str) -> Callable[[Partitions], None]:
        def hear(partitions: Partitions) -> None:
            with self._turn:
                for each in partitions:
                    if each in self._owner:
                        self.wrong.append(f"{each}: {name} while {self._owner[each]} has it")
                    self._owner[each] = name
                    self.moves += 1

        return hear

    def taken(self, name: str) -> Callable[[Partitions], None]:
        def hear(partitions: Partitions) -> None:
            with self._turn:
                for each in partitions:
                    if self._owner.get(each) != name:
                        self.wrong.append(f"{each}: {name} gives back what is not its own")
                    self._owner.pop(each, None)

        return hear

    def lost(self, name: str) -> Callable[[Partitions], None]:
        return lambda partitions: self.wrong.append(f"{name} lost {partitions}")


def test_while_nodes_come_and_go_no_partition_has_two_owners(stand: Stand) -> None:
    stand.create(churn=PARTITIONS)
    ledger = Ledger()
    nodes = {f"node-{number}": made(stand, f"node-{number}", ledger) for number in range(NODES)}
    running: set[str] = set()
    chance = random.Random("churn")
    try:
        for _ in range(STEPS):
            name = chance.choice(sorted(nodes))
            if name in running and len(running) > 1:
                nodes[name].stop()
                running.discard(name)
            elif name not in running:
                nodes[name].start()
                running.add(name)
            if chance.random() < 0.3:
                await_agreement([nodes[each] for each in sorted(running)], PARTITIONS)
        await_agreement([nodes[each] for each in sorted(running)], PARTITIONS)
    finally:
        for name in sorted(running):
            nodes[name].stop()
    assert not ledger.wrong
    assert ledger.moves >= PARTITIONS


def made(stand: Stand, name: str, ledger: Ledger) -> KafkaDiscovery:
    node = KafkaDiscovery(configured(stand, name, "churn", ["churn"], session_timeout=20.0))
    node.on_assigned(ledger.given(name))
    node.on_revoked(ledger.taken(name))
    node.on_lost(ledger.lost(name))
    return node
