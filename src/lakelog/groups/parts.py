"""An event of a group that is larger than a record of the domain log, in parts (K10). Pure.

The event's bytes are cut, and each part is an event of the log. Nothing of it is seen before the
last part: then the whole is taken in as one event, at one position. Parts belong to an attempt and
to the broker that writes them, which has one such event under way at a time. A first part starts
over, and one that does not follow on is refused, so parts of different events never mix.

A leader's Sync is cut by its assignments instead (`sync_parts`): each part is a Sync of its own.
"""

from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from lakelog.groups.events import GroupEvent, Sync, encode_group_event
from lakelog.model.failures import Corrupt

PARTS_LEVEL: Final = 3
"""The level of a domain from which on parts mean something (rule 12)."""

PARTS_MAX: Final = 64
"""The most parts of an event; part of what `apply` means at level 3."""

ENCLOSING_BYTES_MAX: Final = 64
"""What a part takes beside the group's id and its bytes, as is checked where parts are cut."""


class GroupPart(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of an event of this group: the part of this number, of so many."""

    group_id: str
    attempt: int
    part: int
    count: int
    data: bytes


class PendingParts(NamedTuple):
    """The parts of an event that came so far, of how many."""

    attempt: int
    of: int
    data: tuple[bytes, ...]


class CompleteEvent(NamedTuple):
    """All bytes of an event are there."""

    data: bytes


def taken(pending: PendingParts | None, event: GroupPart) -> PendingParts | CompleteEvent | None:
    """What is there with this part: some of an event, all of it, or nothing that can be used."""
    before: tuple[bytes, ...] = ()
    if event.part > 0:
        is_next = (
            pending is not None
            and (pending.attempt, pending.of) == (event.attempt, event.count)
            and len(pending.data) == event.part
        )
        if pending is None or not is_next:
            return None
        before = pending.data
    data = (*before, event.data)
    if len(data) == event.count:
        return CompleteEvent(b"".join(data))
    return PendingParts(event.attempt, event.count, data)


def event_parts(event: GroupEvent, *, bytes_max: int, attempt: int) -> tuple[GroupPart, ...]:
    """The parts to append in this order; each is encoded to no more bytes than `bytes_max`.

    None at all if that would be too many. `attempt` is drawn anew for each event.
    """
    room = bytes_max - ENCLOSING_BYTES_MAX - len(event.group_id.encode())
    data = encode_group_event(event)
    starts = range(0, len(data), max(room, 1))
    if room < 1 or len(starts) > PARTS_MAX:
        return ()
    parts = tuple(
        GroupPart(event.group_id, attempt, part, len(starts), data[start : start + room])
        for part, start in enumerate(starts)
    )
    assert all(len(encode_group_part(part)) <= bytes_max for part in parts[:1])
    return parts


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(GroupPart)


def encode_group_part(part: GroupPart) -> bytes:
    """The part's bytes."""
    return _ENCODER.encode(part)


def decode_group_part(data: memoryview) -> GroupPart:
    """The part; what cannot be understood is `Corrupt` and stops the domain (rule 11)."""
    try:
        part = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"a part of a group's event cannot be understood: {error}") from None
    if not 0 <= part.part < part.count <= PARTS_MAX:
        raise Corrupt(f"a part of a group's event is number {part.part} of {part.count}")
    return part


ITEM_OVERHEAD_BYTES: Final = 11
"""A pair, a string and bytes of any length: at most 1, 5 and 5 bytes to say so."""

EVENT_OVERHEAD_BYTES: Final = 5 + 9 + 9
"""How many pairs there are, and the two numbers of a part."""


def sync_parts(event: Sync, *, bytes_max: int, attempt: int) -> tuple[Sync, ...]:
    """The event, or the parts to append in this order; none if one assignment alone is too large.

    `attempt` is drawn anew for each request and not 0: parts of different requests do not mix.
    """
    room = bytes_max - len(encode_group_event(replace(event, assignments=())))
    room -= EVENT_OVERHEAD_BYTES
    sizes = [
        ITEM_OVERHEAD_BYTES + len(member_id.encode()) + len(assignment)
        for member_id, assignment in event.assignments
    ]
    if sum(sizes) <= room:
        return (event,)
    if max(sizes) > room:
        return ()
    starts = [0]
    filled = 0
    for place, size in enumerate(sizes):
        if filled + size > room:
            starts.append(place)
            filled = 0
        filled += size
    ends = [*starts[1:], len(sizes)]
    return tuple(
        replace(
            event,
            assignments=event.assignments[start:end],
            is_last=end == len(sizes),
            attempt=attempt,
            part=part,
        )
        for part, (start, end) in enumerate(zip(starts, ends, strict=True))
    )
