"""The target of a consumer group: who is to have what, of which topics. Pure.

`target_event` runs the assignors on what a broker knows of topics, outside of the machine;
`take_target` takes its result in, if it was made for the group's present epoch. Pure.

Kafka uses RE2J, so we use RE2 itself: time grows with the pattern times the name, never beyond,
whatever a client sends. What RE2 accepts may still be expensive by its size, so size is bounded
four times: characters, classes of Unicode, instructions of the compiled program, and the memory of
its matcher. Kafka bounds none of these; there a nested counted repetition fills the heap.

The engine is imported with the first pattern: most brokers never see one.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from msgspec.structs import replace

from lakelog.groups.assignors import ASSIGNORS, Subscriber
from lakelog.groups.events import GroupEventResult, TargetAssignment
from lakelog.groups.state import ConsumerGroup
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import TopicId

PATTERN_CHARACTERS_MAX: Final = 2048
"""Eight of the longest names side by side, or about sixty usual ones. The pattern is kept in the
log and in every member that uses it, and to compile the worst one of this length takes 35 ms."""

UNICODE_CLASSES_MAX: Final = 16
"""How often `\\p` or `\\P` may stand in a pattern: names are ASCII, and each costs 0.1 ms."""

PROGRAM_INSTRUCTIONS_MAX: Final = 2560
"""Any pattern of plain characters fits; a name costs no more than this much per character."""

ENGINE_BYTES_MAX: Final = 1 << 20
"""The memory of one compiled pattern with its cache of states. A larger one makes plain patterns no
faster, and hostile ones, which fill any cache, slower (measured up to 8 MiB)."""


class PatternError(ValueError):
    """Not a pattern that we accept; the text says why and may go to the client."""


class CompiledRegex(Protocol):
    """What we use of RE2's compiled expression."""

    @property
    def programsize(self) -> int:
        """The number of instructions."""

    def fullmatch(self, text: bytes) -> object | None:
        """Something, if the text matches from end to end."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled subscription pattern."""

    text: str
    engine: CompiledRegex = field(repr=False, compare=False)


def compile_pattern(text: str) -> Pattern:
    """The compiled pattern; raises PatternError with a reason that a client can read."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"longer than {PATTERN_CHARACTERS_MAX} characters")
    if text.count("\\p") + text.count("\\P") > UNICODE_CLASSES_MAX:
        raise PatternError(f"more than {UNICODE_CLASSES_MAX} classes of Unicode")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise PatternError("not a text of Unicode") from error
    engine = _compile(encoded)
    if engine.programsize > PROGRAM_INSTRUCTIONS_MAX:
        raise PatternError("pattern too large")
    return Pattern(text, engine)


def matching(pattern: Pattern, names: Iterable[str]) -> tuple[str, ...]:
    """The names that match from end to end, sorted."""
    fullmatch = pattern.engine.fullmatch
    return tuple(sorted({name for name in names if fullmatch(name.encode()) is not None}))


def _compile(encoded: bytes) -> CompiledRegex:
    import re2  # noqa: PLC0415 - 4 ms and 3 MB that most brokers never need

    options = re2.Options()
    options.log_errors = False  # it would write to standard error
    options.never_capture = True
    options.max_mem = ENGINE_BYTES_MAX
    try:
        engine: CompiledRegex = re2.compile(encoded, options)
    except re2.error as error:
        (reason,) = error.args
        readable = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(readable) from error
    finally:
        # The module keeps the last 128 expressions for ever; ours live as long as their users.
        re2.purge()
    return engine


_MASK: Final = (1 << 63) - 1


def needs_target(group: ConsumerGroup) -> bool:
    """Whether the group has members that its target does not take into account yet."""
    return group.epoch > group.target_epoch


def fingerprint(topics: Mapping[str, tuple[TopicId, int]]) -> int:
    """A number that stands for topics, their ids and their partition counts; 0 for none."""
    if not topics:
        return 0
    digest = blake2b(digest_size=8)
    for name in sorted(topics):
        topic, partitions = topics[name]
        # The length first: no two lists of topics are written the same way.
        written = name.encode(errors="surrogatepass")
        digest.update(len(written).to_bytes(4, "big") + written)
        digest.update(topic + partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big") & _MASK or 1


def target_event(
    group: ConsumerGroup,
    *,
    topics: Mapping[str, tuple[TopicId, int]],
    assignor_default: str,
) -> TargetAssignment:
    """The target for the group's present epoch.

    `topics` are the known ones among those that the group reads: name -> (id, partitions). What the
    present target gives to a member is where a sticky assignor begins.
    """
    assignor = preferred_assignor(group, assignor_default)
    counts = dict(topics.values())
    assigned = ASSIGNORS[assignor](_subscribers(group, topics), counts)
    used = sorted({topic for share in assigned.values() for topic in share})
    places = {topic: place for place, topic in enumerate(used)}
    names = {topic: name for name, (topic, _) in topics.items()}
    return TargetAssignment(
        group.group_id,
        epoch=group.epoch,
        fingerprint=fingerprint(topics),
        assignor=assignor,
        topics=tuple(used),
        shares=tuple(
            (
                member_id,
                tuple((places[topic], share[topic]) for topic in sorted(share)),
            )
            for member_id, share in assigned.items()
            if share
        ),
        names=tuple(names[topic] for topic in used),
    )


def _subscribers(
    group: ConsumerGroup, topics: Mapping[str, tuple[TopicId, int]]
) -> list[Subscriber]:
    # Most members read the same: their topics are looked up once.
    known: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}
    subscribers = []
    for member in group.members.values():
        subscription = (member.names, member.pattern)
        if subscription not in known:
            names = (*member.names, *group.resolved.get(member.pattern, ()))
            known[subscription] = frozenset(topics[name][0] for name in names if name in topics)
        target = group.target.get(member.member_id, {})
        subscribers.append(
            Subscriber(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack=member.rack_id,
                topics=known[subscription],
                owned={TopicId(topic): partitions for topic, partitions in target.items()},
            )
        )
    return subscribers


def preferred_assignor(group: ConsumerGroup, assignor_default: str) -> str:
    """What most of the members that chose an assignor chose; "uniform" wins a tie, as in Kafka."""
    chosen = Counter(
        member.assignor for member in group.members.values() if member.assignor in ASSIGNORS
    )
    if not chosen:
        return assignor_default
    return max(chosen, key=lambda name: (chosen[name], name))


def take_target(
    group: ConsumerGroup, event: TargetAssignment
) -> tuple[ConsumerGroup, GroupEventResult]:
    """Take in a target that was made for the group as it is now; another one is refused."""
    if event.epoch != group.epoch or not needs_target(group):
        return group, GroupEventResult(ErrorCode.ILLEGAL_GENERATION)
    if not _is_sound(group, event):
        return group, GroupEventResult(ErrorCode.INVALID_REQUEST)
    target = {
        member_id: {event.topics[place]: partitions for place, partitions in share}
        for member_id, share in event.shares
    }
    after = replace(
        group,
        target_epoch=event.epoch,
        fingerprint=event.fingerprint,
        assignor=event.assignor,
        target=target,
        topic_names=dict(zip(event.topics, event.names, strict=False)),
    )
    return after, GroupEventResult(ErrorCode.NONE)


def _is_sound(group: ConsumerGroup, event: TargetAssignment) -> bool:
    """Whether the target gives each partition once, to members that there are (rule 10)."""
    if len(event.names) not in (0, len(event.topics)):
        return False
    places = range(len(event.topics))
    given: list[tuple[int, int]] = []
    for member_id, share in event.shares:
        named = [place for place, _ in share]
        if member_id not in group.members or not _is_once(named):
            return False
        if not all(place in places for place in named):
            return False
        given += [(place, partition) for place, partitions in share for partition in partitions]
    members = [member_id for member_id, _ in event.shares]
    return _is_once(given) and _is_once(event.topics) and _is_once(members)


def _is_once(things: Sequence[Hashable]) -> bool:
    return len(set(things)) == len(things)
