"""What a group's owner says: patterns first, then targets, then that topics changed."""

from msgspec.structs import replace

from lakelog.coordinator.owner import is_concerned, is_waiting, owner_events
from lakelog.groups.consumer import step
from lakelog.groups.events import ConsumerHeartbeat, Resolved, TargetAssignment, TopicsChanged
from lakelog.groups.state import ConsumerGroup
from lakelog.model.ids import TopicId

TOPICS = {
    "a": (TopicId(b"a" * 16), 3),
    "b": (TopicId(b"b" * 16), 2),
    "other": (TopicId(b"o" * 16), 9),
}
JOIN = ConsumerHeartbeat(
    "g", "m", 0, None, None, 60_000, ("a",), None, None, (), "c", "/h", 45_000, 1, 100
)


def told(group: ConsumerGroup, topics: dict[str, tuple[TopicId, int]]) -> ConsumerGroup:
    """The group after everything that its owner has to say."""
    for _ in range(10):
        events = owner_events(group, topics, assignor_default="uniform")
        if not events:
            return group
        for event in events:
            group, _ = step(group, event)
    raise AssertionError("the owner never comes to an end")


def joined(**changes: object) -> ConsumerGroup:
    return step(ConsumerGroup("g"), replace(JOIN, **changes))[0]


def test_a_new_group_needs_a_target_and_then_nothing() -> None:
    group = joined()
    assert is_waiting(group)
    (target,) = owner_events(group, TOPICS, assignor_default="range")
    assert isinstance(target, TargetAssignment)
    assert target.assignor == "range"
    assert target.shares == (("m", ((0, (0, 1, 2)),)),)
    after = told(group, TOPICS)
    assert not is_waiting(after)


def test_patterns_are_resolved_before_a_target_is_made() -> None:
    group = joined(names=None, pattern="a|b")
    (resolved,) = owner_events(group, TOPICS, assignor_default="uniform")
    assert resolved == Resolved("g", "a|b", ("a", "b"))
    after = told(group, TOPICS)
    assert set(after.target["m"]) == {b"a" * 16, b"b" * 16}


def test_topics_that_came_or_grew_are_told_and_lead_to_a_new_target() -> None:
    group = told(joined(), TOPICS)
    grown = {**TOPICS, "a": (TOPICS["a"][0], 5)}
    (changed,) = owner_events(group, grown, assignor_default="uniform")
    assert isinstance(changed, TopicsChanged)
    after = told(group, grown)
    assert after.epoch == group.epoch + 1
    assert after.target["m"][b"a" * 16] == (0, 1, 2, 3, 4)


def test_a_new_topic_that_a_pattern_matches_is_read() -> None:
    group = told(joined(names=None, pattern="a|n.*"), TOPICS)
    after = told(group, {**TOPICS, "new": (TopicId(b"n" * 16), 1)})
    assert set(after.target["m"]) == {b"a" * 16, b"n" * 16}


def test_topics_that_nobody_reads_change_nothing() -> None:
    group = told(joined(), TOPICS)
    assert owner_events(group, {**TOPICS, "x": TOPICS["b"]}, assignor_default="uniform") == ()


def test_a_group_without_members_needs_nothing() -> None:
    group = told(joined(), TOPICS)
    left = step(group, replace(JOIN, member_epoch=-1))[0]
    assert not left.members
    assert owner_events(left, {}, assignor_default="uniform") == ()


def test_only_what_a_group_reads_concerns_it_unless_it_has_patterns() -> None:
    group = told(joined(), TOPICS)
    assert is_concerned(group, {"a"})
    assert not is_concerned(group, {"other"})
    assert is_concerned(told(joined(names=None, pattern="a"), TOPICS), {"other"})


def test_a_pattern_that_we_cannot_read_matches_nothing_and_is_said_once() -> None:
    group = joined(names=None, pattern="a(")
    (resolved,) = owner_events(group, TOPICS, assignor_default="uniform")
    assert resolved == Resolved("g", "a(", ())
    assert not is_waiting(told(group, TOPICS))
