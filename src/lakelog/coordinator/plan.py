"""What a group's owner has to say about it: patterns, topics, targets. Pure.

Assignments and the meaning of patterns depend on topics, which are not in the group's domain; so
they are worked out here, once, and written as data (K7). It may take a while for a large group and
runs beside the loop: groups and the map of topics are values.
"""

from collections.abc import Mapping, Set

from lakelog.groups.consumer import (
    fingerprint,
    needs_target,
    subscribed,
    target_event,
    unresolved,
)
from lakelog.groups.events import Resolved, TargetAssignment, TopicsChanged
from lakelog.groups.patterns import PatternError, compile_pattern, matching
from lakelog.groups.state import ConsumerGroup
from lakelog.model.ids import INTERNAL_TOPICS, TopicId

Topics = Mapping[str, tuple[TopicId, int]]
"""By name: a topic's id and its number of partitions."""

OwnerEvent = Resolved | TargetAssignment | TopicsChanged
"""What only the owner of a group appends."""


def is_waiting(group: ConsumerGroup) -> bool:
    """Whether members wait for something that the owner has to say."""
    return needs_target(group) or bool(unresolved(group))


def is_concerned(group: ConsumerGroup, changed: Set[str]) -> bool:
    """Whether topics of these names, which changed, may matter to the group."""
    return bool(group.members) and (
        bool(group.resolved) or not changed.isdisjoint(subscribed(group))
    )


def owner_events(
    group: ConsumerGroup, topics: Topics, *, assignor_default: str
) -> tuple[OwnerEvent, ...]:
    """What is to be written now, in this order; nothing if all of it stands already.

    Patterns come first: a target that does not know them would have to be made again.
    """
    if not group.members:
        return ()
    resolutions = _resolutions(group, topics)
    if resolutions:
        return resolutions
    known = {name: topics[name] for name in sorted(subscribed(group)) if name in topics}
    if needs_target(group):
        return (target_event(group, topics=known, assignor_default=assignor_default),)
    seen = fingerprint(known)
    return () if seen == group.fingerprint else (TopicsChanged(group.group_id, seen),)


def _resolutions(group: ConsumerGroup, topics: Topics) -> tuple[Resolved, ...]:
    patterns = dict.fromkeys(member.pattern for member in group.members.values() if member.pattern)
    found = []
    for pattern in patterns:
        names = _matching(pattern, topics)
        if group.resolved.get(pattern) != names:
            found.append(Resolved(group.group_id, pattern, names))
    return tuple(found)


def _matching(pattern: str, topics: Topics) -> tuple[str, ...]:
    try:
        return matching(compile_pattern(pattern), topics.keys() - INTERNAL_TOPICS)
    except PatternError:
        # Another broker let it in; one that cannot read it finds nothing, and says so once.
        return ()
