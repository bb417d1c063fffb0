"""Hostile bytes for everything in `lakelog.wire` that reads them.

Each target makes one input from the chance it is given and checks it: nothing but `ProtocolError`
may leave a decoder; what is accepted reads the same after it was written again; now and then the
memory is measured too.
"""

import random
import struct
import tracemalloc
from collections.abc import Callable
from functools import cache

from msgspec import Struct
from tests.wire.samples import Samples

from lakelog.records import kernels
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.codec import decode, encode
from lakelog.wire.frame_runs import FrameRun
from lakelog.wire.framing import SCRATCH_BYTES, FrameReader, encode_request, parse_request_header
from lakelog.wire.layout import FieldLayout
from lakelog.wire.messages.heartbeat import HeartbeatRequest
from lakelog.wire.schema import ProtocolError

SAMPLES_EACH = 4
SAMPLE_BYTES_MAX = 600
MEASURED_ONE_IN = 128
REREAD_ONE_IN = 4

ODD_PIECES = (
    b"\0",
    b"\1",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\xff\xfe",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",  # the greatest varint
    b"\xff\xff\xff\xff\x1f",  # more than 32 bits
    b"\x80\x80\x80\x80\x80\x01",  # six bytes
    b"\x80\x00",  # zero in two bytes
    b"\x01\x00\x00",  # one unknown tag, empty
    b"\x02\x05\x00\x05\x00",  # a tag twice
    b"\x02\x07\x01x\x09\x00",  # two unknown tags
    b"\xc3\x28",  # not UTF-8
)

ODD_SIZES = (-(1 << 31), -2, -1, 0, 1, 3, 7, 8, 9, 2 << 20, (2 << 20) + 1, 104857601, (1 << 31) - 1)


def check(kind: type[Struct], version: int, data: bytes, chance: random.Random) -> None:
    """Decode one input and hold it against the oracle."""
    view = memoryview(data)
    if chance.random() * MEASURED_ONE_IN < 1:
        check_memory(kind, version, view)
        return
    try:
        found, position = decode(kind, version, view)
    except ProtocolError:
        return
    assert position <= len(data), (kind, version, data)
    if chance.random() * REREAD_ONE_IN < 1:
        again = b"".join(encode(found, version))
        assert decode(kind, version, memoryview(again)) == (found, len(again)), (kind, data)


def check_memory(kind: type[Struct], version: int, view: memoryview) -> None:
    """Decode one input and see that it costs no more than four times its size and 64 KiB."""
    tracemalloc.start()
    try:
        decode(kind, version, view)
    except ProtocolError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 4 * len(view) + 64 * 1024, (kind, version, bytes(view), peak)


@cache
def cases(side: str) -> list[tuple[type[Struct], int]]:
    """Every request, or every response, in every version; compiled, so that memory is theirs."""
    found = [(getattr(api, side), version) for api in APIS.values() for version in api.versions]
    for kind, version in found:
        decode(kind, version, memoryview(b"".join(encode(kind(), version))))
    return found


@cache
def corpus(side: str) -> list[tuple[type[Struct], int, bytes]]:
    """Valid messages to be damaged, the same in every run."""
    chance = random.Random(f"corpus of {side}s")
    found = []
    for kind, version in cases(side):
        samples = Samples(chance, kind, version)
        written = (b"".join(encode(samples.message(), version)) for _ in range(10 * SAMPLES_EACH))
        small = [data for data in written if len(data) <= SAMPLE_BYTES_MAX][:SAMPLES_EACH]
        small = small or [b"".join(encode(kind(), version))]
        found += [(kind, version, data) for data in small]
    return found


def pick(chance: random.Random, count: int) -> int:
    """A number below `count`; several times as quick as randrange."""
    return int(chance.random() * count)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The bytes after one to three changes."""
    changed = bytearray(data)
    for _ in range(1 + pick(chance, 3)):
        position = pick(chance, len(changed) + 1)
        piece = ODD_PIECES[pick(chance, len(ODD_PIECES))]
        match pick(chance, 5):
            case 0:
                changed[position : position + len(piece)] = piece
            case 1:
                changed[position:position] = piece
            case 2:
                del changed[position : position + 1 + pick(chance, 8)]
            case 3:
                changed[position : position + 1] = bytes((pick(chance, 256),))
            case _:
                del changed[position:]
    return bytes(changed)


def mutated_requests(chance: random.Random) -> None:
    """A valid request with a few bytes changed."""
    choices = corpus("request")
    kind, version, data = choices[pick(chance, len(choices))]
    check(kind, version, damaged(chance, data), chance)


def mutated_responses(chance: random.Random) -> None:
    """A valid response with a few bytes changed: clients of ours read these."""
    choices = corpus("response")
    kind, version, data = choices[pick(chance, len(choices))]
    check(kind, version, damaged(chance, data), chance)


class HostileWriter:
    """Writes a message field by field, honestly more often than not."""

    def __init__(self, chance: random.Random, kind: type[Struct], version: int) -> None:
        self.samples = samples(kind, version)
        self.chance = chance
        self.pieces: list[bytes] = []

    def write(self) -> bytes:
        self.struct(self.samples.layout.root)
        return b"".join(self.pieces)

    def struct(self, kind: type[Struct]) -> None:
        layout = self.samples.of(kind)
        for field in layout.plain:
            if self.chance.random() < 0.04:
                self.pieces.append(ODD_PIECES[pick(self.chance, len(ODD_PIECES))])
            else:
                self.field(field)
        if layout.flexible:
            self.tags(layout.tagged)

    def tags(self, known: tuple[FieldLayout, ...]) -> None:
        if self.chance.random() < 0.8:
            self.pieces.append(b"\0")
            return
        start = len(self.pieces)
        if known:
            self.field(known[pick(self.chance, len(known))])
        value = b"".join(self.pieces[start:])[:100]
        del self.pieces[start:]
        size = len(value) + (pick(self.chance, 3) - 1 if self.chance.random() < 0.2 else 0)
        self.pieces += (b"\1", bytes((pick(self.chance, 4), size & 127)), value)

    def field(self, field: FieldLayout) -> None:
        if field.array:
            count = pick(self.chance, 3)
            self.length("i", count)
            for _ in range(count):
                self.element(field)
        elif field.nullable and field.struct is not None and field.tag is None:
            present = self.chance.random() < 0.5
            self.pieces.append(b"\1" if present else b"\xff")
            if present:
                self.element(field)
        else:
            self.element(field)

    def element(self, field: FieldLayout) -> None:
        if field.struct is not None:
            self.struct(field.struct)
        elif field.format is not None:
            self.pieces.append(self.chance.randbytes(struct.calcsize(f">{field.format}")))
        elif field.primitive == "uuid":
            self.pieces.append(self.chance.randbytes(16))
        else:
            size = pick(self.chance, 6)
            self.length("h" if field.primitive == "string" else "i", size)
            self.pieces.append(b"abcdef"[:size])

    def length(self, format_code: str, value: int) -> None:
        if self.chance.random() < 0.05:
            value -= 1
        if self.samples.layout.flexible:
            self.pieces.append(bytes((value + 1,)))
        else:
            self.pieces.append(struct.pack(f">{format_code}", value))


@cache
def samples(kind: type[Struct], version: int) -> Samples:
    """The layouts of a message, looked up once."""
    return Samples(random.Random(0), kind, version)


def hostile_requests(chance: random.Random) -> None:
    """A request that follows its schema until it does not."""
    choices = cases("request")
    kind, version = choices[pick(chance, len(choices))]
    check(kind, version, HostileWriter(chance, kind, version).write(), chance)


def request_headers(chance: random.Random) -> None:
    """A request header with a few bytes changed."""
    version = pick(chance, 6)
    name = (None, "", "client", "é" * 100)[pick(chance, 4)]
    api = APIS[ApiKey.HEARTBEAT]
    whole = encode_request(api, min(version, 4), 7, name, HeartbeatRequest("g", 1, "m"))
    frame = memoryview(damaged(chance, b"".join(whole)[4:]))
    try:
        header = parse_request_header(frame)
    except ProtocolError:
        return
    assert 10 <= header.body_start <= len(frame), bytes(frame)


SCRATCH = bytearray(SCRATCH_BYTES)


def frame_streams(chance: random.Random) -> None:
    """Frames, some of impossible size, cut into pieces anywhere."""
    stream = b"".join(one_frame(chance) for _ in range(1 + pick(chance, 5)))
    reader = FrameReader(SCRATCH)
    if kernels.native is not None and pick(chance, 2):
        find_run = kernels.native.find_run
        reader = FrameReader(SCRATCH, run_key=ApiKey.PRODUCE, find_run=find_run)
    found: list[memoryview] = []
    broken = False
    view = memoryview(stream)
    while view:
        buffer = reader.get_buffer(-1)
        count = min(len(view), len(buffer), 1 + pick(chance, 2 * len(stream)))
        buffer[:count] = view[:count]
        view = view[count:]
        for item in reader.updated(count):
            assert not broken, stream
            if isinstance(item, ProtocolError):
                broken = True
            elif isinstance(item, FrameRun):
                found += [item.take_frame() for _ in range(item.count)]
            else:
                found.append(item)
    assert (found, broken) == plainly_cut(stream), stream


def one_frame(chance: random.Random) -> bytes:
    """A frame; one in ten lies about its size."""
    size = 8 + pick(chance, 40)
    claimed = ODD_SIZES[pick(chance, len(ODD_SIZES))] if chance.random() < 0.1 else size
    return struct.pack(">ih", claimed, pick(chance, 20)) + bytes(size - 2)


def plainly_cut(stream: bytes) -> tuple[list[memoryview], bool]:
    """The frames of a stream and whether it breaks, found in the simplest way."""
    limits = FrameReader(SCRATCH).limits
    found: list[memoryview] = []
    position = 0
    while position + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        key = stream[position + 4 : position + 6]
        try:
            limits.check_any(size)
            if len(key) == 2:
                limits.check(size, int.from_bytes(key, "big", signed=True))
        except ProtocolError:
            return found, True
        if position + 4 + size > len(stream):
            break
        found.append(memoryview(stream)[position + 4 : position + 4 + size])
        position += 4 + size
    return found, False


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "wire.frame_streams": frame_streams,
    "wire.request_headers": request_headers,
    "wire.mutated_requests": mutated_requests,
    "wire.hostile_requests": hostile_requests,
    "wire.mutated_responses": mutated_responses,
}
"""What the fuzz runner calls, each with its own chance, once for every input."""
