"""What the half-sent requests of one client address may hold, so that no address holds all of it.

A request that has begun needs memory until it is complete, and its client decides how long that
takes. Bytes are counted as they are allocated, not as they came. Above its share an address still
makes progress: one of its connections at a time has a pass, and is read to the end of its request.
The others wait, and go on when a quarter of the share is free again.

Connections without a half-sent request are never held up here: what they send is answered.
"""

from typing import Final, Protocol

LOW_WATER: Final = 0.75
"""Reading goes on when the bytes held fall to this share of the limit."""


class Receiver(Protocol):
    """A session, as far as its half-sent request is concerned."""

    unframed_bytes: int  # allocated for a request that is not complete

    def may_go_on(self) -> None:
        """There is room again."""


class HalfSent:
    """The half-sent requests of one address."""

    __slots__ = ("_bytes_max", "_passing", "_size_bytes", "_waiting", "connections")

    def __init__(self, bytes_max: int) -> None:
        self.connections = 0
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._passing: Receiver | None = None
        self._waiting: dict[Receiver, None] = {}  # in the order in which they came

    @property
    def size_bytes(self) -> int:
        """What is allocated for all of them."""
        return self._size_bytes

    @property
    def waiting(self) -> int:
        """How many connections are not read because of the others of their address."""
        return len(self._waiting)

    def add(self, size_bytes: int) -> None:
        """So many bytes more, or less."""
        self._size_bytes += size_bytes
        assert self._size_bytes >= 0, self._size_bytes

    def is_over(self, receiver: Receiver) -> bool:
        """Whether it would have to wait for more than a little."""
        over = self._size_bytes > self._bytes_max and self._passing is not None
        return over and self._passing is not receiver

    def must_wait(self, receiver: Receiver) -> bool:
        """Whether it has to stop reading because of the others; notes that it waits."""
        if self._size_bytes <= self._bytes_max or not receiver.unframed_bytes:
            return False
        if self._passing is None or self._passing is receiver:
            self._passing = receiver
            return False
        self._waiting[receiver] = None
        return True

    def completed(self, receiver: Receiver) -> None:
        """Its request is complete, or it is gone: let others go on."""
        self._waiting.pop(receiver, None)
        if self._passing is receiver:
            self._passing = None
        if not self._waiting:
            return
        if self._size_bytes <= self._bytes_max * LOW_WATER:
            waiting, self._waiting = self._waiting, {}
            for other in waiting:
                other.may_go_on()
        elif self._passing is None:
            chosen = next(iter(self._waiting))
            del self._waiting[chosen]
            chosen.may_go_on()
