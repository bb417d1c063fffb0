"""Classic groups under random events, and under random timing of clients that behave."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.groups.classic_build import join_of, leave_of, sync_of
from tests.groups.classic_model import (
    PARTITIONS,
    GroupModel,
    Numbers,
    Share,
    assign,
    event_of,
)
from tests.profiles import examples

from lakelog.groups.classic import answer_join, answer_sync, judge_heartbeat
from lakelog.groups.events import Expire, GroupEventResult, JoinResult
from lakelog.groups.state import ClassicState
from lakelog.model.errors import ErrorCode

KINDS = (
    *("new", "static", "again", "again", "again", "sync", "sync", "part", "part", "leave"),
    *("expire", "adopt", "fire", "stale", "repeat", "wrong"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.tuples(*[st.integers(min_value=0, max_value=7)] * 3)),
    min_size=10,
    max_size=60,
)


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(min_value=0, max_value=4), STEPS)
def test_whatever_happens_the_invariants_hold_and_everybody_is_answered(
    count: int, steps: Sequence[tuple[str, Numbers]]
) -> None:
    model = GroupModel()
    for number in range(count):
        instance = f"instance-{number}" if number % 2 else None
        model.feed(join_of(model.mint(), instance=instance, delay_ms=3_000))
    model.fire()
    model.fire()
    for kind, numbers in steps:
        if kind == "fire":
            model.fire()
        else:
            model.feed(event_of(model, kind, numbers))
    model.settle()


@dataclass
class Client:
    """A member that does what clients do, one small step at a time."""

    model: GroupModel
    instance: str | None = None
    member_id: str = ""
    phase: str = "join"
    generation: int = -1
    share: bytes = b""

    def act(self) -> None:
        match self.phase:
            case "join":
                self.join()
            case "joining":
                self.hear_join()
            case "sync":
                self.sync()
            case "syncing":
                self.hear_sync()
            case _:
                self.beat()

    def join(self) -> None:
        is_new = not self.member_id
        self.member_id = self.member_id or self.model.mint()
        outcome = self.model.feed(
            join_of(self.member_id, is_new=is_new, instance=self.instance, delay_ms=3_000)
        )
        assert isinstance(outcome, JoinResult)
        assert outcome.code is ErrorCode.NONE
        self.phase = "joining"

    def hear_join(self) -> None:
        answer = answer_join(self.model.group, self.member_id, instance_id=self.instance)
        if answer is not None:
            self.generation = answer.generation
            self.turn(answer.code, "sync")

    def sync(self) -> None:
        group = self.model.group
        is_leader = self.member_id == group.leader
        given = assign(group, attempt=2) if is_leader and group.members else None
        outcome = self.model.feed(
            sync_of(self.member_id, self.generation, given, instance=self.instance)
        )
        assert isinstance(outcome, GroupEventResult)
        self.turn(outcome.code, "syncing")

    def hear_sync(self) -> None:
        answer = answer_sync(
            self.model.group,
            self.member_id,
            generation=self.generation,
            instance_id=self.instance,
        )
        if answer is not None:
            self.share = answer.assignment
            self.turn(answer.code, "stable")

    def beat(self) -> None:
        code = judge_heartbeat(
            self.model.group,
            member_id=self.member_id,
            instance_id=self.instance,
            generation=self.generation,
        )
        self.turn(code, "stable")

    def turn(self, code: ErrorCode, onward: str) -> None:
        assert code is not ErrorCode.FENCED_INSTANCE_ID
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.phase = onward if code is ErrorCode.NONE else "join"


class Crowd:
    """Clients that take turns in a given order."""

    def __init__(self) -> None:
        self.model = GroupModel()
        self.clients: list[Client] = []
        self.made = 0

    def change(self, kind: str, number: int) -> None:
        """One change of the membership."""
        if kind == "come" or not self.clients:
            self.made += 1
            instance = f"instance-{self.made}" if number % 2 else None
            self.clients.append(Client(self.model, instance))
            return
        client = self.clients[number % len(self.clients)]
        if kind == "restart" and client.instance is not None:
            self.clients.remove(client)
            self.clients.append(Client(self.model, client.instance))
            return
        self.clients.remove(client)
        # One that restarts and goes before it is back leaves the member that it was.
        group = self.model.group
        member_id = client.member_id or group.instances.get(client.instance or "", "")
        member = group.members.get(member_id)
        if member is None:
            return
        if kind == "die":
            self.model.feed(Expire("group", member.member_id, member.holder_epoch))
        else:
            self.model.feed(leave_of((member.member_id, None)))

    def run(self, order: Sequence[int]) -> None:
        """Let clients act in this order, some answers lost, then fairly until all are at rest."""
        for number in order:
            if self.clients:
                client = self.clients[number % len(self.clients)]
                if number >= 30 and client.phase == "sync":
                    client.phase = "join"  # The answer was lost: it asks again as it is.
                client.act()
        for _ in range(10):
            for client in self.clients:
                client.act()
            if self.is_waiting():
                self.model.fire()

    def is_waiting(self) -> bool:
        """Whether only the initial delay is waited for."""
        group = self.model.group
        return group.initial_left_ms >= 0 and group.joined_count == len(self.clients)

    def check_rest(self) -> None:
        group = self.model.group
        if not self.clients:
            assert group.state is ClassicState.EMPTY
            return
        assert group.state is ClassicState.STABLE
        assert {client.member_id for client in self.clients} == group.members.keys()
        assert {client.phase for client in self.clients} == {"stable"}
        shares = [client.share for client in self.clients if client.share]
        decoded = [msgspec.msgpack.decode(share, type=Share) for share in shares]
        owned = sorted(partition for share in decoded for partition in share.partitions)
        assert owned == list(range(PARTITIONS))


CHANGES = st.tuples(
    st.sampled_from(("come", "come", "leave", "die", "restart")),
    st.integers(min_value=0, max_value=7),
    st.lists(st.integers(min_value=0, max_value=40), max_size=12),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(min_value=0, max_value=5), st.lists(CHANGES, max_size=6))
def test_a_membership_change_costs_at_most_two_generations(
    count: int, changes: list[tuple[str, int, list[int]]]
) -> None:
    crowd = Crowd()
    for number in range(count):
        crowd.change("come", number)
    crowd.run([])
    crowd.check_rest()
    for kind, number, order in changes:
        before = crowd.model.group.generation
        crowd.change(kind, number)
        crowd.run(order)
        note(f"{kind}: generation {before} to {crowd.model.group.generation}")
        crowd.check_rest()
        assert crowd.model.group.generation - before <= 2


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(min_value=1, max_value=5), st.lists(CHANGES, max_size=6))
def test_changes_in_the_middle_of_rebalances_cost_at_most_two_generations_each(
    count: int, changes: list[tuple[str, int, list[int]]]
) -> None:
    crowd = Crowd()
    for number in range(count):
        crowd.change("come", number)
    crowd.run([])
    before = crowd.model.group.generation
    for kind, number, order in changes:
        crowd.change(kind, number)
        for place in order:
            if crowd.clients:
                crowd.clients[place % len(crowd.clients)].act()
    crowd.run([])
    crowd.check_rest()
    assert crowd.model.group.generation - before <= 2 * len(changes)
