"""Why a change of a topic is refused, and which topic names are. Pure.

Each kind of failure carries the code that a client gets. Of names it is said which are allowed,
which collide, and which are Kafka's own.
"""

import re
from typing import ClassVar, Final

from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.model.ids import INTERNAL_TOPICS


class TopicFailure(Failure):
    """A change that cannot be made as asked; the text is for the person who asked."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class TopicExists(TopicFailure):
    """A topic of that name is there already."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class NoSuchTopic(TopicFailure):
    """There is no such topic, or it is another one than was meant."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidTopic(TopicFailure):
    """The name is not allowed, or differs from another topic's only in `.` and `_`."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidPartitions(TopicFailure):
    """The number of partitions makes no sense."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplication(TopicFailure):
    """The replication factor makes no sense."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidAssignment(TopicFailure):
    """A manual assignment names brokers or partitions that it must not."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(TopicFailure):
    """A config is unknown, malformed, out of bounds, or one that Lakelog cannot honour."""

    code = ErrorCode.INVALID_CONFIG


class InvalidChange(TopicFailure):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class TooLarge(TopicFailure):
    """The request is well-formed, but larger than this cluster allows."""

    code = ErrorCode.POLICY_VIOLATION


LENGTH_MAX: Final = 249
INTERNAL: Final = INTERNAL_TOPICS
"""Names that clients take for the broker's own topics; they are never made by accident."""

CLUSTER_METADATA: Final = "__cluster_metadata"
"""A name that Kafka lets nobody create."""

_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+")
_COLLIDING: Final = re.compile(r"[._]")


def name_fault(name: str) -> str | None:
    """What is wrong with the name, in Kafka's words, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"
    if _ALLOWED.fullmatch(name) is None:
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'"
        )
    return None


def check_name(name: str) -> None:
    """Raise `InvalidTopic` unless the name is allowed."""
    found = name_fault(name)
    if found is not None:
        raise InvalidTopic(f"Topic name is invalid: {found}")


def unified_name(name: str) -> str:
    """The same for all names that differ only in `.` and `_`: metric names cannot hold a dot."""
    return name.replace(".", "_")


def can_collide(name: str) -> bool:
    """Whether another name can have the same unified form."""
    return _COLLIDING.search(name) is not None


def collision_prefix(name: str) -> str:
    """What every name that collides with this one begins with."""
    found = _COLLIDING.search(name)
    return name if found is None else name[: found.start()]
