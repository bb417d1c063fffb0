"""A domain's level is raised when somebody needs what it brings, and every broker knows it.

Rule 12: a broker that does not know a level stops the domain at the record that raises it. So the
brokers that have a session are asked for first, then the domain is proved current: each of them
said in its Hello what it supports. One that has a session but no Hello yet is waited for.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from lakelog.clock import Clock
from lakelog.domain.events import Upgrade
from lakelog.domain.replica import Replica
from lakelog.model.failures import Unavailable

Registered: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""The names under which the brokers that have a session write, read now."""


async def raise_level(replica: Replica, level: int, registered: Registered, clock: Clock) -> None:
    """Return when the domain is at that level; `Unavailable` names who does not support it."""
    if replica.state.level >= level:
        return
    names = await registered()
    await replica.prove(arrived_s=clock.monotonic_s())
    supported = replica.state.supported
    lacking = [name for name in names if supported.get(name, 0) < level]
    if lacking:
        raise Unavailable(
            f"{', '.join(lacking)} does not support it yet: this needs level {level} of the"
            " domain log, and every broker must run a version that knows it"
        )
    await replica.submit(Upgrade(level))
