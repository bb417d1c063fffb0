"""What the coordinator asks of the rest of a broker.

Who lives, which topics there are, and what was chosen for single groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakelog.coordinator.options import GroupOptions
from lakelog.groups.state import GroupSettings
from lakelog.model.ids import TopicId


class Brokers(Protocol):
    """The brokers of the cluster as one of them sees them."""

    @property
    def own_id(self) -> int:
        """Our own id: what members that we hold name as their holder."""

    def live(self) -> Sequence[int]:
        """The ids of the brokers whose sessions live; ours is always among them."""

    def alive_until_s(self) -> float:
        """Until then, on the monotonic clock, nobody else may hold that we are gone."""

    def ranked(self, key: str) -> Sequence[int]:
        """The live brokers in the order in which they answer for this key, its owner first."""


class TopicLookup(Protocol):
    """The topics that there are."""

    def topics(self) -> Mapping[str, tuple[TopicId, int]]:
        """By name: the topic's id and how many partitions it has; a change makes another map."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have this called whenever the topics changed."""


class GroupSettingsLookup(Protocol):
    """What was chosen for single groups."""

    def of(self, group_id: str) -> GroupSettings:
        """What is in effect for the group now; every heartbeat asks, so it must be a mere look."""


def default_settings(options: GroupOptions) -> GroupSettings:
    """What holds for every group that nobody chose anything for."""
    return GroupSettings(
        session_timeout_ms=options.consumer_session_timeout_ms,
        heartbeat_interval_ms=options.consumer_heartbeat_interval_ms,
        assignment_interval_ms=options.assignment_interval_ms,
    )


class EqualSettings:
    """A book in which all groups are alike."""

    def __init__(self, options: GroupOptions) -> None:
        self._settings = default_settings(options)

    def of(self, group_id: str) -> GroupSettings:
        """What the options say."""
        return self._settings


@dataclass(frozen=True, slots=True)
class Ports:
    """All of it together."""

    brokers: Brokers
    topics: TopicLookup
    settings: GroupSettingsLookup
