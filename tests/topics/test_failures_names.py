import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.topics import failures
from lakelog.topics.failures import InvalidTopic


@pytest.mark.parametrize("name", ["a", "A-9", "a.b_c", "...", "x" * 249, "__consumer_offsets"])
def test_kafkas_names_are_allowed(name: str) -> None:
    failures.check_name(name)
    assert failures.name_fault(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "bad name!", "a/b", "ä", "a\n", "a\x00", "٣"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopic, match="Topic name is invalid"):
        failures.check_name(name)


@given(st.text(alphabet="ab._", min_size=1, max_size=8))
def test_names_that_differ_only_in_dots_and_underscores_are_unified(name: str) -> None:
    other = name.translate(str.maketrans("._", "_."))
    assert failures.unified_name(name) == failures.unified_name(other)
    assert other.startswith(failures.collision_prefix(name))
    assert (other != name) <= failures.can_collide(name)
