"""A model of the coordinator of one classic group, and of nodes that are its members.

The group answers as Kafka's does, static members included, without time or network: whoever drives
it decides what happens next. A node is `lakelog.discovery.membership` with a shell that keeps
answers until they are delivered, and an owner that remembers what it works on.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.failures import DiscoveryError
from lakelog.discovery.member import Member, Phase, make_member
from lakelog.discovery.membership import step
from lakelog.discovery.membership_events import (
    Change,
    CoordinatorLost,
    CountsRead,
    DescribeAnswered,
    Effect,
    Event,
    Fail,
    ForgetCoordinator,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Publish,
    ReadCounts,
    RevocationDone,
    SendDescribe,
    SendJoin,
    SendLeave,
    SendSync,
    StartRequested,
    SyncAnswered,
)
from lakelog.discovery.node import TopicPartition
from lakelog.discovery.roster import RawMember
from lakelog.model.errors import ErrorCode

Answer = Callable[[Event], None]


@dataclass
class _Seat:
    instance_id: str
    metadata: bytes
    joining: Answer | None = None
    syncing: Answer | None = None


@dataclass
class TinyGroup:
    """The coordinator's side."""

    counts: dict[str, int]
    state: str = "Empty"
    generation: int = 0
    leader: str = ""
    seats: dict[str, _Seat] = field(default_factory=dict)
    assignments: dict[str, bytes] = field(default_factory=dict)
    made: int = 0
    """How many member ids were given out."""

    def join(self, member_id: str, instance_id: str, metadata: bytes, answer: Answer) -> None:
        present = self._id_of(instance_id)
        if not member_id:
            self.made += 1
            fresh = f"{instance_id}-{self.made}"
            if present is None:
                self.seats[fresh] = _Seat(instance_id, metadata, answer)
                self._prepare()
                return
            self._replace(present, fresh, metadata, answer)
        elif present != member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID if present is None else ErrorCode.FENCED_INSTANCE_ID
            answer(JoinAnswered(code))
        else:
            seat = self.seats[member_id]
            is_same = seat.metadata == metadata
            seat.metadata = metadata
            in_force = self.state == "Completing" or (
                self.state == "Stable" and member_id != self.leader
            )
            if in_force and is_same:
                answer(self._joined(member_id))
            else:
                seat.joining = answer
                self._prepare()

    def sync(
        self, member_id: str, generation: int, plan: tuple[tuple[str, bytes], ...], answer: Answer
    ) -> None:
        if member_id not in self.seats:
            answer(SyncAnswered(ErrorCode.UNKNOWN_MEMBER_ID))
        elif generation != self.generation:
            answer(SyncAnswered(ErrorCode.ILLEGAL_GENERATION))
        elif self.state == "Preparing":
            answer(SyncAnswered(ErrorCode.REBALANCE_IN_PROGRESS))
        elif self.state == "Stable":
            answer(SyncAnswered(0, self.assignments.get(member_id, b"")))
        else:
            self.seats[member_id].syncing = answer
            if member_id == self.leader:
                self.assignments = dict(plan)
                self.state = "Stable"
                for name, seat in self.seats.items():
                    if seat.syncing is not None:
                        seat.syncing(SyncAnswered(0, self.assignments.get(name, b"")))
                        seat.syncing = None

    def heartbeat(self, member_id: str, instance_id: str, generation: int) -> ErrorCode:
        present = self._id_of(instance_id)
        if present is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if present != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state == "Preparing" else ErrorCode.NONE

    def describe(self) -> DescribeAnswered:
        members = tuple(
            RawMember(name, seat.instance_id, seat.metadata, self.assignments.get(name, b""))
            for name, seat in self.seats.items()
        )
        return DescribeAnswered(0, self.state, members)

    def remove(self, instance_id: str) -> None:
        """A member has left, or its session has ended."""
        present = self._id_of(instance_id)
        if present is not None:
            del self.seats[present]
            self._prepare()

    def _id_of(self, instance_id: str) -> str | None:
        found = [name for name, seat in self.seats.items() if seat.instance_id == instance_id]
        return found[0] if found else None

    def _replace(self, old: str, new: str, metadata: bytes, answer: Answer) -> None:
        """A static member returns: in Stable nothing else happens."""
        seat = self.seats.pop(old)
        for parked, kind in ((seat.joining, JoinAnswered), (seat.syncing, SyncAnswered)):
            if parked is not None:
                parked(kind(ErrorCode.FENCED_INSTANCE_ID))
        self.seats[new] = _Seat(seat.instance_id, metadata)
        if old in self.assignments:
            self.assignments[new] = self.assignments.pop(old)
        if self.leader == old:
            self.leader = new
        if self.state == "Stable":
            answer(self._joined(new, skip_assignment=self.leader == new))
        else:
            self.seats[new].joining = answer
            self._prepare()

    def _prepare(self) -> None:
        """Rebalance: all must join; those who waited for an assignment are told."""
        self.state = "Preparing" if self.seats else "Empty"
        for seat in self.seats.values():
            if seat.syncing is not None:
                seat.syncing(SyncAnswered(ErrorCode.REBALANCE_IN_PROGRESS))
                seat.syncing = None
        if self.seats and all(seat.joining is not None for seat in self.seats.values()):
            self.generation += 1
            self.state = "Completing"
            self.assignments = {}
            if self.leader not in self.seats:
                self.leader = next(iter(self.seats))
            for name, seat in list(self.seats.items()):
                assert seat.joining is not None
                seat.joining(self._joined(name))
                seat.joining = None

    def _joined(self, name: str, *, skip_assignment: bool = False) -> JoinAnswered:
        members = self.describe().members if name == self.leader else ()
        return JoinAnswered(0, name, self.generation, self.leader, skip_assignment, members)


class TinyNode:
    """A member with its shell and its owner; `inbox` holds what has not been delivered."""

    def __init__(self, group: TinyGroup, config: KafkaDiscoveryConfig) -> None:
        self.group = group
        self.name = str(config.node_id)
        self.member: Member = make_member(config)
        self.inbox: deque[Event] = deque()
        self.working: set[TopicPartition] = set()
        """What the owner works on: until it has let go of it, or was told that it is lost."""
        self.callbacks: deque[PartitionsRevoked] = deque()
        self.told: list[Change] = []
        self.failure: DiscoveryError | None = None
        self._request = 0
        self.take(StartRequested())

    def take(self, event: Event) -> None:
        """One event, and all that is to be done about it."""
        self.member, effects = step(self.member, event)
        for effect in effects:
            self._do(effect)

    def deliver(self) -> None:
        """The next answer arrives."""
        self.take(self.inbox.popleft())

    def beat(self) -> None:
        """Send a heartbeat, if it is time for such, and hear its answer."""
        member = self.member
        if member.phase is Phase.SETTLED:
            code = self.group.heartbeat(member.member_id, self.name, member.generation)
            self.take(HeartbeatAnswered(code))

    def disconnect(self) -> None:
        """The connection breaks: what was asked stays unanswered."""
        self._request += 1
        self.inbox.clear()
        self.take(CoordinatorLost("broken"))

    def call_back(self) -> None:
        """The callback of the oldest revocation returns."""
        revoked = self.callbacks.popleft()
        again = {p for each in self.callbacks for p in each.partitions} | set(self.member.held)
        self.working -= set(revoked.partitions) - again
        self.take(RevocationDone(revoked.number))

    def grow(self, counts: Mapping[str, int]) -> None:
        """The shell has looked at the topics."""
        self.take(CountsRead(dict(counts)))

    def _answer(self) -> Answer:
        """Where an answer goes, unless the connection breaks or something else is asked."""
        self._request += 1
        of_members = [
            event for event in self.inbox if isinstance(event, DescribeAnswered | LeaveAnswered)
        ]
        self.inbox = deque(of_members)
        request = self._request

        def arrive(event: Event) -> None:
            if request == self._request:
                self.inbox.append(event)

        return arrive

    def _do(self, effect: Effect) -> None:
        match effect:
            case SendJoin():
                self.group.join(effect.member_id, self.name, effect.metadata, self._answer())
            case SendSync():
                answer = self._answer()
                self.group.sync(effect.member_id, effect.generation, effect.assignments, answer)
            case ReadCounts():
                known = self.group.counts
                self._answer()(CountsRead({t: known[t] for t in effect.topics if t in known}))
            case SendDescribe():
                self.inbox.append(self.group.describe())
            case SendLeave():
                self.group.remove(self.name)
                self.inbox.append(LeaveAnswered())
            case Publish():
                self._hear(effect.change)
            case Fail():
                self.failure = effect.failure
            case ForgetCoordinator():
                pass

    def _hear(self, change: Change) -> None:
        self.told.append(change)
        match change:
            case PartitionsAssigned():
                self.working |= set(change.partitions)
            case PartitionsRevoked():
                self.callbacks.append(change)
            case PartitionsLost():
                self.working.clear()
            case _:
                pass
