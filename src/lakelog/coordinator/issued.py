"""Member ids that were given out and not used yet (KIP-394). Pure.

Nothing is written for such an id: it lives here until its member joins, leaves or takes too long.
A broker that restarts forgets them, and the member is told to ask again (K3).
"""

from typing import Final

from lakelog.coordinator.member_expiry import MemberKey
from lakelog.coordinator.timers import Deadlines

ISSUED_MAX: Final = 100_000
"""Beyond so many the oldest is forgotten: ids cost a client nothing."""


class Issued:
    """The ids that wait for their members."""

    def __init__(self, *, count_max: int = ISSUED_MAX) -> None:
        self._deadlines: Deadlines[MemberKey] = Deadlines()
        self._count_max = count_max

    def __contains__(self, key: MemberKey) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def give(self, key: MemberKey, *, until_s: float) -> None:
        """Remember that the id was given out."""
        if len(self._deadlines) >= self._count_max:
            self._deadlines.drop(next(iter(self._deadlines)))
        self._deadlines.set(key, until_s)

    def take(self, key: MemberKey) -> bool:
        """Whether the id was waiting; it does so no longer."""
        is_here = key in self._deadlines
        self._deadlines.drop(key)
        return is_here

    def expire(self, now_s: float) -> None:
        """Forget those that took too long."""
        self._deadlines.take_due(now_s)
