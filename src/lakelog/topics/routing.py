"""Which broker a client is sent to for a stream: a hint, never correctness (D13). Pure.

Every broker can serve every stream. Sending the writers and readers of one stream to one broker
makes its batches larger and its cache warmer; when brokers come and go, rendezvous hashing moves
little but the streams of those. Streams are hashed into slots, and each slot ranks the brokers.

The partitions of one topic are spread evenly: no broker leads two more of them than another, so
three partitions on three brokers are one each. Each partition, in order, goes to the best of its
ranks that has a place left. Dealing them out in turn would be as even, but would move nearly all of
them whenever a broker comes or goes: of 10,000 partitions on ten brokers 90% instead of 12%.

Zones: a client whose `client.id` says `zone_id=a` sees the brokers of zone `a`
only, if there are any.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from lakelog.model.ids import BrokerId

if TYPE_CHECKING:
    from lakelog.topics.topic import StreamSpan, Topic

SLOTS: Final = 1024
KEPT_PARTITIONS_MAX: Final = 1_000_000
"""The leaders of so many partitions are kept per view, eight bytes each; then all are forgotten."""


@dataclass(frozen=True, slots=True, order=True)
class BrokerNode:
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


class _KeptLeaders:
    """The leaders of the topics that were asked for, by what their key says of their streams."""

    __slots__ = ("_by_spans", "_partitions")

    def __init__(self) -> None:
        self._by_spans: dict[tuple[StreamSpan, ...], tuple[BrokerId, ...]] = {}
        self._partitions = 0

    def get(self, spans: "tuple[StreamSpan, ...]") -> tuple[BrokerId, ...] | None:
        return self._by_spans.get(spans)

    def keep(self, spans: "tuple[StreamSpan, ...]", leaders: tuple[BrokerId, ...]) -> None:
        if self._partitions + len(leaders) > KEPT_PARTITIONS_MAX:
            self._by_spans.clear()
            self._partitions = 0
        self._by_spans[spans] = leaders
        self._partitions += len(leaders)


@dataclass(frozen=True, slots=True)
class RoutingView:
    """The brokers that a client sees, by id, and in which order each slot belongs to them."""

    nodes: tuple[BrokerNode, ...]
    ranks: tuple[tuple[BrokerId, ...], ...]
    _kept: _KeptLeaders = field(default_factory=_KeptLeaders, init=False, compare=False, repr=False)

    def partition_leaders(self, topic: "Topic") -> tuple[BrokerId, ...]:
        """The brokers that lead the topic's partitions in this view, by partition."""
        found = self._kept.get(topic.spans)
        if found is None:
            found = tuple(_dealt(self.nodes, self.ranks, topic))
            self._kept.keep(topic.spans, found)
        return found

    def leader_of_key(self, key: str) -> BrokerId:
        """The broker that a name, such as a group's, belongs to in this view."""
        return self.ranks[_slot_of(key)][0]

    def ranked(self, key: str) -> list[BrokerId]:
        """All brokers in the order in which a name belongs to them: its leader comes first."""
        return list(self.ranks[_slot_of(key)])


def _dealt(
    nodes: Sequence[BrokerNode], ranks: Sequence[Sequence[BrokerId]], topic: "Topic"
) -> list[BrokerId]:
    """The leader of each partition: the best of its ranks that has a place left."""
    if len(nodes) == 1:
        return [nodes[0].id] * topic.partition_count
    least, more = divmod(topic.partition_count, len(nodes))  # `more` of them lead one more
    led = dict.fromkeys((node.id for node in nodes), 0)
    found = []
    for stream in topic.streams():
        limit = least + 1 if more else least
        leader = next(broker for broker in ranks[stream % SLOTS] if led[broker] < limit)
        more -= led[leader] == least
        led[leader] += 1
        found.append(leader)
    return found


def view(nodes: Iterable[BrokerNode]) -> RoutingView:
    """The view of a client that sees these brokers; there is at least one."""
    ordered = tuple(sorted(nodes))
    assert ordered, "a view without brokers"
    ids = [node.id for node in ordered]
    return RoutingView(ordered, tuple(_ranked(slot, ids) for slot in range(SLOTS)))


def _slot_of(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") % SLOTS


def _ranked(slot: int, ids: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    if len(ids) == 1:
        return (ids[0],)
    return tuple(sorted(ids, key=lambda node: (_score(slot, node), -node), reverse=True))


def _score(slot: int, node: BrokerId) -> bytes:
    return blake2b(b"%d/%d" % (slot, node), digest_size=8).digest()


def zone_of(client_id: str | None) -> str | None:
    """The zone that a client names in its id: `zone_id=a,other=…`."""
    for part in (client_id or "").split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip() == "zone_id":
            return value.strip() or None
    return None


def views(nodes: Sequence[BrokerNode]) -> dict[str | None, RoutingView]:
    """The view of each zone that has brokers, and under None the view of everybody else."""
    zones = {node.rack for node in nodes if node.rack is not None}
    found: dict[str | None, RoutingView] = {None: view(nodes)}
    for zone in sorted(zones):
        inside = [node for node in nodes if node.rack == zone]
        found[zone] = view(inside) if len(inside) < len(nodes) else found[None]
    return found
