"""Topic names: which are allowed, which collide, which are Kafka's own. Pure."""

import re
from typing import Final

from lakelog.model.ids import INTERNAL_TOPICS
from lakelog.topics.failures import InvalidTopic

LENGTH_MAX: Final = 249
INTERNAL: Final = INTERNAL_TOPICS
"""Names that clients take for the broker's own topics; they are never made by accident."""

CLUSTER_METADATA: Final = "__cluster_metadata"
"""A name that Kafka lets nobody create."""

_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+")
_COLLIDING: Final = re.compile(r"[._]")


def fault(name: str) -> str | None:
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


def check(name: str) -> None:
    """Raise `InvalidTopic` unless the name is allowed."""
    found = fault(name)
    if found is not None:
        raise InvalidTopic(f"Topic name is invalid: {found}")


def unified(name: str) -> str:
    """The same for all names that differ only in `.` and `_`: metric names cannot hold a dot."""
    return name.replace(".", "_")


def can_collide(name: str) -> bool:
    """Whether another name can have the same unified form."""
    return _COLLIDING.search(name) is not None


def collision_prefix(name: str) -> str:
    """What every name that collides with this one begins with."""
    found = _COLLIDING.search(name)
    return name if found is None else name[: found.start()]
