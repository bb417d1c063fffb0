"""How an event is cut into parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.groups.events import Resolved, decode_group_event
from lakelog.groups.parts import (
    PARTS_MAX,
    CompleteEvent,
    GroupPart,
    PendingParts,
    decode_group_part,
    encode_group_part,
    event_parts,
    taken,
)
from lakelog.model.failures import Corrupt


@given(st.integers(0, 5_000), st.integers(150, 2_000), st.text(max_size=10))
def test_all_parts_together_are_the_event_and_each_is_small_enough(
    size: int, bytes_max: int, group_id: str
) -> None:
    event = Resolved(group_id, "p" * size, ("a", "b"))
    parts = event_parts(event, bytes_max=bytes_max, attempt=1 << 62)
    pending: PendingParts | CompleteEvent | None = None
    for part in parts:
        encoded = encode_group_part(part)
        assert len(encoded) <= bytes_max
        assert decode_group_part(memoryview(encoded)) == part
        assert not isinstance(pending, CompleteEvent)
        pending = taken(pending, part)
    if parts:
        assert isinstance(pending, CompleteEvent)
        assert decode_group_event(memoryview(pending.data)) == event


def test_too_many_parts_are_none() -> None:
    event = Resolved("g", "p" * 100_000, ())
    assert event_parts(event, bytes_max=1_000, attempt=1) == ()
    assert event_parts(event, bytes_max=10, attempt=1) == ()
    assert 0 < len(event_parts(event, bytes_max=2_000, attempt=1)) <= PARTS_MAX


@pytest.mark.parametrize(
    "part",
    [
        GroupPart("g", 1, -1, 2, b""),
        GroupPart("g", 1, 2, 2, b""),
        GroupPart("g", 1, 0, 0, b""),
        GroupPart("g", 1, 0, PARTS_MAX + 1, b""),
    ],
)
def test_a_part_that_cannot_be_is_corrupt(part: GroupPart) -> None:
    with pytest.raises(Corrupt):
        decode_group_part(memoryview(encode_group_part(part)))


def test_bytes_that_are_no_part_are_corrupt() -> None:
    for data in (b"", b"\xc1", b"\x95\x01\x02\x03\x04\x05"):
        with pytest.raises(Corrupt):
            decode_group_part(memoryview(data))
