"""The bytes of the group requests, for load that no client library can make.

Rules: nothing is shared with the broker that is measured. Classic requests use the newest versions
without tagged fields; ConsumerGroupHeartbeat has tagged fields from its first version on. Every
answer is read only as far as a member needs it.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.raw import string

OFFSET_COMMIT, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC, BEAT = 8, 10, 11, 12, 13, 14, 68
OFFSET_COMMIT_VERSION, FIND_COORDINATOR_VERSION = 7, 2
JOIN_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION, SYNC_VERSION, BEAT_VERSION = 5, 3, 3, 3, 1
NO_STRING = struct.pack(">h", -1)
PROTOCOL = "range"
Held = Mapping[bytes, Sequence[int]]
"""Partitions by topic id."""


@dataclass(frozen=True, slots=True)
class Joined:
    """An answer to JoinGroup; `members` is empty except for the leader."""

    code: int
    generation: int
    leader: str
    member_id: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Beaten:
    """An answer to ConsumerGroupHeartbeat; `held` is None where the assignment did not change."""

    code: int
    message: str
    epoch: int
    held: dict[bytes, tuple[int, ...]] | None


class Cursor:
    """Reads an answer from its start to its end."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._at = 0

    def number(self, form: str) -> int:
        """Read one integer of a struct format."""
        (found,) = struct.unpack_from(form, self._answer, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def take(self, size: int) -> bytes:
        """Read some bytes; a negative size is null and reads none."""
        size = max(size, 0)
        self._at += size
        return self._answer[self._at - size : self._at]

    def string(self) -> str:
        """Read a string of the versions without tagged fields; null is empty."""
        return self.take(self.number(">h")).decode()

    def unsigned(self) -> int:
        """Read a variable-length integer."""
        value, shift = 0, 0
        while True:
            byte = self._answer[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_string(self) -> str:
        """Read a compact string; null is empty."""
        return self.take(self.unsigned() - 1).decode()


def unsigned(value: int) -> bytes:
    """Encode a variable-length integer."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact(text: str) -> bytes:
    """Encode a compact string."""
    raw = text.encode()
    return unsigned(len(raw) + 1) + raw


def blob(value: bytes) -> bytes:
    """Encode bytes of the versions without tagged fields."""
    return struct.pack(">i", len(value)) + value


def subscription(topic: str) -> bytes:
    """What a consumer of one topic tells its leader."""
    return struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """What a leader gives to a consumer of one topic."""
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + string(topic) + numbers + struct.pack(">i", -1)


def assigned_count(given: bytes) -> int:
    """How many partitions an assignment holds; an empty one holds none."""
    if not given:
        return 0
    cursor = Cursor(given)
    cursor.number(">h")
    total = 0
    for _ in range(cursor.number(">i")):
        cursor.string()
        count = cursor.number(">i")
        cursor.take(4 * count)
        total += count
    return total


def find_coordinator(group_id: str) -> bytes:
    """Ask who serves a group; a broker makes its offsets topic on the first such request."""
    return string(group_id) + b"\0"


def found_coordinator(answer: bytes) -> int:
    """The code of an answer to FindCoordinator."""
    return int(struct.unpack_from(">h", answer, 4)[0])


def join(
    group_id: str, member_id: str, metadata: bytes, *, session_ms: int, rebalance_ms: int
) -> bytes:
    """Ask to join as a consumer with one protocol."""
    return b"".join(
        (
            string(group_id),
            struct.pack(">ii", session_ms, rebalance_ms),
            string(member_id),
            NO_STRING,
            string("consumer"),
            struct.pack(">i", 1),
            string(PROTOCOL),
            blob(metadata),
        )
    )


def joined(answer: bytes) -> Joined:
    """Read an answer to JoinGroup."""
    cursor = Cursor(answer)
    cursor.number(">i")
    code, generation = cursor.number(">h"), cursor.number(">i")
    cursor.string()
    leader, member_id = cursor.string(), cursor.string()
    members = []
    for _ in range(cursor.number(">i")):
        members.append(cursor.string())
        cursor.string()
        cursor.take(cursor.number(">i"))
    return Joined(code, generation, leader, member_id, tuple(members))


def sync(group_id: str, member_id: str, generation: int, assignments: Mapping[str, bytes]) -> bytes:
    """Ask for the assignment; the leader brings all of them."""
    parts = [string(group_id), struct.pack(">i", generation), string(member_id), NO_STRING]
    parts.append(struct.pack(">i", len(assignments)))
    for each, given in assignments.items():
        parts += (string(each), blob(given))
    return b"".join(parts)


def synced(answer: bytes) -> tuple[int, bytes]:
    """Code and assignment of an answer to SyncGroup."""
    cursor = Cursor(answer)
    cursor.number(">i")
    code = cursor.number(">h")
    return code, cursor.take(cursor.number(">i"))


def heartbeat(group_id: str, member_id: str, generation: int) -> bytes:
    """Say that a classic member lives."""
    return string(group_id) + struct.pack(">i", generation) + string(member_id) + NO_STRING


def code_after_throttle(answer: bytes) -> int:
    """The code of an answer that starts with a throttle time and a code."""
    return int(struct.unpack_from(">h", answer, 4)[0])


def leave(group_id: str, member_ids: Sequence[str]) -> bytes:
    """Leave with several members at once."""
    members = b"".join(string(each) + NO_STRING for each in member_ids)
    return string(group_id) + struct.pack(">i", len(member_ids)) + members


def commit(
    group_id: str, member_id: str, generation: int, topic: str, offsets: Mapping[int, int]
) -> bytes:
    """Commit offsets of one topic, without metadata."""
    parts = [string(group_id), struct.pack(">i", generation), string(member_id), NO_STRING]
    parts += (struct.pack(">i", 1), string(topic), struct.pack(">i", len(offsets)))
    for partition, offset in offsets.items():
        parts.append(struct.pack(">iqih", partition, offset, -1, 0))
    return b"".join(parts)


def commit_codes(answer: bytes) -> set[int]:
    """The codes of all partitions of a commit of one topic."""
    cursor = Cursor(answer)
    cursor.number(">i")
    topics = cursor.number(">i")
    assert topics == 1, topics
    cursor.string()
    count = cursor.number(">i")
    return {code for _, code in struct.iter_unpack(">ih", cursor.take(6 * count))}


def beat(
    group_id: str, member_id: str, epoch: int, *, topic: str | None, held: Held | None
) -> bytes:
    """Say that a member of the newer protocol lives; with a topic it says everything it is."""
    names = b"\0" if topic is None else unsigned(2) + compact(topic)
    parts = [compact(group_id), compact(member_id), struct.pack(">i", epoch), b"\0\0"]
    parts += (struct.pack(">i", -1 if topic is None else 60_000), names, b"\0\0")
    if held is None:
        return b"".join((*parts, b"\0\0"))
    parts.append(unsigned(len(held) + 1))
    for topic_id, partitions in held.items():
        numbers = struct.pack(f">{len(partitions)}i", *partitions)
        parts += (topic_id, unsigned(len(partitions) + 1), numbers, b"\0")
    return b"".join((*parts, b"\0"))


def beaten(answer: bytes) -> Beaten:
    """Read an answer to ConsumerGroupHeartbeat."""
    cursor = Cursor(answer)
    cursor.unsigned()
    cursor.number(">i")
    code, message = cursor.number(">h"), cursor.compact_string()
    cursor.compact_string()
    epoch = cursor.number(">i")
    cursor.number(">i")
    if cursor.number(">b") < 0:
        return Beaten(code, message, epoch, None)
    held = {}
    for _ in range(cursor.unsigned() - 1):
        topic_id = cursor.take(16)
        count = cursor.unsigned() - 1
        held[topic_id] = struct.unpack(f">{count}i", cursor.take(4 * count))
        cursor.unsigned()
    return Beaten(code, message, epoch, held)
