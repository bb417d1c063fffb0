"""A connection's bytes to frames, and frames to headers and messages; no I/O.

Rules of `FrameReader`:

- A frame that is handed out owns its memory: it is never a view of a buffer that is used again.
- Bytes are copied at most once on the way: small frames out of the scratch buffer, large ones not
  at all once they are under way, because they are received into their own memory.
- Memory follows what was received, never what was claimed: at most 4 times the bytes received plus
  64 KiB. A claim is believed up to the size of the largest frame that the connection has completed.
  Room is made when more is about to be received, so a connection that waits holds what it filled.
- An idle connection holds no buffer of its own.
"""

import struct
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct

from lakelog.wire.apis import (
    APIS,
    Api,
    ApiKey,
    request_header_version,
    response_header_version,
)
from lakelog.wire.codec import decode, encode
from lakelog.wire.compile_parts import skip_tags
from lakelog.wire.frame_runs import (
    HEAD,
    SIZE_BYTES,
    FindRun,
    Frame,
    FrameRun,
    find_run_in_python,
)
from lakelog.wire.schema import Buffer, EncodeError, ProtocolError

KIB = 1024
MIB = 1024 * KIB
SMALL_FRAME_BYTES_MAX = 64 * KIB
"""A frame up to this size passes through the scratch buffer."""

SCRATCH_BYTES = 256 * KIB
"""A good size for a scratch buffer: what is read at once is taken at once."""

GROWTH = 3
"""Old and new memory together are then 4 times what was received."""

MERGED_BYTES_MAX = 4 * KIB
"""Up to here copying the first part is cheaper than sending one part more."""

REQUEST_HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
RESPONSE_HEAD = struct.Struct(">ii")  # the size of the frame, and the correlation id
CORRELATION = struct.Struct(">i")

Message = TypeVar("Message", bound=Struct)

Received: TypeAlias = "Frame | FrameRun | ProtocolError"
"""What received bytes complete: a frame, several of one API, or the reason to read no more."""


class FrameLimits(Struct, frozen=True):
    """How large a frame may be: in general, and for APIs with a limit of their own."""

    size_min: int
    size_max: int
    size_max_by_api: dict[int, int] = {}

    def bounds(self, key: int) -> tuple[int, int]:
        """The least and the greatest size of a frame of this API."""
        return self.size_min, self.size_max_by_api.get(key, self.size_max)

    def check(self, size: int, key: int) -> None:
        """Refuse a size that this API does not allow."""
        if not self.size_min <= size <= self.size_max_by_api.get(key, self.size_max):
            raise ProtocolError(f"a frame that begins with {key} cannot have {size} bytes")

    def check_any(self, size: int) -> None:
        """Refuse a size that no API allows."""
        if not self.size_min <= size <= max(self.size_max, *self.size_max_by_api.values(), 0):
            raise ProtocolError(f"a frame cannot have {size} bytes")


# The objects made of a hostile request take up to 24 times its bytes: its size bounds them.
REQUEST_LIMITS = FrameLimits(
    size_min=8,
    size_max=2 * MIB,
    size_max_by_api={
        ApiKey.PRODUCE: 100 * MIB,
        ApiKey.JOIN_GROUP: 16 * MIB,
        ApiKey.SYNC_GROUP: 16 * MIB,
    },
)
"""For a client that may do what it asks for."""

UNAUTHENTICATED_LIMITS = FrameLimits(size_min=8, size_max=512 * KIB)
"""For a client that has not said yet who it is."""

RESPONSE_LIMITS = FrameLimits(size_min=4, size_max=256 * MIB)
"""For the client's side of a connection."""


class FrameReader:
    """Cuts the bytes of one connection into frames; made for `asyncio.BufferedProtocol`.

    `scratch` may be shared by all connections of a loop that reads when a socket is ready (the
    selector loop, uvloop): there `get_buffer` and `updated` follow each other with nothing between.
    It may not be shared on a proactor loop, whose reads are under way at the same time.
    """

    __slots__ = (
        "_believed",
        "_broken",
        "_comes_large",
        "_filled",
        "_find_run",
        "_frame",
        "_head",
        "_run_key",
        "_scratch",
        "_size",
        "limits",
    )

    def __init__(
        self,
        scratch: bytearray,
        limits: FrameLimits = REQUEST_LIMITS,
        *,
        run_key: ApiKey | None = None,
        find_run: FindRun = find_run_in_python,
    ) -> None:
        self.limits = limits
        self._run_key = run_key  # frames of this API are handed out as runs
        self._find_run = find_run
        self._scratch = memoryview(scratch)
        self._head = b""  # the beginning of a frame, as long as its API key is not complete
        self._frame: memoryview | None = None
        self._size = 0  # of the frame under way
        self._filled = 0
        self._believed = SMALL_FRAME_BYTES_MAX
        self._comes_large = False  # the last frame did not pass through the scratch buffer
        self._broken = False

    def get_buffer(self, _hint: int, growth_bytes_max: int | None = None) -> memoryview:
        """Where the next bytes are to be received; a full frame grows by no more than is given."""
        frame = self._frame
        if frame is None or self._size <= SMALL_FRAME_BYTES_MAX:
            # The next large frame begins there, and what is read of it has to be copied.
            return self._scratch[:SMALL_FRAME_BYTES_MAX] if self._comes_large else self._scratch
        if self._filled == len(frame):
            growth_bytes = (GROWTH - 1) * self._filled
            if growth_bytes_max is not None:
                growth_bytes = min(growth_bytes, growth_bytes_max)
            larger = _room(min(self._size, self._filled + growth_bytes))
            larger[: self._filled] = frame
            self._frame = frame = larger
        return frame[self._filled :]

    @property
    def room_bytes(self) -> int:
        """What is allocated for the frame under way, with the length that stands before it."""
        if self._frame is not None:
            return SIZE_BYTES + len(self._frame)
        return len(self._head)

    def updated(self, count: int) -> list[Received]:
        """The frames that `count` more received bytes complete.

        An error stands last: answer what comes before it, then close. Nothing follows it.
        """
        found: list[Received] = []
        if self._broken:
            return found
        if self._frame is not None and self._size > SMALL_FRAME_BYTES_MAX:
            self._filled += count
            self._settle(self._frame, found)
            return found
        position = 0
        try:
            while position < count:
                if self._frame is None:
                    position = self._begin(position, count, found)
                else:
                    position = self._continue(self._frame, position, count, found)
        except ProtocolError as reason:
            self._broken = True
            self._head = b""
            found.append(reason)
        return found

    def _begin(self, position: int, count: int, found: list[Received]) -> int:
        """Read the head of a frame, and the whole frame if it is there."""
        if self._head or count - position < HEAD.size:
            return self._begin_slowly(position, count)
        size: int
        size, key = HEAD.unpack_from(self._scratch, position)
        self.limits.check(size, key)
        start = position + SIZE_BYTES
        end = start + size
        if end <= count:
            self._comes_large = False
            if key == self._run_key:
                return self._take_run(position, count, found)
            found.append(memoryview(bytes(self._scratch[start:end])))
            return end
        self._start(size, count - start)
        return start

    def _take_run(self, start: int, count: int, found: list[Received]) -> int:
        """Hand out the frames of one API from here on as one; copied once, as every small one."""
        assert self._run_key is not None
        size_min, size_max = self.limits.bounds(self._run_key)
        end, frames = self._find_run(self._scratch, start, count, size_min, size_max)
        found.append(FrameRun(memoryview(bytes(self._scratch[start:end])), frames))
        return end

    def _begin_slowly(self, position: int, count: int) -> int:
        """Read a head that comes in pieces."""
        stop = min(count, position + HEAD.size - len(self._head))
        self._head += self._scratch[position:stop]
        if len(self._head) >= SIZE_BYTES:
            self.limits.check_any(int.from_bytes(self._head[:SIZE_BYTES], "big", signed=True))
        if len(self._head) < HEAD.size:
            return stop
        size, key = HEAD.unpack(self._head)
        self.limits.check(size, key)
        frame = self._start(size, HEAD.size - SIZE_BYTES + count - stop)
        frame[: HEAD.size - SIZE_BYTES] = self._head[SIZE_BYTES:]
        self._filled = HEAD.size - SIZE_BYTES
        self._head = b""
        return stop

    def _start(self, size: int, received: int) -> memoryview:
        """Make room for a frame, or for as much of it as is believed or there already."""
        self._size = size
        self._filled = 0
        self._frame = _room(min(size, max(self._believed, received)))
        return self._frame

    def _continue(self, frame: memoryview, position: int, count: int, found: list[Received]) -> int:
        """Copy into the frame under way what the scratch buffer holds of it."""
        stop = min(count, position + len(frame) - self._filled)
        end = self._filled + stop - position
        frame[self._filled : end] = self._scratch[position:stop]
        self._filled = end
        self._settle(frame, found)
        return stop

    def _settle(self, frame: memoryview, found: list[Received]) -> None:
        """Hand out the frame under way if it is complete."""
        if self._filled == self._size:
            is_run = int.from_bytes(frame[:2], "big", signed=True) == self._run_key
            whole = frame.toreadonly()
            found.append(FrameRun(whole, 1, bare=True) if is_run else whole)
            self._frame = None
            self._comes_large = self._size > SMALL_FRAME_BYTES_MAX
            self._believed = max(self._believed, self._size)


def _room(size: int) -> memoryview:
    """Memory that is not zeroed first: a frame is handed out only when all of it was received."""
    return np.empty(size, dtype=np.uint8).data


class RequestHeader(Struct, frozen=True, gc=False):
    """What stands before the body of a request; the body begins at `body_start` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def parse_request_header(frame: Frame) -> RequestHeader:
    """The header of a request of an API we know, in whatever version it says.

    The client id keeps its two-byte length in header version 2. It is only ever shown, so bytes in
    it that are not UTF-8 are replaced instead of refused, as Kafka does.
    """
    if len(frame) < REQUEST_HEADER.size:
        raise ProtocolError("a request has no complete header")
    key, version, correlation_id, length = REQUEST_HEADER.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise ProtocolError(f"there is no API {key}")
    position = REQUEST_HEADER.size
    client_id = None
    if length >= 0:
        position += length
        if position > len(frame):
            raise ProtocolError("a client id reaches beyond the request")
        client_id = str(frame[REQUEST_HEADER.size : position], "utf-8", "replace")
    elif length != -1:
        raise ProtocolError(f"a client id cannot have {length} bytes")
    if version >= api.flexible_from:
        position = _skip_header_tags(frame, position)
    return RequestHeader(key, version, correlation_id, client_id, position)


def encode_response(
    header: RequestHeader, message: Struct, version: int | None = None
) -> list[Buffer]:
    """A whole response frame, as parts.

    `version` is the version of the answer where it is not the request's own: an ApiVersions request
    in an unknown version is answered in version 0.
    """
    spoken = header.api_version if version is None else version
    return response_frame(header, spoken, encode(message, spoken))


def response_frame(header: RequestHeader, version: int, parts: list[Buffer]) -> list[Buffer]:
    """The same around a message that is encoded already."""
    header_version = response_header_version(APIS[header.api_key], version)
    tags = b"\0" if header_version else b""
    size = CORRELATION.size + len(tags) + sum(map(len, parts))
    return _with_head(RESPONSE_HEAD.pack(size, header.correlation_id) + tags, parts)


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, message: Struct
) -> list[Buffer]:
    """A whole request frame, as parts."""
    name = (client_id or "").encode()
    length = -1 if client_id is None else len(name)
    try:
        header = REQUEST_HEADER.pack(api.key, version, correlation_id, length) + name
    except struct.error as reason:
        raise EncodeError(f"the header of {api.name} v{version}: {reason}") from reason
    header += b"\0" if request_header_version(api, version) == 2 else b""
    parts = encode(message, version)
    size = len(header) + sum(map(len, parts))
    return _with_head(CORRELATION.pack(size) + header, parts)


def decode_response(kind: type[Message], version: int, frame: Frame) -> tuple[int, Message]:
    """The correlation id and the message of a response frame."""
    if len(frame) < CORRELATION.size:
        raise ProtocolError("a response has no complete header")
    (correlation_id,) = CORRELATION.unpack_from(frame)
    position = CORRELATION.size
    if response_header_version(API_BY_RESPONSE[kind], version):
        position = _skip_header_tags(frame, position)
    message, _ = decode(kind, version, frame, position)
    return correlation_id, message


API_BY_RESPONSE: dict[type[Struct], Api] = {api.response: api for api in APIS.values()}
"""The API that a response class belongs to."""


def _skip_header_tags(frame: Frame, position: int) -> int:
    try:
        count = frame[position]
        return skip_tags(frame, position + 1, len(frame), count) if count else position + 1
    except IndexError:
        raise ProtocolError("a header ends too soon") from None


def _with_head(head: bytes, parts: list[Buffer]) -> list[Buffer]:
    if parts and len(parts[0]) <= MERGED_BYTES_MAX:
        parts[0] = head + parts[0]
    else:
        parts.insert(0, head)
    return parts
