"""What can be chosen for a single consumer group. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The times of a consumer group that are in effect."""

    session_timeout_ms: int
    """How long a member may be silent."""

    heartbeat_interval_ms: int
    """How often members are told to say something."""

    assignment_interval_ms: int
    """The group gets a new target at most this often."""
