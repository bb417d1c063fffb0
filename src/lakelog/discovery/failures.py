"""What can go wrong with discovery, named for what the caller does next. Pure.

Rules: everything discovery raises on purpose is a `DiscoveryError`. One that is `is_fatal` ends the
node's membership: trying again cannot help until a human or the caller has changed something. The
others heal by themselves and are only reported. No text shows a password.
"""

# ruff: noqa: N818 - they are named for what happened, like every failure here

from typing import ClassVar

from lakelog.model.failures import Failure


class DiscoveryError(Failure):
    """The base of every failure of discovery."""

    is_fatal: ClassVar[bool] = True
    """Whether the node's membership ends with it."""


class ConfigError(DiscoveryError):
    """The configuration cannot work; the text says which field and why."""


class ConnectionFailed(DiscoveryError):
    """No broker, or no coordinator of the group, answers; it is tried again, later and later."""

    is_fatal = False


class SecurityError(DiscoveryError):
    """The cluster refuses these credentials or certificates, or forbids the group to this user."""


class TopicMissing(DiscoveryError):
    """A topic of the configuration does not exist: discovery makes none."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"there is no topic {self.topic!r}; discovery needs its partitions, create it first"


class Fenced(DiscoveryError):
    """Another process has joined with this node's id: one of the two must have another id."""

    def __init__(self, node_id: str) -> None:
        super().__init__(node_id)
        self.node_id = node_id

    def __str__(self) -> str:
        return (
            f"another process joined the group as node {self.node_id!r}, so this one is out: "
            "every node needs an id of its own"
        )


class GroupRefused(DiscoveryError):
    """The coordinator does not take this member into the group, and a repeat would not help."""

    def __init__(self, group_id: str, reason: str) -> None:
        super().__init__(group_id, reason)
        self.group_id = group_id
        self.reason = reason

    def __str__(self) -> str:
        return f"group {self.group_id!r} does not take this node: {self.reason}"


class PollTimeoutExceeded(DiscoveryError):
    """A callback ran longer than max_poll_interval: the node has left, and returns when it ends."""

    is_fatal = False


class NotRunning(DiscoveryError):
    """It was asked before `start` or after `stop`."""
