"""Which broker a client is sent to for a stream: a hint, never correctness (D13). Pure.

Every broker can serve every stream. Sending the writers and readers of one stream to one broker
makes its batches larger and its cache warmer; when brokers come and go, rendezvous hashing moves
only the streams of those. Streams are hashed into slots, and each slot has a leader, so that ten
thousand partitions cost ten thousand table look-ups.

Zones: a client whose `client.id` says `zone_id=a` sees the brokers of zone `a`
only, if there are any.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from lakelog.model.ids import BrokerId

SLOTS: Final = 1024


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A live broker: where it listens, and where its clients shall go."""

    id: BrokerId
    host: str
    """The advertised host; without one, the host that the broker listens on."""
    port: int
    rack: str | None = None
    """The broker's zone."""
    machine: str = ""
    """Brokers with the same one run on the same machine."""
    advertised: bool = True
    """Whether `host` was configured; if not, a client is told the host that it reached us by."""
    http: str = ""
    """Where its HTTP port is, as host:port; empty without one."""


@dataclass(frozen=True, slots=True)
class View:
    """The brokers that a client sees, by id, and the leader of each slot."""

    nodes: tuple[Node, ...]
    leaders: tuple[BrokerId, ...]

    def leader(self, stream: int) -> BrokerId:
        """The broker that leads the stream in this view."""
        return self.leaders[stream % SLOTS]

    def leader_of_key(self, key: str) -> BrokerId:
        """The broker that a name, such as a group's, belongs to in this view."""
        return self.leaders[_slot_of(key)]

    def ranked(self, key: str) -> list[BrokerId]:
        """All brokers in the order in which a name belongs to them: its leader comes first."""
        slot = _slot_of(key)
        ids = [node.id for node in self.nodes]
        return sorted(ids, key=lambda node: (_score(slot, node), -node), reverse=True)


def view(nodes: Iterable[Node]) -> View:
    """The view of a client that sees these brokers; there is at least one."""
    ordered = tuple(sorted(nodes))
    assert ordered, "a view without brokers"
    ids = [node.id for node in ordered]
    return View(ordered, tuple(_winner(slot, ids) for slot in range(SLOTS)))


def _slot_of(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") % SLOTS


def _winner(slot: int, ids: Sequence[BrokerId]) -> BrokerId:
    if len(ids) == 1:
        return ids[0]
    return max(ids, key=lambda node: (_score(slot, node), -node))


def _score(slot: int, node: BrokerId) -> bytes:
    return blake2b(b"%d/%d" % (slot, node), digest_size=8).digest()


def zone_of(client_id: str | None) -> str | None:
    """The zone that a client names in its id: `zone_id=a,other=…`."""
    for part in (client_id or "").split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip() == "zone_id":
            return value.strip() or None
    return None


def views(nodes: Sequence[Node]) -> dict[str | None, View]:
    """The view of each zone that has brokers, and under None the view of everybody else."""
    zones = {node.rack for node in nodes if node.rack is not None}
    found: dict[str | None, View] = {None: view(nodes)}
    for zone in sorted(zones):
        inside = [node for node in nodes if node.rack == zone]
        found[zone] = view(inside) if len(inside) < len(nodes) else found[None]
    return found
