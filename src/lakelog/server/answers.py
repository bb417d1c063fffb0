"""The answers of one connection: how they are made, and when they may leave.

Answers leave in the order of the requests, whatever finishes first (row 97): a request takes a
place among the answers when its handler has returned, its answer is put there when it is known, and
what may be sent is the run of finished places at the front. A place may also say that the
connection ends there: everything before it is still answered.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from lakelog.broker.call import Answer, EncodedAnswer, NoAnswer
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.framing import RequestHeader, encode_response, response_frame
from lakelog.wire.schema import Buffer

Made = TypeVar("Made")

API_VERSIONS: Final = int(ApiKey.API_VERSIONS)


class Place:
    """The turn of a request, or of several, among the answers of its connection."""

    __slots__ = ("ends_connection", "parts", "requests", "size_bytes")

    def __init__(self, size_bytes: int, requests: int) -> None:
        self.size_bytes = size_bytes  # of the requests: held until they are answered
        self.requests = requests
        self.parts: Sequence[Buffer] | None = None
        self.ends_connection = False


class Answers:
    """The places of one connection, oldest first."""

    __slots__ = ("_places", "_released_bytes", "_requests", "outgoing")

    def __init__(self) -> None:
        self.outgoing: list[Buffer] = []  # what may leave
        self._places: deque[Place] = deque()
        self._requests = 0
        self._released_bytes = 0  # of requests that were answered since the last `take`

    def __len__(self) -> int:
        return self._requests

    def reserve(self, size_bytes: int, requests: int = 1) -> Place:
        """The next place, for requests of that size."""
        place = Place(size_bytes, requests)
        self._places.append(place)
        self._requests += requests
        return place

    def put_now(self, parts: Sequence[Buffer], size_bytes: int) -> None:
        """The answer of a request of that size, which waits for no other."""
        assert not self._places, "others come first"
        self.outgoing.extend(parts)
        self._released_bytes += size_bytes

    def take(self) -> tuple[list[Buffer], int, bool]:
        """What may be sent now, in order.

        Also the bytes of the requests that are done with, and whether the connection ends.
        """
        places, ends = self._places, False
        while places:
            place = places[0]
            ends = place.ends_connection
            if ends or place.parts is None:
                break
            places.popleft()
            self.outgoing.extend(place.parts)
            self._released_bytes += place.size_bytes
            self._requests -= place.requests
        outgoing, self.outgoing = self.outgoing, []
        released_bytes, self._released_bytes = self._released_bytes, 0
        return outgoing, released_bytes, ends


def encoded(header: RequestHeader, answer: Answer) -> list[Buffer]:
    """The answer's bytes; none for a request that gets no answer."""
    if isinstance(answer, NoAnswer):
        return []
    if isinstance(answer, EncodedAnswer):
        return response_frame(header, header.api_version, [answer.body])
    if header.api_key == API_VERSIONS:
        known = header.api_version in APIS[header.api_key].versions
        # Row 25: an unknown version is answered in the one that every client can read.
        return encode_response(header, answer, header.api_version if known else 0)
    return encode_response(header, answer)


async def caught(work: Coroutine[Any, Any, Any]) -> tuple[Any, Exception | None]:
    """Run a handler's own work so that its failure is the connection's, not the port's."""
    try:
        return await work, None
    except Exception as reason:  # noqa: BLE001 - handed on to the connection
        return None, reason


def uncaught(finish: Callable[[Any], Answer], result: tuple[Any, Exception | None]) -> Answer:
    """The answer of what was caught, or its failure once more."""
    value, reason = result
    if reason is not None:
        raise reason
    return finish(value)


def same(answer: Made) -> Made:
    """What needs no finish."""
    return answer
