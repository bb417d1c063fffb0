import pytest

from lakelog.groups.events import (
    DeleteGroup,
    Join,
    TargetAssignment,
    decode_group_event,
    encode_group_event,
)
from lakelog.model.failures import Corrupt


def decoded(data: bytes) -> object:
    return decode_group_event(memoryview(data))


def test_an_event_is_read_as_it_was_written() -> None:
    protocols = (("range", b"\x00\xff"), ("", b""))
    event = Join("g", "m", True, None, "c", "/h", 1, 2, "t", protocols, 3, 4, 5)
    assert decoded(encode_group_event(event)) == event


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x92\x63\xa1g",  # a tag that nobody knows
        encode_group_event(DeleteGroup("group"))[:-1],
        encode_group_event(DeleteGroup("group"))[:-1] + b"\xff",  # no text
    ],
)
def test_bytes_that_are_no_event_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="cannot be understood"):
        decoded(data)


@pytest.mark.parametrize("place", [-1, 1])
def test_a_target_that_gives_away_what_it_does_not_name_is_corrupt(place: int) -> None:
    event = TargetAssignment("g", 1, 0, "uniform", (b"T" * 16,), (("m", ((place, (0,)),)),))
    with pytest.raises(Corrupt, match="does not name"):
        decoded(encode_group_event(event))
