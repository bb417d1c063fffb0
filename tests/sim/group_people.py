"""Who comes into simulated groups, who goes, and who does so badly."""

from tests.sim.group_classic import ClassicMember
from tests.sim.group_clients import Member
from tests.sim.group_harms import Story
from tests.sim.group_modern import ModernMember

MEMBERS_MAX = 5
PAUSE_LONG_S = 12.0
TOPICS = ("t0", "t1")


def enter(story: Story, group_id: str, *, instance_id: str | None = None) -> Member:
    """A new client comes, now and then with an instance id of its own."""
    story.born += 1
    dice, cluster = story.dice, story.cluster
    name = f"{group_id}-{story.born}"
    if instance_id is None and dice.chance(0.3):
        instance_id = f"instance-of-{name}"
    member: Member
    if story.casts[group_id] == "classic":
        member = ClassicMember(cluster, name, group_id, TOPICS, instance_id=instance_id)
        member.dies_as_leader = dice.chance(0.05) and cluster.loop.time() < 20
    else:
        pattern = "t[0-9]" if dice.chance(0.2) else None
        topics = TOPICS if pattern or dice.chance(0.8) else TOPICS[:1]
        member = ModernMember(
            cluster, name, group_id, topics, instance_id=instance_id, pattern=pattern
        )
        member.is_slow = dice.chance(0.08) and cluster.loop.time() < 20
    story.members.append(member)
    story.tasks[name] = cluster.loop.spawn(member.run(), process=None, name=name)
    return member


def end(story: Story, member: Member) -> None:
    """The client dies without a word."""
    story.tasks[member.name].cancel()
    story.members.remove(member)
    if isinstance(member, ModernMember):
        story.cluster.auditor.believers.remove(member)


def act(story: Story, until_s: float) -> None:
    """Something happens to some client."""
    dice, cluster = story.dice, story.cluster
    clear(story)
    group_id = dice.pick(sorted(story.casts))
    here = [one for one in story.members if one.group_id == group_id]
    choice = dice.number(0, 12)
    if group_id == "mixed" and choice == 0:
        _convert(story, here)
    elif len(here) < MEMBERS_MAX and (not here or choice <= 3):
        enter(story, group_id)
    elif choice <= 5:
        end(story, dice.pick(here))
        cluster.reached.add("a client died")
    elif choice == 6:
        dice.pick(here).is_leaving = True
        cluster.reached.add("a client left")
    elif choice == 7:
        _pause(story, dice.pick(here), until_s)
    elif choice == 8:
        _return(story, dice.pick(here))
    elif choice == 9 and cluster.topics.table["t0"][1] < 9:
        cluster.change_topic("t0", cluster.topics.table["t0"][1] + 1)
        cluster.reached.add("a topic grew")
    else:
        dice.pick(here).move()


def clear(story: Story) -> None:
    """Those who left are gone, and who heard that it must not go on is replaced."""
    for member in list(story.members):
        if story.tasks[member.name].done():
            problem = story.tasks[member.name].exception()
            if problem is not None:
                story.cluster.violations.append(f"{member.name}: {problem!r}")
            end(story, member)


def _pause(story: Story, member: Member, until_s: float) -> None:
    """The client stands still, perhaps longer than its session."""
    now_s = story.cluster.loop.time()
    pause_s = story.dice.pick((2.0, PAUSE_LONG_S))
    member.paused_until_s = min(now_s + pause_s, until_s)
    story.cluster.reached.add("a client stood still")


def _return(story: Story, member: Member) -> None:
    """A client is started again at once; a static one under its instance id."""
    if isinstance(member, ModernMember) and member.instance_id and story.dice.chance(0.5):
        member.goes_for_a_while = True
        member.is_leaving = True
    elif story.dice.chance(0.7) or member.instance_id is None:
        end(story, member)
    enter(story, member.group_id, instance_id=member.instance_id)
    if member.instance_id:
        story.cluster.reached.add("a static member came back")


def _convert(story: Story, members: list[Member]) -> None:
    """The group's clients are replaced by those of the other protocol."""
    for member in members:
        member.is_leaving = True
    is_classic = story.casts["mixed"] == "classic"
    story.casts["mixed"] = "modern" if is_classic else "classic"
    enter(story, "mixed")


def dismiss_doubles(story: Story) -> None:
    """Of two clients with one instance id the older is ended: only one of them can be in."""
    seen: set[tuple[str, str]] = set()
    for member in list(reversed(story.members)):
        if member.instance_id is None:
            continue
        key = (member.group_id, member.instance_id)
        if key in seen:
            end(story, member)
        seen.add(key)
