"""Keys that cannot leave their prefix. Pure.

A key is made of our own ids, never of what a client sent; one that breaks these rules is a bug of
the caller and stops it (S3).
"""

import re
from collections.abc import Sequence
from typing import Final

from lakelog.model.ranges import ByteRange

KEY_CHARACTERS_MAX: Final = 900
"""S3 allows 1,024 bytes with the prefix."""

_KEY: Final = re.compile(r"[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*")


def is_key(key: str) -> bool:
    """Whether this is a relative key of plain segments, none of them `.` or `..`."""
    return (
        len(key) <= KEY_CHARACTERS_MAX
        and _KEY.fullmatch(key) is not None
        and not any(segment in (".", "..") for segment in key.split("/"))
    )


def confined(key: str) -> str:
    """The key, which is asserted to stay under its prefix."""
    assert is_key(key), f"not an object key: {key!r}"
    return key


def confined_prefix(prefix: str) -> str:
    """The prefix of a listing, which is asserted to be empty or a key and a slash."""
    assert not prefix or (prefix[-1] == "/" and is_key(prefix[:-1])), f"not a prefix: {prefix!r}"
    return prefix


def whole(ranges: Sequence[ByteRange]) -> Sequence[ByteRange]:
    """The ranges, none of which may be empty: stores disagree on what that would mean."""
    assert all(len(span) > 0 for span in ranges), ranges
    return ranges
