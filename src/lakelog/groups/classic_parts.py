"""A leader's Sync in parts that fit into records of the domain log (K10). Pure."""

from typing import Final

from msgspec.structs import replace

from lakelog.groups.events import Sync, encode_group_event

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
