"""What the coordinator is given: its limits and times, and what it asks of the rest of a broker.

Who lives, which topics there are, and what was chosen for single groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from lakelog.groups.assignors import ASSIGNORS
from lakelog.groups.state import GroupSettings
from lakelog.model.ids import TopicId


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How groups are coordinated. The defaults are Kafka's, unless a line says otherwise."""

    session_timeout_min_ms: int = 6_000
    """The least session that a member of a classic group may ask for."""

    session_timeout_max_ms: int = 1_800_000
    """The greatest session that a member of a classic group may ask for."""

    members_max: int = 2_147_483_647
    """How many members a classic group may have."""

    initial_rebalance_delay_ms: int = 3_000
    """How long the first generation of a group waits for more members."""

    consumer_session_timeout_ms: int = 45_000
    """How long a member of a consumer group may be silent."""

    consumer_heartbeat_interval_ms: int = 5_000
    """How often members of consumer groups are told to say something."""

    consumer_members_max: int = 2_147_483_647
    """How many members a consumer group may have."""

    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors on offer; the first is used where the members name none."""

    assignment_interval_ms: int = 1_000
    """A group gets a new target at most this often; the first one comes at once."""

    offset_metadata_characters_max: int = 4_096
    """How long the text beside a committed offset may be."""

    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    """How long offsets stay that nobody commits again and no member reads by."""

    offsets_retention_check_ms: int = 600_000
    """How often we look for such offsets."""

    new_member_join_timeout_ms: int = 300_000
    """How long a new member may wait for its first generation."""

    patterns_refresh_ms: int = 600_000
    """How often every subscription is compared with the topics, whoever said what changed."""

    request_timeout_ms: int = 5_000
    """How long the log may take to take an event in; then the client hears 15 and asks again."""

    sync_part_bytes_max: int = 512 << 10
    """An assignment, or any event larger than a record, is written in parts of this size."""

    sync_bytes_max: int = 8 << 20
    """The greatest assignment of a whole group, and the greatest event of any other kind."""

    groups_max: int = 100_000
    """How many groups there may be. Kafka has no such limit; every broker here holds all of them,
    and a group of an invented name stays until its offsets expire."""

    group_bytes_max: int = 64 << 20
    """What one group with its committed offsets may take in the memory of a broker, about."""

    groups_bytes_max: int = 512 << 20
    """What all groups together may take in the memory of a broker, about."""

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ValueError("session_timeout_min_ms must not be above session_timeout_max_ms")
        unknown = [name for name in self.consumer_assignors if name not in ASSIGNORS]
        if unknown or not self.consumer_assignors:
            raise ValueError(f"consumer_assignors must be some of {', '.join(sorted(ASSIGNORS))}")


_AT_LEAST_ONE: Final = (
    "session_timeout_min_ms",
    "members_max",
    "consumer_session_timeout_ms",
    "consumer_heartbeat_interval_ms",
    "consumer_members_max",
    "offsets_retention_ms",
    "offsets_retention_check_ms",
    "new_member_join_timeout_ms",
    "patterns_refresh_ms",
    "request_timeout_ms",
    "sync_part_bytes_max",
    "sync_bytes_max",
    "groups_max",
    "group_bytes_max",
    "groups_bytes_max",
)
_NOT_NEGATIVE: Final = (
    "initial_rebalance_delay_ms",
    "assignment_interval_ms",
    "offset_metadata_characters_max",
)


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
