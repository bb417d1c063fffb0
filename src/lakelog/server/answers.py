"""Answers leave in the order of the requests, whatever finishes first (row 97). Pure.

A request takes a place when its handler has returned; its answer is put there when it is known.
What may be sent is the run of finished places at the front. A place may also say that the
connection ends there: everything before it is still answered.
"""

from collections import deque
from collections.abc import Sequence

from lakelog.wire.schema import Buffer


class Place:
    """The turn of one request among the answers of its connection."""

    __slots__ = ("ends_connection", "parts", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes  # of the request: held until it is answered
        self.parts: Sequence[Buffer] | None = None
        self.ends_connection = False


class Answers:
    """The places of one connection, oldest first."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: deque[Place] = deque()

    def __len__(self) -> int:
        return len(self._places)

    def reserve(self, size_bytes: int) -> Place:
        """The next place, for a request of that size."""
        place = Place(size_bytes)
        self._places.append(place)
        return place

    def take(self, outgoing: list[Buffer]) -> tuple[int, bool]:
        """Move what may be sent now to `outgoing`.

        Returns the bytes of the requests that are done with, and whether the connection ends.
        """
        released_bytes = 0
        places = self._places
        while places:
            place = places[0]
            if place.ends_connection:
                return released_bytes, True
            if place.parts is None:
                break
            outgoing.extend(place.parts)
            released_bytes += place.size_bytes
            places.popleft()
        return released_bytes, False
