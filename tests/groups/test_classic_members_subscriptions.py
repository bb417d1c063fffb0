import struct

from hypothesis import given
from hypothesis import strategies as st

from lakelog.groups.classic_members import topics_of


def subscription(*names: str, version: int = 3, tail: bytes = b"\xff\xff\xff\xff") -> bytes:
    body = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in names)
    return struct.pack(">hi", version, len(names)) + body + tail


def test_topics_are_read_whatever_follows_them() -> None:
    assert topics_of(subscription("a", "orders", tail=b"anything")) == frozenset({"a", "orders"})


def test_a_subscription_to_nothing_is_empty_and_not_unknown() -> None:
    assert topics_of(subscription()) == frozenset()


def test_bytes_of_other_programs_tell_nothing() -> None:
    for metadata in (
        b"",
        b"\x00",
        b"json {}",
        subscription("a", version=-1),
        subscription("abc")[:-7],
        struct.pack(">hi", 0, 2_000_000_000),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ):
        assert topics_of(metadata) is None


@given(st.binary(max_size=64))
def test_no_bytes_are_an_error(metadata: bytes) -> None:
    found = topics_of(metadata)
    assert found is None or all(isinstance(name, str) for name in found)


@given(st.lists(st.text(max_size=8), max_size=8), st.integers(0, 9))
def test_every_version_gives_its_topics(names: list[str], version: int) -> None:
    assert topics_of(subscription(*names, version=version)) == frozenset(names)
