"""Targets of consumer groups: how they are made, for which epoch, and which are refused."""

import msgspec
import pytest
from tests.groups.consumer_build import (
    CLICKS,
    ORDERS,
    TOPICS,
    beat_of,
    fed,
    feed,
    join_of,
    retargeted,
    shared,
    stable,
)

from lakelog.groups.consumer import fingerprint, preferred_assignor, target_event
from lakelog.groups.events import GroupEventResult, Resolved, TargetAssignment
from lakelog.groups.state import ConsumerGroup
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import TopicId


def test_k7_a_target_is_taken_in_only_for_the_present_epoch_and_once() -> None:
    stale = GroupEventResult(ErrorCode.ILLEGAL_GENERATION)
    group = fed(stable("a"), join_of("b"))
    late = target_event(group, topics=TOPICS, assignor_default="uniform")
    newer = fed(group, join_of("c"))
    assert feed(newer, late) == (newer, stale)
    taken, outcome = feed(group, late)
    assert outcome == GroupEventResult(ErrorCode.NONE)
    assert (taken.target_epoch, taken.fingerprint) == (3, fingerprint(TOPICS))
    assert feed(taken, late) == (taken, stale)
    assert feed(ConsumerGroup("group"), shared(1, {}))[1] == stale


def test_a_target_gives_each_member_what_it_reads() -> None:
    group = fed(ConsumerGroup("group"), join_of("a"), join_of("b", names=("clicks",)))
    event = target_event(group, topics=TOPICS, assignor_default="uniform")
    assert event.topics == (ORDERS, CLICKS)
    assert event.names == ("orders", "clicks")
    assert dict(event.shares) == {"a": ((0, (0, 1, 2, 3)),), "b": ((1, (0, 1)),)}
    assert fed(group, event).topic_names == {ORDERS: "orders", CLICKS: "clicks"}


def test_a_target_gives_what_patterns_match_and_leaves_out_topics_that_are_not() -> None:
    group = fed(
        ConsumerGroup("group"),
        join_of("a", pattern="c.*", names=("nothing",)),
        Resolved("group", "c.*", ("clicks", "gone")),
    )
    event = target_event(group, topics=TOPICS, assignor_default="uniform")
    assert (event.topics, event.names) == ((CLICKS,), ("clicks",))


def test_a_target_begins_with_the_present_one() -> None:
    group = stable("a", "b")
    owned = {member: group.target[member][ORDERS] for member in ("a", "b")}
    group = retargeted(fed(group, join_of("c", names=("clicks",))), TOPICS)
    assert {member: group.target[member][ORDERS] for member in ("a", "b")} == owned


@pytest.mark.parametrize(
    ("chosen", "preferred"),
    [
        ([None, None], "uniform"),
        (["range", None, None], "range"),
        (["range", "uniform"], "uniform"),
        (["range", "range", "uniform"], "range"),
        (["unheard of", None], "uniform"),
    ],
)
def test_row_94_most_of_those_who_chose_an_assignor_decide(
    chosen: list[str | None], preferred: str
) -> None:
    group = ConsumerGroup("group")
    for number, assignor in enumerate(chosen):
        group = fed(group, join_of(f"m{number}", assignor=assignor))
    assert preferred_assignor(group, "uniform") == preferred
    event = target_event(group, topics=TOPICS, assignor_default="uniform")
    assert event.assignor == preferred
    assert fed(group, event).assignor == preferred


def test_row_94_another_assignor_counts_from_the_next_target_on() -> None:
    group = stable("a")
    told = fed(group, beat_of("a", 2, assignor="range"))
    assert (told.epoch, told.assignor) == (group.epoch, "uniform")
    assert retargeted(fed(told, join_of("b")), TOPICS).assignor == "range"


GOOD = shared(3, {"a": {ORDERS: (0, 1)}, "b": {ORDERS: (2, 3)}})


@pytest.mark.parametrize(
    "bad",
    [
        msgspec.structs.replace(GOOD, shares=(("x", ((0, (0,)),)),)),
        msgspec.structs.replace(GOOD, shares=(("a", ((2, (0,)),)),)),
        msgspec.structs.replace(GOOD, shares=(("a", ((-1, (0,)),)),)),
        msgspec.structs.replace(GOOD, shares=(("a", ((0, (0,)),)), ("b", ((0, (0,)),)))),
        msgspec.structs.replace(GOOD, shares=(("a", ((0, (0,)),)), ("a", ((0, (1,)),)))),
        msgspec.structs.replace(GOOD, shares=(("a", ((0, (0,)), (0, (1,)))),)),
        msgspec.structs.replace(GOOD, topics=(ORDERS, ORDERS)),
        msgspec.structs.replace(GOOD, names=("orders",)),
    ],
)
def test_rule_10_a_target_that_makes_no_sense_is_refused_whole(bad: TargetAssignment) -> None:
    group = fed(stable("a"), join_of("b"))
    assert feed(group, bad) == (group, GroupEventResult(ErrorCode.INVALID_REQUEST))
    assert feed(group, GOOD)[1] == GroupEventResult(ErrorCode.NONE)


def test_a_target_without_names_is_believed_whatever_members_read() -> None:
    group = fed(stable("a"), join_of("b"))
    nameless = msgspec.structs.replace(GOOD, names=())
    assert fed(group, nameless).topic_names == {}


def test_a_fingerprint_stands_for_names_ids_and_counts_and_not_for_their_order() -> None:
    assert fingerprint(TOPICS) == fingerprint(dict(sorted(TOPICS.items())))
    others: list[dict[str, tuple[TopicId, int]]] = [
        {},
        {"orders": (ORDERS, 4)},
        {"orders": (ORDERS, 5), "clicks": (CLICKS, 2)},
        {"orders": (TopicId(bytes(16)), 4), "clicks": (CLICKS, 2)},
        {"order": (ORDERS, 4), "clicks": (CLICKS, 2)},
    ]
    found = {fingerprint(topics) for topics in (TOPICS, *others)}
    assert len(found) == 6
    assert all(0 <= number < 1 << 63 for number in found)
    assert fingerprint({}) == ConsumerGroup("group").fingerprint


def test_a_fingerprint_is_the_same_in_every_version() -> None:
    assert fingerprint({"orders": (ORDERS, 4)}) == 3596723820816401113
