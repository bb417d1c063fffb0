"""Keys stay under their prefix."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.ids import ByteRange
from lakelog.objects.port import confined, confined_prefix, is_key, whole
from lakelog.testing.conformance_objects import HOSTILE_KEYS


@given(st.text(st.sampled_from("ab./=-_~\\ \x00%é"), max_size=12))
def test_a_key_is_its_own_normal_form_below_the_root(key: str) -> None:
    if not is_key(key):
        return
    path = PurePosixPath("/base") / key
    assert str(path) == "/base/" + key
    assert ".." not in path.parts


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_a_hostile_key_is_a_bug_of_the_caller(key: str) -> None:
    with pytest.raises(AssertionError):
        confined(key)


@pytest.mark.parametrize("prefix", ["a", "/", "a//", "../", "a/../", "~incoming/"])
def test_a_prefix_is_empty_or_a_key_and_a_slash(prefix: str) -> None:
    assert confined_prefix("") == ""
    assert confined_prefix("a/b=1/") == "a/b=1/"
    with pytest.raises(AssertionError):
        confined_prefix(prefix)


def test_no_range_is_empty() -> None:
    assert whole([ByteRange(0, 1)])
    with pytest.raises(AssertionError):
        whole([ByteRange(0, 1), ByteRange(1, 1)])
