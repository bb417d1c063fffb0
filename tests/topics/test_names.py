import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.topics import names
from lakelog.topics.failures import InvalidTopic


@pytest.mark.parametrize("name", ["a", "A-9", "a.b_c", "...", "x" * 249, "__consumer_offsets"])
def test_kafkas_names_are_allowed(name: str) -> None:
    names.check(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "bad name!", "a/b", "ä", "a\n", "a\x00", "٣"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopic, match="Topic name is invalid"):
        names.check(name)


@given(st.text(alphabet="ab._", min_size=1, max_size=8))
def test_names_that_differ_only_in_dots_and_underscores_are_unified(name: str) -> None:
    other = name.translate(str.maketrans("._", "_."))
    assert names.unified(name) == names.unified(other)
    assert other.startswith(names.collision_prefix(name))
    assert (other != name) <= names.can_collide(name)
