"""K10: an event in parts is seen whole at its last part, by every replica, or not at all."""

import pytest
from tests.domain.build import Domain
from tests.domain.dump import dump_state
from tests.domain.test_checkpoint_model import checkpoint_of, reloaded

from lakelog.domain.envelope import DomainRecord, Stamp, encode_record
from lakelog.domain.events import Barrier, Genesis, GroupChange, Hello, Kind, Upgrade, needed_level
from lakelog.domain.machine import apply
from lakelog.domain.state import DomainState, Done, GroupApplied, Outcome
from lakelog.groups.events import CommitOffsets, GroupEventResult
from lakelog.groups.parts import PARTS_LEVEL, GroupPart, event_parts
from lakelog.model.errors import ErrorCode

TOPIC = b"t" * 16
TAKEN = GroupApplied(GroupEventResult(ErrorCode.NONE))
REFUSED = GroupApplied(GroupEventResult(ErrorCode.UNKNOWN_SERVER_ERROR))


def commit_of(offset: int, *, count: int = 50) -> CommitOffsets:
    offsets = tuple((TOPIC, partition, offset, -1, "") for partition in range(count))
    return CommitOffsets("g", "", None, -1, 9, 1_000, offsets)


def parts_of(offset: int, attempt: int = 1) -> tuple[GroupPart, ...]:
    parts = event_parts(commit_of(offset), bytes_max=400, attempt=attempt)
    assert len(parts) > 2
    return parts


class Parted(Domain):
    """A domain that knows parts."""

    def __init__(self, level: int = PARTS_LEVEL) -> None:
        super().__init__()
        self.add(Hello(level), writer="b")
        self.add(Upgrade(level))

    def tell(self, *parts: GroupPart, writer: str = "a") -> list[Outcome]:
        return [self.add(part, writer=writer).outcomes[0] for part in parts]

    def offsets(self) -> set[int]:
        return {found.offset for found in self.state.groups.offsets.get("g", {}).values()}


def test_an_event_in_parts_is_seen_with_its_last_part_and_not_before() -> None:
    domain = Parted()
    *first, last = parts_of(7)
    assert domain.tell(*first) == [Done()] * len(first)
    assert domain.state.groups.groups == {}
    assert domain.tell(last) == [TAKEN]
    assert domain.offsets() == {7}
    assert len(domain.state.groups.offsets["g"]) == 50
    assert domain.state.parts == {}
    whole = Parted()
    for _ in first:
        whole.add(Barrier())
    assert whole.add(GroupChange(commit_of(7))).outcomes == (TAKEN,)
    assert dump_state(whole.state) == dump_state(domain.state)


def test_parts_of_different_events_never_mix() -> None:
    domain = Parted()
    old, new = parts_of(1, attempt=1), parts_of(2, attempt=2)
    domain.tell(old[0])
    assert domain.tell(new[1]) == [REFUSED]
    assert domain.tell(old[1]) == [REFUSED]  # what it had begun is gone
    domain.tell(*old[:2])
    assert domain.tell(*new)[-1] == TAKEN
    assert domain.offsets() == {2}


def test_two_writers_at_once_do_not_disturb_each_other() -> None:
    domain = Parted()
    for one, two in zip(parts_of(1), parts_of(2), strict=True):
        domain.tell(one)
        domain.tell(two, writer="b")
    assert domain.offsets() == {2}
    assert domain.state.parts == {}


def test_a_part_that_comes_twice_or_out_of_turn_is_refused() -> None:
    domain = Parted()
    parts = parts_of(3)
    domain.tell(parts[0], parts[1])
    assert domain.tell(parts[1]) == [REFUSED]
    assert domain.tell(parts[2]) == [REFUSED]
    assert domain.tell(*parts)[-1] == TAKEN


def test_a_new_incarnation_drops_what_the_old_one_began() -> None:
    domain = Parted()
    parts = parts_of(3)
    domain.tell(*parts[:2])
    domain.add(Hello(PARTS_LEVEL), incarnation=2)
    assert domain.state.parts == {}


def test_bytes_that_are_no_event_are_refused_when_all_are_there() -> None:
    domain = Parted()
    assert domain.tell(GroupPart("g", 1, 0, 2, b"\x93"), GroupPart("g", 1, 1, 2, b"no")) == [
        Done(),
        REFUSED,
    ]
    assert domain.state.groups.groups == {}


def test_rule_12_parts_mean_nothing_below_their_level() -> None:
    domain = Parted(level=2)
    assert domain.tell(*parts_of(3)) == [REFUSED] * len(parts_of(3))
    assert domain.state.parts == {}
    assert needed_level([Kind.GROUP_PART, Kind.GROUP]) == PARTS_LEVEL


@pytest.mark.parametrize("after", range(1, 5))
def test_rule_13_a_state_reloaded_between_parts_goes_on_alike(after: int) -> None:
    domain = Parted()
    parts = parts_of(5)
    domain.tell(*parts[:after])
    state = reloaded(checkpoint_of(domain.state))
    assert dump_state(state) == dump_state(domain.state)
    for part in parts[after:]:
        domain.number += 1
        data = encode_record(DomainRecord("a", Stamp(1, domain.number), PARTS_LEVEL, (part,)))
        assert apply(state, data).outcomes == apply(domain.state, data).outcomes
    assert checkpoint_of(state) == checkpoint_of(domain.state)
    assert domain.offsets() == {5}


def test_a_frozen_state_keeps_its_parts() -> None:
    domain = Parted()
    parts = parts_of(5)
    domain.tell(parts[0])
    frozen = domain.state.frozen()
    domain.tell(*parts[1:])
    assert len(frozen.parts["a"].data) == 1


def test_a_log_of_an_older_level_holds_no_parts() -> None:
    state = DomainState()
    record = DomainRecord("a", Stamp(1, 1), 1, (Genesis("c", 0, 1), Hello(1)))
    apply(state, encode_record(record))
    assert b"parts" not in checkpoint_of(state)[0]
