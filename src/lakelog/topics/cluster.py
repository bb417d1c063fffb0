"""The cluster: its id and number of domains, and the brokers that live.

Rules:

- The cluster's record is written once, by the first broker; a broker that was given another number
  of domains, or finds a newer format, refuses to start (T2).
- A broker is known by a key that lives as long as its session. An id that is in use is refused,
  unless its holder was on this machine and listened on the port that is ours now: then it is dead,
  whatever its session says, and a restart need not wait for the session to end. Who took the id of
  a broker that had it already is never taken for dead by that.
- A broker that stood still for longer than its session takes its id back if nobody has it, and
  ends if another one does.
- A broker stays listed until its session has ended, and we always list ourselves; while the store
  cannot be read, the list stays as it is, so it never flickers (row 78).
- The pipeline finds a broker and is let in by the metadata store alone. A broker's key says where
  its HTTP port is. One token, made by whoever needs it first, opens the index: who may read the
  metadata store may swap, and nobody else.
"""

import asyncio
import base64
import logging
import re
from contextlib import suppress
from typing import Final

import msgspec

from lakelog.clock import Clock, Entropy
from lakelog.meta import keys
from lakelog.meta.port import KeyValue, MetadataStore, Session
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Refused, Unavailable
from lakelog.model.ids import BrokerId
from lakelog.telemetry import event
from lakelog.topics.id_blocks import ProducerIds
from lakelog.topics.routing import BrokerNode, RoutingView, views, zone_of

TOKEN_BYTES: Final = 16
_TOKEN: Final = re.compile(rb"[0-9a-f]{32}")


async def pipeline_token(store: MetadataStore, entropy: Entropy) -> str:
    """The token of this cluster, made now if there is none."""
    found = await store.get(keys.PIPELINE_TOKEN)
    if found is None:
        made = entropy.token(TOKEN_BYTES).hex().encode()
        with suppress(Conflict, OutcomeUnknown):  # another was first, or the reading tells
            await store.put(keys.PIPELINE_TOKEN, made, expect=0)
        found = await store.get(keys.PIPELINE_TOKEN)
    if found is None:
        raise Unavailable(f"{keys.PIPELINE_TOKEN} could not be written")
    if not _TOKEN.fullmatch(found.value):
        raise Corrupt(
            f"{keys.PIPELINE_TOKEN} holds no token: delete it and start the brokers again"
        )
    return found.value.decode()


class PipelineToken:
    """The token, read when it is first needed and kept."""

    def __init__(self, store: MetadataStore, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy
        self._known: str | None = None

    async def get(self) -> str:
        """The token; raises `Unavailable`."""
        if self._known is None:
            self._known = await pipeline_token(self._store, self._entropy)
        return self._known


CLUSTER_FORMAT: Final = 1
SESSION_TTL_S: Final = 3.0
"""Half of the least session of a group member: its broker is known to be gone first (K9)."""

RENEW_S: Final = 1.0
LOOP_STALL_S_MAX: Final = 10.0
"""A broker whose event loop is held up for longer counts as dead, though its process lives; until
then the metadata store renews its session. Kafka's brokers have about as long."""

CLAIM_POLL_S: Final = 0.2
DOMAINS_MAX: Final = 1_024

_log = logging.getLogger(__name__)


class ClusterRecord(msgspec.Struct, frozen=True):
    """What the cluster's key says."""

    format: int
    cluster_id: str
    domains: int


class _Registration(msgspec.Struct, frozen=True):
    """What a broker's key says."""

    host: str
    port: int
    rack: str | None
    machine: str
    advertised: bool
    token: str
    """By which its writer knows it again."""
    serving: bool = True
    """A broker that loads its state has its id already, and no clients yet."""
    http: str = ""
    """Where its HTTP port is, as host:port; empty without one."""


async def open_cluster(
    store: MetadataStore, entropy: Entropy, *, domains: int | None = None
) -> ClusterRecord:
    """The cluster's record, made now if this is its first broker; raises `Refused`."""
    assert domains is None or 1 <= domains <= DOMAINS_MAX, domains
    found = await store.get(keys.CLUSTER)
    if found is None:
        fresh = ClusterRecord(CLUSTER_FORMAT, _new_cluster_id(entropy), domains or 1)
        with suppress(Conflict, OutcomeUnknown):  # another was first, or the reading tells
            await store.put(keys.CLUSTER, msgspec.json.encode(fresh), expect=0)
        found = await store.get(keys.CLUSTER)
    if found is None:
        raise Unavailable("the cluster's record could not be written")
    try:
        record = msgspec.json.decode(found.value, type=ClusterRecord)
    except msgspec.MsgspecError as reason:
        raise Corrupt(f"the cluster's record cannot be read: {reason}") from reason
    if record.format > CLUSTER_FORMAT:
        raise Refused(
            f"this data was written by a newer Lakelog (format {record.format}; this version knows"
            f" {CLUSTER_FORMAT}): run a version that is at least as new"
        )
    if domains is not None and domains != record.domains:
        raise Refused(
            f"this cluster was made with {record.domains} domain(s), and {domains} are configured:"
            " the number is fixed when a cluster is made, so remove the setting"
        )
    return record


def _new_cluster_id(entropy: Entropy) -> str:
    """A random UUID in 22 characters, as Kafka writes it; never with a dash in front."""
    while True:
        text = base64.urlsafe_b64encode(entropy.token(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


async def http_addresses(store: MetadataStore) -> list[str]:
    """Where the HTTP ports of the brokers that serve are (host:port), by broker id."""
    found = await store.range(keys.BROKERS)
    nodes = sorted(map(_node, filter(_is_serving, found)))
    return [node.http for node in nodes if node.http]


class Cluster:
    """What one broker knows of the cluster it is in."""

    def __init__(
        self, store: MetadataStore, clock: Clock, entropy: Entropy, record: ClusterRecord
    ) -> None:
        self.cluster_id = record.cluster_id
        self.domains = record.domains
        self.producer_ids = ProducerIds(store)
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._own: BrokerNode | None = None
        self._session: Session | None = None
        self._version = 0  # of our key, as we wrote it last
        self._is_serving = False
        self._has_key = True
        self._is_doubted = False
        self._process = entropy.token(8).hex()
        self._alive_until_s = 0.0
        self._nodes: tuple[BrokerNode, ...] = ()
        self._views: dict[str | None, RoutingView] = {}

    @property
    def alive_until_s(self) -> float:
        """Until then, on the monotonic clock, nobody else may hold that we are gone."""
        if self._session is None or not self._has_key or self._is_doubted:
            return 0.0
        return max(self._alive_until_s, self._session.kept_alive_s + SESSION_TTL_S)

    def doubt(self) -> None:
        """Another process wrote under our name: claim it anew before anything counts again."""
        self._is_doubted = True

    def nodes(self) -> tuple[BrokerNode, ...]:
        """The live brokers, by id."""
        return self._nodes

    def view(self, client_id: str | None = None) -> RoutingView:
        """The brokers and leaders that a client with this id sees."""
        zone = zone_of(client_id)
        return self._views.get(zone) or self._views[None]

    async def claim(self, node: BrokerNode) -> None:
        """Make sure that nobody else has this broker's id, before anything is written under it.

        Others do not see the broker until it is registered. From here on `run` keeps its session
        alive. Raises `Refused`.
        """
        await self._claim(node)
        self._own = node

    async def register(self, node: BrokerNode) -> None:
        """Become known as this broker; its port must be ours already. Raises `Refused`."""
        self._is_serving = True
        session = self._session
        if session is None or not await self._put(node, session, self._version):
            await self._claim(node)
        self._own = node
        self._set_nodes([node])
        await self.refresh()

    async def refresh(self) -> None:
        """Read who lives."""
        version = self._version
        found = await self._store.range(keys.BROKERS)
        nodes = {node.id: node for node in map(_node, filter(_is_serving, found))}
        if self._own is not None:
            own_key = keys.broker(self._own.id)
            # Another process may have taken our key and died: then the others hold us for dead.
            self._has_key = version != self._version or any(
                one.key == own_key and one.version == version for one in found
            )
            nodes[self._own.id] = self._own
        self._set_nodes(sorted(nodes.values()))

    async def registered(self) -> list[BrokerId]:
        """The brokers that have a session now, also those that do not serve yet, by id."""
        found = await self._store.range(keys.BROKERS)
        return sorted(_node(one).id for one in found)

    async def run(self) -> None:
        """Keep our session alive and the list of brokers current, for ever.

        Raises `Refused` when another broker took our id and lives.
        """
        assert self._own is not None, "claim or register comes first"
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self._renew(self._own)
                await self.refresh()
            except (Unavailable, OutcomeUnknown) as reason:
                event(_log, "cluster_unreachable", logging.WARNING, reason=str(reason))

    async def leave(self) -> None:
        """Let everybody know that this broker is gone."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _renew(self, node: BrokerNode) -> None:
        began_s, until_s = self._clock.monotonic_s(), self.alive_until_s
        if self._session is not None and self._has_key and not self._is_doubted:
            try:
                await self._session.renew()
            except Conflict:
                without_s = round(began_s - until_s, 1)
                event(_log, "session_lost", logging.WARNING, broker=node.id, without_s=without_s)
            else:
                self._alive_until_s = began_s + SESSION_TTL_S
                return
        await self._claim(node)
        event(_log, "session_won", logging.WARNING, broker=node.id)

    async def _claim(self, node: BrokerNode) -> None:
        """Take the broker's key in a new session, once its holder is surely gone."""
        former, self._session = self._session, None
        is_first = self._version == 0
        patience_until_s = self._clock.monotonic_s() + SESSION_TTL_S + RENEW_S
        while True:
            began_s = self._clock.monotonic_s()
            held = await self._store.get(keys.broker(node.id))
            if held is None or self._is_ours(held) or (is_first and _is_our_past(held, node)):
                session = await self._store.session(ttl_s=SESSION_TTL_S, keep_s=LOOP_STALL_S_MAX)
                version = 0 if held is None else held.version
                if await self._put(node, session, version):
                    self._session = session
                    self._has_key = True
                    self._is_doubted = False
                    self._alive_until_s = began_s + SESSION_TTL_S
                    await _end(former)
                    return
                await session.close()
                continue
            if began_s >= patience_until_s:
                other = _node(held)
                raise Refused(
                    f"broker id {node.id} is in use by a broker at {other.host}:{other.port}"
                    f" (machine {other.machine!r}): stop that one, or give this one another id"
                )
            await asyncio.sleep(CLAIM_POLL_S)

    async def _put(self, node: BrokerNode, session: Session, version: int) -> bool:
        """Whether our key stands; an unknown outcome is settled by reading."""
        value = msgspec.json.encode(
            _Registration(
                host=node.host,
                port=node.port,
                rack=node.rack,
                machine=node.machine,
                advertised=node.advertised,
                token=self._process + self._entropy.token(8).hex(),
                serving=self._is_serving,
                http=node.http,
            )
        )
        key = keys.broker(node.id)
        try:
            self._version = await self._store.put(key, value, expect=version, session=session)
        except Conflict:
            return False
        except OutcomeUnknown:
            found = await self._store.get(key)
            if found is None or found.value != value:
                return False
            self._version = found.version
        return True

    def _is_ours(self, held: KeyValue) -> bool:
        return _said(held).token.startswith(self._process)

    def _set_nodes(self, nodes: list[BrokerNode]) -> None:
        if tuple(nodes) != self._nodes:
            self._nodes = tuple(nodes)
            self._views = views(nodes)
            event(_log, "brokers", ids=[node.id for node in nodes])


async def _end(session: Session | None) -> None:
    """Let go of a session that no key of ours is tied to any more; it may be over already."""
    if session is not None:
        with suppress(Unavailable, OutcomeUnknown):
            await session.close()


def _is_our_past(held: KeyValue, node: BrokerNode) -> bool:
    other = _node(held)
    return bool(node.machine) and other.machine == node.machine and other.port == node.port


def _is_serving(found: KeyValue) -> bool:
    return _said(found).serving


def _said(found: KeyValue) -> _Registration:
    try:
        return msgspec.json.decode(found.value, type=_Registration)
    except msgspec.MsgspecError as reason:
        raise Corrupt(f"{found.key} cannot be read: {reason}") from reason


def _node(found: KeyValue) -> BrokerNode:
    said = _said(found)
    try:
        broker = BrokerId(int(found.key.removeprefix(keys.BROKERS)))
    except ValueError as reason:
        raise Corrupt(f"{found.key} cannot be read: {reason}") from reason
    return BrokerNode(
        id=broker,
        host=said.host,
        port=said.port,
        rack=said.rack,
        machine=said.machine,
        advertised=said.advertised,
        http=said.http,
    )
