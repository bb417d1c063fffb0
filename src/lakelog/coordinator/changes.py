"""What an applied record means for a group: the group before and after, and whose member differs.

Groups are values, so "nothing changed" is "the same object", and the same holds for members. Pure.
"""

from dataclasses import dataclass

from lakelog.groups.state import ClassicGroup, Group


@dataclass(frozen=True, slots=True)
class Change:
    """A group that is another one now."""

    group_id: str
    before: Group | None
    after: Group | None
    members: tuple[str, ...]
    """The ids of the members that came, went or changed."""

    @property
    def has_moved(self) -> bool:
        """Whether the group is in another phase, so that every member may be concerned."""
        before, after = self.before, self.after
        if not isinstance(before, ClassicGroup) or not isinstance(after, ClassicGroup):
            return True
        return before.state is not after.state or before.generation != after.generation


def change_of(group_id: str, before: Group | None, after: Group | None) -> Change:
    """The difference between two groups of one id."""
    old = {} if before is None else before.members
    new = {} if after is None else after.members
    differing = [name for name, member in new.items() if old.get(name) is not member]
    came = sum(name not in old for name in differing)
    if len(old) + came > len(new):
        differing += [name for name in old if name not in new]
    return Change(group_id, before, after, tuple(differing))
