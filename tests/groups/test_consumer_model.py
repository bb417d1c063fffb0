"""Consumer groups under random sequences of everything: safe after every step, and then at rest.

Clients follow the protocol, lag behind, lose answers, crash and come back; brokers make targets,
old and new, good and odd ones; topics grow. `feed` checks P1, P4 and the bytes after every step,
this module that no client reads what the group thinks is another's (P1), and that only changes
raise the epoch (P5). In the end everybody is honest, and all is owned within a few rounds (P2).
"""

import re

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace
from tests.groups.consumer_build import (
    CLICKS,
    ORDERS,
    beat_of,
    check,
    feed,
    held,
    is_rebalance,
    join_of,
    shared,
    target_pairs,
)
from tests.groups.consumer_clients import Client
from tests.profiles import examples

from lakelog.groups.consumer import (
    ConsumerEvent,
    fingerprint,
    needs_target,
    state_name,
    subscribed,
    target_event,
    timers,
    unresolved,
)
from lakelog.groups.events import (
    Adopt,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Expire,
    GroupOutcome,
    Leave,
    Resolved,
    TimerExpired,
    TopicsChanged,
)
from lakelog.groups.state import ConsumerGroup
from lakelog.model.ids import TopicId

IDS: dict[str, TopicId] = {"clicks": CLICKS, "orders": ORDERS}
CLIENTS = 5
ROUNDS_MAX = 8
"""Join again, read otherwise, take the target; revoke, let go, be given; and two to spare."""
SETTINGS = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

some_client = st.integers(0, CLIENTS - 1)
some_reading = st.sampled_from(
    [
        (("orders",), ""),
        (("orders",), ""),
        (("clicks", "orders"), ""),
        (("clicks",), ""),
        ((), "o.*"),
        ((), ".*"),
        (("clicks",), "o.*"),
        ((), ""),
    ]
)


def is_change(before: ConsumerGroup, after: ConsumerGroup) -> bool:
    """Whether a member came or went, or reads otherwise."""
    return before.members.keys() != after.members.keys() or any(
        is_rebalance(before, before.members[member.member_id], member)
        for member in after.members.values()
    )


class Honest(RuleBasedStateMachine):
    """Clients that follow the protocol, in a world that does what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ConsumerGroup("group")
        self.counts = {"orders": 4, "clicks": 2}
        self.births = 0
        self.clients = [self.born(number) for number in range(CLIENTS)]
        self.late: list[ConsumerEvent] = []

    def born(self, number: int) -> Client:
        self.births += 1
        instance = f"instance-{number}" if number >= 3 else None
        return Client(f"member-{number}-{self.births}", instance, ("orders",))

    def topics(self) -> dict[str, tuple[TopicId, int]]:
        names = subscribed(self.group) & self.counts.keys()
        return {name: (IDS[name], self.counts[name]) for name in sorted(names)}

    def apply(self, event: ConsumerEvent) -> GroupOutcome:
        before = self.group
        self.group, outcome = feed(before, event)
        if before.epoch != self.group.epoch:
            is_told = isinstance(event, Resolved | TopicsChanged)
            assert is_told or is_change(before, self.group), "P5: a rebalance without a change"
        return outcome

    def adopting(self, event: ConsumerHeartbeat) -> ConsumerHeartbeat:
        """What a broker makes of a heartbeat of a member that another one holds (K4)."""
        member = self.group.members.get(event.member_id)
        if member is None or member.holder == event.holder:
            return event
        return replace(event, holder_epoch=member.holder_epoch)

    def send(self, client: Client, *, is_lost: bool) -> None:
        answer = self.apply(self.adopting(client.next_beat()))
        assert isinstance(answer, ConsumerHeartbeatResult)
        if not is_lost:
            client.hear(answer)

    @rule(number=some_client, is_lost=st.booleans(), is_lagging=st.booleans())
    def beat(self, number: int, is_lost: bool, is_lagging: bool) -> None:
        client = self.clients[number]
        if client.is_running:
            if not is_lagging:
                client.settle()
            self.send(client, is_lost=is_lost)

    @rule()
    def everybody_beats(self) -> None:
        for client in self.clients:
            if client.is_running:
                client.settle()
                self.send(client, is_lost=False)

    @rule(number=some_client, reading=some_reading)
    def read_otherwise(self, number: int, reading: tuple[tuple[str, ...], str]) -> None:
        self.clients[number].read(*reading)

    @rule(number=some_client, is_for_a_while=st.booleans())
    def leave(self, number: int, is_for_a_while: bool) -> None:
        client = self.clients[number]
        if client.is_running:
            client.stop()
            epoch = -2 if is_for_a_while else -1
            self.apply(beat_of(client.member_id, epoch, instance_id=client.instance_id))

    @rule(number=some_client)
    def crash(self, number: int) -> None:
        self.clients[number].stop()

    @rule(number=some_client)
    def restart(self, number: int) -> None:
        if not self.clients[number].is_running:
            self.clients[number] = self.born(number)

    @rule()
    def make_target(self) -> None:
        if self.group.members:
            self.late.append(self.computed())

    def computed(self) -> ConsumerEvent:
        return target_event(self.group, topics=self.topics(), assignor_default="uniform")

    @rule()
    def retarget(self) -> None:
        if self.group.members:
            self.apply(self.computed())

    @rule(picks=st.lists(st.integers(0, CLIENTS), min_size=12, max_size=12))
    def odd_target(self, picks: list[int]) -> None:
        """Any partition to any member, or to none, whoever reads it."""
        members = [*self.group.members, None]
        shares: dict[str, dict[bytes, tuple[int, ...]]] = {}
        places = [(ORDERS, number) for number in range(self.counts["orders"])]
        places += [(CLICKS, number) for number in range(self.counts["clicks"])]
        for (topic, number), pick in zip(places, picks, strict=False):
            member = members[pick % len(members)]
            if member is not None:
                share = shares.setdefault(member, {})
                share[topic] = (*share.get(topic, ()), number)
        self.apply(shared(self.group.epoch, shares))

    @rule()
    def deliver_late(self) -> None:
        if self.late:
            self.apply(self.late.pop(0))

    @rule()
    def resolve(self) -> None:
        for pattern in unresolved(self.group):
            self.apply(self.resolution(pattern))

    def resolution(self, pattern: str) -> Resolved:
        names = tuple(name for name in self.counts if re.fullmatch(pattern, name))
        return Resolved("group", pattern, names)

    @rule(name=st.sampled_from(["orders", "clicks"]))
    def grow(self, name: str) -> None:
        if self.counts[name] < 6:
            self.counts[name] += 1
            self.apply(TopicsChanged("group", fingerprint(self.topics())))

    @rule(number=some_client, is_stale=st.booleans())
    def expire(self, number: int, is_stale: bool) -> None:
        member = self.group.members.get(self.clients[number].member_id)
        if member is not None:
            epoch = member.holder_epoch - is_stale
            self.apply(Expire("group", member.member_id, epoch))

    @rule(number=some_client, holder=st.integers(1, 3))
    def adopt(self, number: int, holder: int) -> None:
        self.apply(Adopt("group", self.clients[number].member_id, holder))

    @rule(number=some_client)
    def remove(self, number: int) -> None:
        client = self.clients[number]
        self.apply(Leave("group", ((client.member_id, client.instance_id),)))

    @rule()
    def start_timers(self) -> None:
        self.late += [
            TimerExpired("group", timer.kind, timer.subject, timer.number)
            for timer in timers(self.group)
        ]

    @invariant()
    def what_clients_own_the_group_knows(self) -> None:
        for client in self.clients:
            member = self.group.members.get(client.member_id)
            if client.is_running and member is not None and not member.is_away:
                assert client.owned <= held(member), "P1"

    def teardown(self) -> None:
        """From here on nothing fails: everything is owned soon, and then nothing changes (P2)."""
        living = {client.member_id for client in self.clients if client.is_running}
        for member in list(self.group.members.values()):
            if member.member_id not in living:
                self.apply(Expire("group", member.member_id, member.holder_epoch))
        for number, client in enumerate(self.clients):
            if not client.is_running:
                self.clients[number] = self.born(number)
        for _ in range(ROUNDS_MAX):
            self.everybody_beats()
            self.resolve()
            self.tell_topics()
            if needs_target(self.group):
                self.apply(self.computed())
        self.everything_is_owned()

    def tell_topics(self) -> None:
        if not needs_target(self.group):
            self.apply(TopicsChanged("group", fingerprint(self.topics())))

    def everything_is_owned(self) -> None:
        assert state_name(self.group) == "Stable", "P2"
        wanted = {(topic, n) for topic, count in self.topics().values() for n in range(count)}
        owned = {(topic, n) for topic, here in self.group.owners.items() for n in here}
        assert owned == wanted, "P2"
        rested = self.group
        self.everybody_beats()
        assert self.group is rested, "P5: rest costs nothing"
        for client in self.clients:
            assert client.is_running
            assert client.owned == target_pairs(self.group, client.member_id), "P2"


class Hostile(Honest):
    """The same, with heartbeats that come twice, or late, or are made up."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[ConsumerHeartbeat] = []

    def send(self, client: Client, *, is_lost: bool) -> None:
        beat = self.adopting(client.next_beat())
        self.sent.append(beat)
        answer = self.apply(beat)
        assert isinstance(answer, ConsumerHeartbeatResult)
        if not is_lost:
            client.hear(answer)

    @rule(place=st.integers(0, 30))
    def repeat(self, place: int) -> None:
        if place < len(self.sent):
            self.apply(self.sent[-1 - place])

    @rule(
        number=some_client,
        epoch=st.integers(-3, 8),
        is_static=st.booleans(),
        partitions=st.one_of(st.none(), st.lists(st.integers(-1, 7), max_size=3)),
    )
    def make_up(
        self, number: int, epoch: int, is_static: bool, partitions: list[int] | None
    ) -> None:
        client = self.clients[number]
        owned = None if partitions is None else ((bytes(ORDERS), tuple(partitions)),)
        instance = f"instance-{(number + epoch) % CLIENTS}" if is_static else None
        self.apply(beat_of(client.member_id, epoch, instance_id=instance, owned=owned))

    @rule(number=st.integers(0, 2), instance=st.integers(0, CLIENTS))
    def come_as_another(self, number: int, instance: int) -> None:
        self.apply(join_of(f"stranger-{number}", instance_id=f"instance-{instance}"))

    @invariant()
    def what_clients_own_the_group_knows(self) -> None:
        """Not here: a repeat says for a client what it does not say itself."""
        check(self.group)

    def teardown(self) -> None:
        """Answers went to whom they were not meant for: clients tell everything once, and ask."""
        for client in self.clients:
            client.is_full = True
        super().teardown()


TestHonest = Honest.TestCase
TestHonest.settings = SETTINGS
TestHostile = Hostile.TestCase
TestHostile.settings = SETTINGS
