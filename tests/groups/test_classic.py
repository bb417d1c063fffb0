"""What is read from a classic group: heartbeats, the right to commit, timers, topics; and speed."""

import time

import msgspec
from tests.groups.classic_build import (
    commit_of,
    feed,
    fire,
    join_of,
    joined,
    stable,
    sync_of,
)

from lakelog.groups.classic import (
    answer_join,
    judge_commit,
    judge_heartbeat,
    step,
    subscribed,
    timers,
)
from lakelog.groups.state import ClassicGroup, ClassicState, ConsumerGroup, Group
from lakelog.model.errors import ErrorCode

NONE, UNKNOWN, FENCED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)
REBALANCING, ILLEGAL = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION


def beat(
    group: Group | None, member_id: str, generation: int, instance: str | None = None
) -> ErrorCode:
    return judge_heartbeat(group, member_id=member_id, instance_id=instance, generation=generation)


def test_row_35_a_heartbeat_to_no_group_or_an_empty_one_is_of_an_unknown_member() -> None:
    empty = fire(joined(join_of("a")))
    assert empty.state is ClassicState.EMPTY
    for group in (None, ConsumerGroup("group"), ClassicGroup("group"), empty):
        assert beat(group, "a", 1) is UNKNOWN


def test_row_35_heartbeats_are_fine_in_completing_and_stable_and_not_in_preparing() -> None:
    group = joined(join_of("a"), join_of("b"))
    assert beat(group, "a", 2) is NONE
    assert beat(stable(join_of("a")), "a", 1) is NONE
    preparing = feed(group, join_of("c"))
    assert beat(preparing, "a", 2) is REBALANCING
    assert beat(preparing, "c", -1) is ILLEGAL


def test_row_35_a_heartbeat_says_what_is_wrong_with_the_member_before_the_generation() -> None:
    group = feed(stable(join_of("a"), join_of("b", instance="one")), join_of("b2", instance="one"))
    assert beat(group, "b", 0, "one") is FENCED
    assert beat(group, "b", 0) is UNKNOWN
    assert beat(group, "b2", 0, "two") is UNKNOWN
    assert beat(group, "b2", 1, "one") is ILLEGAL
    assert beat(group, "b2", 2, "one") is NONE


def test_row_36_without_a_generation_offsets_are_committed_to_an_empty_group_only() -> None:
    group = stable(join_of("a"))
    assert judge_commit(ClassicGroup("group"), commit_of("", -1)) is NONE
    assert judge_commit(ClassicGroup("group"), commit_of("ghost", -1)) is NONE
    assert judge_commit(group, commit_of("", -1)) is UNKNOWN
    assert judge_commit(group, commit_of("a", -1)) is ILLEGAL
    assert judge_commit(ClassicGroup("group"), commit_of("a", 0)) is UNKNOWN


def test_row_36_a_member_commits_in_its_generation_but_not_before_its_assignment() -> None:
    group = joined(join_of("a"), join_of("b"))
    assert judge_commit(group, commit_of("a", 2)) is REBALANCING
    assert judge_commit(group, commit_of("a", 1)) is ILLEGAL
    assert judge_commit(group, commit_of("ghost", 2)) is UNKNOWN
    group = feed(group, sync_of("a", 2), sync_of("b", 2))
    assert judge_commit(group, commit_of("a", 2)) is NONE
    assert judge_commit(feed(group, join_of("c")), commit_of("a", 2)) is NONE


def test_row_36_a_commit_under_a_replaced_id_is_fenced() -> None:
    group = feed(stable(join_of("a"), join_of("b", instance="one")), join_of("b2", instance="one"))
    assert judge_commit(group, commit_of("b", 2, "one")) is FENCED
    assert judge_commit(group, commit_of("", -1, "two")) is UNKNOWN
    assert judge_commit(group, commit_of("b2", 2, "one")) is NONE


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x03" + len(topics).to_bytes(4, "big") + names


def test_the_topics_of_a_consumer_group_are_those_of_the_chosen_protocol() -> None:
    group = joined(
        join_of("a", protocols=(("range", subscription("x", "y")), ("z", subscription("z")))),
        join_of("b", protocols=(("range", subscription("w")),)),
    )
    assert subscribed(group) == frozenset({"w", "x", "y"})
    assert subscribed(fire(group)) == frozenset()


def test_the_topics_are_not_known_of_other_programs_odd_bytes_and_before_a_protocol() -> None:
    good = (("range", subscription("x")),)
    assert subscribed(joined(join_of("a", protocols=good, protocol_type="connect"))) is None
    odd = joined(join_of("a", protocols=good), join_of("b", protocols=(("range", b"\x01"),)))
    assert subscribed(odd) is None
    early = feed(ClassicGroup("group"), join_of("a", protocols=good, delay_ms=3_000))
    assert subscribed(early) is None


def test_a_thousand_members_join_and_sync_within_a_second() -> None:
    names = [f"member-{number}" for number in range(1_000)]
    group = ClassicGroup("group")
    began = time.process_time()
    for name in names:
        group = feed(group, join_of(name, delay_ms=3_000, rebalance_ms=300_000))
    group = fire(fire(group))
    answers = [answer_join(group, name) for name in names]
    given = dict.fromkeys(names, b"x" * 100)
    for name in reversed(names):
        group = feed(group, sync_of(name, 1, given if name == group.leader else None))
    spent_s = time.process_time() - began
    assert all(answer is not None for answer in answers)
    assert (group.state, timers(group)) == (ClassicState.STABLE, ())
    assert spent_s < 1.0


def test_a_group_is_the_same_after_a_checkpoint() -> None:
    for group in (ClassicGroup("group"), stable(join_of("a"), join_of("b", instance="one"))):
        data = msgspec.msgpack.encode(group)
        restored = msgspec.msgpack.decode(data, type=ClassicGroup)
        assert restored == group
        assert msgspec.msgpack.encode(step(restored, join_of("c"))[0]) == msgspec.msgpack.encode(
            step(group, join_of("c"))[0]
        )
