"""The difference between two groups is what came, went or is another object."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lakelog.coordinator.group_domain import diff_groups
from lakelog.groups.state import ClassicGroup, ClassicMember, ClassicState, ConsumerGroup

MEMBER = ClassicMember("", None, "c", "/h", 10_000, 60_000, (), 1, 1)


def group(members: dict[str, int]) -> ClassicGroup:
    made = {name: _MEMBERS[name, version] for name, version in members.items()}
    return ClassicGroup("g", members=made)


_MEMBERS = {
    (name, version): replace(MEMBER, member_id=name, holder_epoch=version)
    for name in "abcdef"
    for version in range(3)
}
SOME = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2))


@settings(deadline=None)
@given(SOME, SOME)
def test_the_members_that_differ_are_found(old: dict[str, int], new: dict[str, int]) -> None:
    change = diff_groups("g", group(old), group(new))
    expected = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    assert set(change.members) == expected
    assert len(change.members) == len(expected)


def test_a_group_that_comes_or_goes_concerns_all_its_members() -> None:
    there = group({"a": 1, "b": 1})
    assert diff_groups("g", None, there).members == ("a", "b")
    assert diff_groups("g", there, None).members == ("a", "b")
    assert diff_groups("g", there, None).has_moved


def test_a_group_moves_with_its_state_its_generation_or_its_protocol() -> None:
    before = group({"a": 1})
    assert not diff_groups("g", before, group({"a": 2})).has_moved
    assert diff_groups("g", before, replace(before, state=ClassicState.STABLE)).has_moved
    assert diff_groups("g", before, replace(before, generation=1)).has_moved
    assert diff_groups("g", before, ConsumerGroup("g")).has_moved
