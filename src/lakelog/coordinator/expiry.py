"""Which committed offsets nobody needs any more. Pure.

As in Kafka: an offset goes when it was not committed again for the time of retention and no live
member reads its topic; while a group is empty, the time begins when it became so, if that is later.
When a group became empty is nowhere written (no times are compared in `apply`), so each broker
counts from when it saw it: after a restart offsets stay longer, never shorter. Offsets of topics
that are gone go at once (K12).
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from lakelog.groups.routing import subscribed
from lakelog.groups.state import ClassicGroup, ClassicState, CommittedOffset, Group

Place = tuple[bytes, str, int]
"""A topic's id, its name ("" for a topic that is gone) and a partition."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What one look at all offsets goes by."""

    now_ms: int
    retention_ms: int
    names: Mapping[bytes, str]
    """The topics that there are: id -> name."""
    gone: Set[bytes]
    """The ids of topics that are not there, and were not when we looked last."""


def expired(
    group: Group,
    offsets: Mapping[tuple[bytes, int], CommittedOffset],
    moment: Moment,
    *,
    empty_for_ms: int,
) -> tuple[Place, ...]:
    """The offsets of the group to forget; `empty_for_ms` is how long we saw it without members."""
    is_due = _can_expire(group, moment, empty_for_ms=empty_for_ms)
    read = (subscribed(group) or frozenset()) if group.members else frozenset()
    cutoff_ms = moment.now_ms - moment.retention_ms
    found = []
    for (topic, partition), committed in offsets.items():
        name = moment.names.get(topic)
        if name is None:
            if topic in moment.gone:
                found.append((topic, "", partition))
        elif is_due and name not in read and committed.time_ms < cutoff_ms:
            found.append((topic, name, partition))
    return tuple(found)


def _can_expire(group: Group, moment: Moment, *, empty_for_ms: int) -> bool:
    """Whether offsets of this group may be forgotten for their age."""
    if not group.members:
        is_simple = isinstance(group, ClassicGroup) and not group.protocol_type
        return is_simple or empty_for_ms >= moment.retention_ms
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.STABLE and subscribed(group) is not None
    return True
