"""One pass over a batch's records: structure, offset deltas 0..n-1, timestamps, keys.

`scan_records` works on records that lie in memory, `scan_pieces` on records that come out of a
decompressor piece by piece and are never all in memory: what straddles two pieces is carried over,
and a record larger than a piece is walked without being held. `find_bad` lists the records that a
scan counted as bad; it is the slow second pass for a batch that will be refused anyway.

Stricter than Kafka, all on bytes that no client writes: offset deltas must be 0..n-1, lengths below
-1 are errors and not null, and a number must fit its type.
"""

from collections.abc import Iterator
from typing import Final

from lakelog.records import kernels
from lakelog.records.header import (
    VARINT_BYTES_MAX,
    IncompleteError,
    MalformedBatchError,
    read_varint,
    read_varlong,
)
from lakelog.records.kernels import (
    DONE,
    INCOMPLETE,
    INT64_MAX,
    INT64_MIN,
    MALFORMED,
    MISPLACED,
    NO_TIMESTAMP_MS,
    Limits,
    ScanOutcome,
    wrap_int64,
)

CARRY_BYTES_MAX: Final = 65_536
"""A longer record that straddles two pieces is walked piece by piece instead of being joined."""

MISSING_KEY: Final = INT64_MAX + 1
"""In `find_bad`, the timestamp's place is taken by this when the record lacks a needed key."""


def scan_records(data: memoryview, count: int, limits: Limits) -> ScanOutcome:
    """Scan `count` records that fill `data` exactly."""
    native = kernels.native
    scan = scan_in_python if native is None else native.scan
    outcome = scan(data, 0, 0, count, limits)
    if outcome[0] == DONE and outcome[1] != len(data):
        return MALFORMED, *outcome[1:]
    return outcome


def scan_in_python(
    data: memoryview, position: int, index: int, count: int, limits: Limits, /
) -> ScanOutcome:
    """The kernel's twin: the same verdicts, at some microseconds a record."""
    base_ms, lower_ms, upper_ms, keyed = limits
    end = len(data)
    least_ms, greatest_ms, bad = INT64_MAX, INT64_MIN, 0
    verdict = DONE
    try:
        while index < count:
            after, delta_ms, offset_delta, key_length = _read_record(data, position, end)
            if offset_delta != index:
                verdict = MISPLACED
                break
            timestamp_ms = wrap_int64(base_ms + delta_ms)
            least_ms = min(least_ms, timestamp_ms)
            greatest_ms = max(greatest_ms, timestamp_ms)
            if _is_bad(timestamp_ms, key_length, lower_ms, upper_ms, keyed):
                bad += 1
            position = after
            index += 1
    except IncompleteError:
        verdict = INCOMPLETE
    except MalformedBatchError:
        verdict = MALFORMED
    return verdict, position, index, least_ms, greatest_ms, bad


def scan_pieces(pieces: Iterator[memoryview], count: int, limits: Limits) -> ScanOutcome:
    """Scan `count` records from pieces of any size; memory is bounded by piece and carry."""
    walk = _PieceWalk(pieces, count, limits)
    verdict = walk.run()
    return verdict, 0, walk.index, walk.least_ms, walk.greatest_ms, walk.bad


def find_bad(
    pieces: Iterator[memoryview], count: int, limits: Limits, bad_max: int
) -> list[tuple[int, int]]:
    """Index and timestamp of the first `bad_max` records outside the limits, in order.

    The records were scanned before and are well-formed. A record without a needed key is listed
    whatever its timestamp.
    """
    reader = _Reader(pieces)
    base_ms, lower_ms, upper_ms, keyed = limits
    found: list[tuple[int, int]] = []
    for index in range(count):
        delta_ms, _, key_length = reader.skip_record()
        timestamp_ms = wrap_int64(base_ms + delta_ms)
        if _is_bad(timestamp_ms, key_length, lower_ms, upper_ms, keyed):
            # The sign of the pair's second part cannot tell a missing key, so it is an extra value.
            found.append((index, MISSING_KEY if keyed and key_length < 0 else timestamp_ms))
            if len(found) == bad_max:
                break
    return found


def _is_bad(timestamp_ms: int, key_length: int, lower_ms: int, upper_ms: int, keyed: int) -> bool:
    if keyed and key_length < 0:
        return True
    return not lower_ms <= timestamp_ms <= upper_ms and timestamp_ms != NO_TIMESTAMP_MS


def _read_record(data: memoryview, position: int, end: int) -> tuple[int, int, int, int]:
    """The position after the record, timestamp delta, offset delta, key length."""
    length, position = read_varint(data, position, end)
    after = position + length
    if length < 0:
        raise MalformedBatchError("a record's length is negative")
    if after > end:
        raise IncompleteError("the data ends within a record")
    # Positions only grow, so a field that passes the record's end is seen at the end, by `!=`.
    try:
        delta_ms, position = read_varlong(data, position + 1, end)
        offset_delta, position = read_varint(data, position, end)
        key_length, position = read_varint(data, position, end)
        value_length, position = read_varint(data, position + max(key_length, 0), end)
        header_count, position = read_varint(data, position + max(value_length, 0), end)
        if key_length < -1 or value_length < -1 or not 0 <= header_count <= after - position:
            raise MalformedBatchError("a length is out of range")
        for _ in range(header_count):
            position = _skip_header(data, position, after)
    except IncompleteError as error:
        raise MalformedBatchError("a field passes the end of its record") from error
    if position != after:
        raise MalformedBatchError("a record is not filled by its fields")
    return after, delta_ms, offset_delta, key_length


def _skip_header(data: memoryview, position: int, end: int) -> int:
    key_length, position = read_varint(data, position, end)
    if key_length < 0:
        raise MalformedBatchError("a header has no key")
    value_length, position = read_varint(data, position + key_length, end)
    if value_length < -1:
        raise MalformedBatchError("a length is out of range")
    return position + max(value_length, 0)


class _Reader:
    """Numbers and jumps over a sequence of pieces, one piece in memory."""

    def __init__(self, pieces: Iterator[memoryview], window: memoryview | None = None) -> None:
        self.pieces = pieces
        self.window = memoryview(b"") if window is None else window
        self.position = 0
        self.left = 0
        """How many bytes of the record are still to come."""

    def skip_record(self) -> tuple[int, int, int]:
        """Walk one record of any size: timestamp delta, offset delta, key length."""
        self.left = VARINT_BYTES_MAX
        self.left = self._number(32)
        if self.left < 0:
            raise MalformedBatchError("a record's length is negative")
        self._skip(1)
        delta_ms, offset_delta, key_length = self._number(64), self._number(32), self._number(32)
        self._skip_blob(key_length)
        self._skip_blob(self._number(32))
        header_count = self._number(32)
        if not 0 <= header_count <= self.left:
            raise MalformedBatchError("a length is out of range")
        for _ in range(header_count):
            header_key_length = self._number(32)
            if header_key_length < 0:
                raise MalformedBatchError("a header has no key")
            self._skip(header_key_length)
            self._skip_blob(self._number(32))
        if self.left:
            raise MalformedBatchError("a record is not filled by its fields")
        return delta_ms, offset_delta, key_length

    def at_end(self) -> bool:
        """Whether no byte is left."""
        while self.position == len(self.window):
            piece = next(self.pieces, None)
            if piece is None:
                return True
            self.window, self.position = piece, 0
        return False

    def _number(self, bits: int) -> int:
        value = shift = 0
        while shift < bits:
            if not self.left:
                raise MalformedBatchError("a field passes the end of its record")
            if self.at_end():
                raise IncompleteError("the data ends within a record")
            byte = self.window[self.position]
            self.position += 1
            self.left -= 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                if value >> bits:
                    break
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise MalformedBatchError(f"a number needs more than {bits} bits")

    def _skip_blob(self, length: int) -> None:
        if length < -1:
            raise MalformedBatchError("a length is out of range")
        self._skip(max(length, 0))

    def _skip(self, length: int) -> None:
        if length > self.left:
            raise MalformedBatchError("a field passes the end of its record")
        self.left -= length
        while length:
            if self.at_end():
                raise IncompleteError("the data ends within a record")
            step = min(length, len(self.window) - self.position)
            self.position += step
            length -= step


class _PieceWalk(_Reader):
    """A scan over pieces: whole records by the kernel, large straddling ones by the reader."""

    def __init__(self, pieces: Iterator[memoryview], count: int, limits: Limits) -> None:
        super().__init__(pieces)
        native = kernels.native
        self.scan = scan_in_python if native is None else native.scan
        self.count = count
        self.limits = limits
        self.index = 0
        self.least_ms = INT64_MAX
        self.greatest_ms = INT64_MIN
        self.bad = 0

    def run(self) -> int:
        """Scan to the end; the verdict."""
        while self.index < self.count:
            verdict, self.position, self.index, least_ms, greatest_ms, bad = self.scan(
                self.window, self.position, self.index, self.count, self.limits
            )
            self.least_ms = min(self.least_ms, least_ms)
            self.greatest_ms = max(self.greatest_ms, greatest_ms)
            self.bad += bad
            if verdict == INCOMPLETE:
                verdict = self._cross()
            if verdict != DONE:
                return verdict
        return DONE if self.at_end() else MALFORMED

    def _cross(self) -> int:
        """Join the record that straddles two pieces, or walk over it when it is large."""
        tail = self.window[self.position :]
        if len(tail) <= CARRY_BYTES_MAX:
            piece = next(self.pieces, None)
            if piece is None:
                return INCOMPLETE
            # Copied here: at most one carry and one piece.
            self.window = memoryview(b"".join((tail, piece))) if tail else piece
            self.position = 0
            return DONE
        return self._walk_over()

    def _walk_over(self) -> int:
        base_ms, lower_ms, upper_ms, keyed = self.limits
        try:
            delta_ms, offset_delta, key_length = self.skip_record()
        except IncompleteError:
            return INCOMPLETE
        except MalformedBatchError:
            return MALFORMED
        if offset_delta != self.index:
            return MISPLACED
        timestamp_ms = wrap_int64(base_ms + delta_ms)
        self.least_ms = min(self.least_ms, timestamp_ms)
        self.greatest_ms = max(self.greatest_ms, timestamp_ms)
        self.bad += _is_bad(timestamp_ms, key_length, lower_ms, upper_ms, keyed)
        self.index += 1
        return DONE
