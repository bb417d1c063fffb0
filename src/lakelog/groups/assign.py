"""Server-side assignors of the consumer protocol (KIP-848), by name. Pure.

An assignor is a function of the members, of what they have, and of the numbers of partitions. It is
called once per group epoch, off the loop, and its answer is data in the log: two versions of
this code never have to agree. Each partition of a topic that anybody reads goes to exactly one of
its readers; topics whose number of partitions is not known are left out.
"""

from typing import Final

from lakelog.groups.assign_range import assign_range
from lakelog.groups.assign_uniform import assign_uniform
from lakelog.groups.assign_values import Assignment, Assignor, Subscriber

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "Assignment", "Assignor", "Subscriber"]

DEFAULT_ASSIGNOR: Final = "uniform"
"""What a group gets whose members ask for no assignor."""

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors that a member may ask for by name; another name is refused."""
