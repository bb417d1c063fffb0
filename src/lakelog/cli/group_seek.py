"""Moving a group's committed offsets: what the user said, the dry run, the commit.

A target is an offset as `records consume` takes it (`start`, `end`, `+n`, `-n`, `n`, `@time`), with
Kafka's words `earliest` and `latest`; a date or a number of 13 digits is a time also without `@`.
No move leaves what the partition holds: it is clamped to [start, end], and says so. After the
commit, what is there is read back. A group with members is never moved: its members commit where
they are, and would undo the move.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias, assert_never

import click

from lakelog.cli.command import partition_text
from lakelog.cli.group_offsets import known_topics, offsets_at, positions
from lakelog.cli.group_view import Position, describe_group
from lakelog.cli.offsets import At, Bound, End, Exact, OffsetError, Start, parse
from lakelog.kafka_client.admin import TopicPartition, load_committed, try_commit
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import BrokerError
from lakelog.kafka_client.metadata import TopicMetadata
from lakelog.model.errors import ErrorCode

TARGETS: Final = "earliest, latest, n, +n, -n or a time (a date, milliseconds, @-1h)"

_WORDS: Final = {"earliest": "start", "latest": "end"}
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{13}|-\d+(\.\d+)?(ms|s|m|h|d)", re.ASCII)
_SCOPE: Final = re.compile(r"(?P<topic>[^:]+)(:(?P<partitions>\d{1,9}(,\d{1,9})*))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shift:
    """So many records on from the committed offset, or back if less than 0."""

    by: int


Target: TypeAlias = Bound | Shift


@dataclass(frozen=True, slots=True)
class Scope:
    """A topic, and which of its partitions; None is all."""

    topic: str
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's committed offset before and after; without an aim it stays as it is."""

    at: TopicPartition
    before: int | None
    after: int | None
    note: str = ""

    def row(self) -> dict[str, object]:
        """The move as a row of a table."""
        known = self.before is not None and self.after is not None
        return {
            "topic": self.at.topic,
            "partition": self.at.partition,
            "from": self.before,
            "to": self.after,
            "change": (self.after or 0) - (self.before or 0) if known else None,
            "note": self.note,
        }


def parse_target(text: str, *, now_ms: int) -> Bound:
    """Read where to go; raises OffsetError."""
    word = _WORDS.get(text.strip(), text.strip())
    if _TIME.fullmatch(word):
        word = f"@{word}"
    try:
        found = parse(word, now_ms=now_ms)
    except OffsetError:
        raise OffsetError(f"{text!r} is no place to go; write {TARGETS}") from None
    if found.end is not None or word.endswith(":"):
        raise OffsetError(f"{text!r} is a range; write one place: {TARGETS}")
    return found.start


def parse_scope(text: str) -> Scope:
    """Read `topic` or `topic:0,3`; raises OffsetError."""
    found = _SCOPE.fullmatch(text)
    if found is None:
        raise OffsetError(f"{text!r} is no topic; write NAME, or NAME:0,3 for some partitions")
    listed = found["partitions"]
    if listed is None:
        return Scope(found["topic"], None)
    return Scope(found["topic"], tuple(sorted({int(each) for each in listed.split(",")})))


def plan(position: Position, target: Target, *, at: int | None = None) -> Move:
    """The move of one partition; `at` is where the target's time is in it, -1 if nowhere."""
    before, start, end = position.committed, position.start, position.end
    if start is None or end is None:
        return Move(position.at, before, None, position.trouble)
    aim = _aim(position, target, start=start, end=end, at=at)
    if aim is None:
        return Move(position.at, before, None, "never committed")
    if aim < start:
        return Move(position.at, before, start, f"{aim} is below the log start")
    if aim > end:
        return Move(position.at, before, end, f"{aim} is beyond the end")
    if isinstance(target, At) and (at is None or at < 0):
        return Move(position.at, before, end, "no record is that late")
    return Move(position.at, before, aim)


def explain(target: Target) -> str:
    """A target in words, so that a number that was read as a time is seen to be one."""
    match target:
        case Shift(by=by):
            return f"by {by:+d} records"
        case Start(skip=skip):
            return f"to {skip} records after the log start" if skip else "to the log start"
        case End(back=back):
            return f"to {back} records before the end" if back else "to the end"
        case Exact(offset=offset):
            return f"to offset {offset}"
        case At(timestamp_ms=timestamp_ms):
            return f"to the first record of {_moment(timestamp_ms)} or later"
    assert_never(target)


def _aim(position: Position, target: Target, *, start: int, end: int, at: int | None) -> int | None:
    match target:
        case Shift(by=by):
            return None if position.committed is None else position.committed + by
        case Start(skip=skip):
            return start + skip
        case End(back=back):
            return end - back
        case Exact(offset=offset):
            return offset
        case At():
            return end if at is None or at < 0 else at
    assert_never(target)


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""What a coordinator says to a commit of no member while the group has some."""


@dataclass(frozen=True, slots=True)
class Seeking:
    """What the user asked for; without scopes, every partition that the group has committed."""

    group: str
    scopes: tuple[Scope, ...]
    target: Target


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a seek would do, and the members that it met."""

    seeking: Seeking
    moves: list[Move]
    members: int | None
    """How many members the group has; None if there is no such group yet."""

    def offsets(self) -> dict[TopicPartition, int]:
        """What would be committed."""
        return {move.at: move.after for move in self.moves if move.after is not None}


@dataclass(frozen=True, slots=True)
class Executed:
    """What became of a seek."""

    prepared: Prepared
    refused: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]

    def failures(self) -> list[str]:
        """What is not as it was to be, and why."""
        found = []
        for move in self.prepared.moves:
            at, now = move.at, self.committed.get(move.at)
            named = partition_text(at)
            if move.after is None:
                found.append(f"{named}: not moved, {move.note}")
            elif at in self.refused:
                found.append(str(BrokerError(self.refused[at], named)))
            elif now != move.after:
                found.append(f"{named}: {now} is committed, not {move.after}")
        return found


async def prepare(cluster: KafkaCluster, seeking: Seeking) -> Prepared:
    """Find out what a seek would do; nothing is written."""
    members = await _members(cluster, seeking.group)
    committed = await load_committed(cluster, seeking.group, None, cluster.deadline())
    if not seeking.scopes and not committed:
        raise click.ClickException(
            f"{seeking.group}: nothing is committed there, so name the topics with --topic"
        )
    names = [scope.topic for scope in seeking.scopes] or [at.topic for at in committed]
    topics = await known_topics(cluster, names)
    wanted = _wanted(seeking.scopes, topics) if seeking.scopes else set(committed)
    found = await positions(cluster, topics, committed, wanted)
    times: Mapping[TopicPartition, int | str] = {}
    if isinstance(seeking.target, At):
        times = await offsets_at(cluster, topics, wanted, seeking.target.timestamp_ms)
    moves = []
    for position in found:
        at = times.get(position.at)
        if isinstance(at, str):
            moves.append(Move(position.at, position.committed, None, at))
        else:
            moves.append(plan(position, seeking.target, at=at))
    return Prepared(seeking, moves, members)


async def execute(cluster: KafkaCluster, prepared: Prepared) -> Executed:
    """Commit what was prepared, and read back what is committed then."""
    group, offsets = prepared.seeking.group, prepared.offsets()
    if prepared.members:
        raise click.ClickException(has_members(group, prepared.members))
    if not offsets:
        raise click.ClickException(f"{group}: there is nothing to move")
    refused = await try_commit(cluster, group, offsets, cluster.deadline())
    if HAS_MEMBERS.intersection(refused.values()):
        raise click.ClickException(has_members(group, None))
    committed = await load_committed(cluster, group, None, cluster.deadline())
    return Executed(prepared, refused, committed)


def has_members(group: str, count: int | None) -> str:
    """Why a group cannot be moved now, and what to do."""
    some = {None: "members", 1: "1 live member"}.get(count, f"{count} live members")
    return (
        f"{group}: the group has {some}. They would commit over what is set here:"
        " stop them, or wait until their sessions end, and try again."
    )


async def _members(cluster: KafkaCluster, group: str) -> int | None:
    try:
        _, facts = await describe_group(cluster, group)
    except BrokerError as failure:
        if failure.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return len(facts.members)


def _wanted(scopes: Iterable[Scope], topics: Mapping[str, TopicMetadata]) -> set[TopicPartition]:
    wanted = set()
    for scope in scopes:
        topic = topics.get(scope.topic)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, scope.topic)
        known = topic.leaders
        indexes = tuple(known) if scope.partitions is None else scope.partitions
        for index in indexes:
            at = TopicPartition(scope.topic, index)
            if index not in known:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition_text(at))
            wanted.add(at)
    return wanted
