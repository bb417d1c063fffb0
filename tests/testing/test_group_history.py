"""Every check of what members heard finds what it is for, planted here, and nothing else."""

from dataclasses import replace

import pytest

from lakelog.groups.state import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    CommittedOffset,
    ConsumerGroup,
)
from lakelog.model.errors import ErrorCode
from lakelog.testing.group_history import (
    GroupHistory,
    GroupLogView,
    HeardAssignment,
    HeardCommit,
    HeardGeneration,
    HeardHeartbeat,
    Read,
    check_group_history,
)

PLACE = (b"t" * 16, 0)
TOLD = HeardGeneration("c", "g", "a", 1, 0.5, 2.0, roster=("a", "b"))
GIVEN = HeardAssignment("c", "g", "a", "a", 1, b"zero", frozenset({PLACE}), 2.0, 3.0)
BEATEN = HeardHeartbeat("c", "g", "a", 1, ErrorCode.NONE, 4.0, 4.1)
COMMITTED = HeardCommit("c", "g", "a", 1, PLACE, "x#1", ErrorCode.NONE, 5.0, 5.2)
READ = Read("c", "g", PLACE, "x#1", 6.0, 6.1)


def member(name: str, assignment: bytes) -> ClassicMember:
    return ClassicMember(name, None, "", "", 6_000, 6_000, (), 1, 0, assignment)


def group(generation: int, **assignments: bytes) -> ClassicGroup:
    members = {name: member(name, share) for name, share in assignments.items()}
    leader = next(iter(members), None)
    return ClassicGroup(
        "g", ClassicState.STABLE, generation, leader=leader, members=members, protocol_name="range"
    )


def log_view() -> GroupLogView:
    """Generation 1 of a (who leads) and b from 1 s on, generation 2 without a from 10 s on."""
    made = GroupLogView()
    first, second = group(1, a=b"zero", b=b"one"), group(2, b=b"zero")
    made.see_group("g", None, first, 1.0)
    made.see_group("g", first, second, 10.0)
    made.see_offsets("g", {}, {PLACE: CommittedOffset(7, 0, "x#1", 0, 1)}, 5.1)
    made.see_offsets(
        "g",
        {PLACE: CommittedOffset(7, 0, "x#1", 0, 1)},
        {PLACE: CommittedOffset(8, 0, "x#2", 0, 2)},
        7.0,
    )
    return made


def history(
    *heard: HeardGeneration | HeardAssignment | HeardHeartbeat | HeardCommit | Read,
) -> GroupHistory:
    return GroupHistory(
        told=[one for one in heard if isinstance(one, HeardGeneration)],
        given=[one for one in heard if isinstance(one, HeardAssignment)],
        beaten=[one for one in heard if isinstance(one, HeardHeartbeat)],
        committed=[one for one in heard if isinstance(one, HeardCommit)],
        read=[one for one in heard if isinstance(one, Read)],
    )


def test_what_is_right_is_found_right() -> None:
    heard = history(
        TOLD,
        GIVEN,
        replace(GIVEN, member="b", owner="b", assignment=b"one", places=frozenset()),
        BEATEN,
        replace(BEATEN, invoked_s=12.9, returned_s=13.5),
        replace(BEATEN, code=ErrorCode.UNKNOWN_MEMBER_ID, invoked_s=9.9, returned_s=10.1),
        replace(BEATEN, member="b", code=ErrorCode.ILLEGAL_GENERATION, returned_s=10.1),
        COMMITTED,
        replace(COMMITTED, token="x#9", code=None),
        replace(COMMITTED, token="x#8", code=ErrorCode.ILLEGAL_GENERATION),
        replace(COMMITTED, token="x#2", code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
        READ,
        replace(READ, token=None, invoked_s=5.0),
        replace(READ, token="x#2", returned_s=7.0),
    )
    assert check_group_history(heard, log_view()) == []


@pytest.mark.parametrize(
    ("letter", "wrong"),
    [
        ("P1", replace(GIVEN, member="b", owner="b")),
        ("P1", replace(GIVEN, generation=3)),
        ("P1", replace(TOLD, member="b")),
        ("P4", replace(TOLD, invoked_s=10.5, returned_s=11.0)),
        ("P4", replace(TOLD, generation=2, roster=None)),
        ("K6", replace(BEATEN, invoked_s=13.5, returned_s=13.6)),
        ("K6", replace(BEATEN, generation=2)),
        ("K6", replace(BEATEN, code=ErrorCode.UNKNOWN_MEMBER_ID)),
        ("K6", replace(BEATEN, code=ErrorCode.ILLEGAL_GENERATION)),
        ("P3", replace(COMMITTED, token="x#7")),
        ("P3", replace(COMMITTED, invoked_s=5.15)),
        ("P3", replace(COMMITTED, code=ErrorCode.UNKNOWN_MEMBER_ID)),
        ("P3", replace(READ, token=None)),
        ("P3", replace(READ, invoked_s=7.5, returned_s=8.0)),
        ("P3", replace(READ, token="x#2")),
    ],
)
def test_what_is_wrong_is_found(
    letter: str, wrong: HeardGeneration | HeardAssignment | HeardHeartbeat | HeardCommit | Read
) -> None:
    found = check_group_history(history(GIVEN, wrong), log_view())
    assert any(said.startswith(letter) for said in found), found


def test_a_commit_that_takes_effect_twice_is_found() -> None:
    made = log_view()
    before = {PLACE: CommittedOffset(8, 0, "x#2", 0, 2)}
    made.see_offsets("g", before, {PLACE: CommittedOffset(7, 0, "x#1", 0, 3)}, 9.0)
    assert check_group_history(history(COMMITTED), made)


def test_a_group_of_the_other_protocol_begins_its_generations_anew() -> None:
    made = log_view()
    empty = ClassicGroup("g", generation=3)
    made.see_group("g", group(2, b=b"zero"), empty, 20.0)
    made.see_group("g", empty, ConsumerGroup("g", 2, 2), 21.0)
    made.see_group("g", ConsumerGroup("g", 2, 2), group(1, c=b"zero"), 22.0)
    later = replace(GIVEN, client="d", member="c", owner="c", invoked_s=22.0, returned_s=23.0)
    assert check_group_history(history(GIVEN, later), made) == []
