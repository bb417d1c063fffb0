"""Moving a group's committed offsets: the dry run, the commit, and reading back what is there.

A group with members is never moved: its members commit where they are, and would undo the move.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import click

from lakelog.cli.cluster import Cluster, Topic
from lakelog.cli.group_facts import describe_group
from lakelog.cli.group_lag import TopicPartition
from lakelog.cli.group_offsets import commit_offsets, committed_offsets, positions
from lakelog.cli.group_seek import Move, Scope, Target, plan
from lakelog.cli.offsets import At
from lakelog.cli.partition_offsets import offsets_at
from lakelog.model.errors import ErrorCode
from lakelog.server.client import KafkaFailure

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
    """What a seek would do, and the topics and the members that it met."""

    seeking: Seeking
    topics: Mapping[str, Topic]
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
            if move.after is None:
                found.append(f"{at}: not moved, {move.note}")
            elif at in self.refused:
                found.append(str(KafkaFailure(self.refused[at], about=str(at))))
            elif now != move.after:
                found.append(f"{at}: {now} is committed, not {move.after}")
        return found


async def prepare(cluster: Cluster, seeking: Seeking) -> Prepared:
    """Find out what a seek would do; nothing is written."""
    members = await _members(cluster, seeking.group)
    committed = await committed_offsets(cluster, seeking.group)
    if not seeking.scopes and not committed:
        raise click.ClickException(
            f"{seeking.group}: nothing is committed there, so name the topics with --topic"
        )
    names = [scope.topic for scope in seeking.scopes] or [at.topic for at in committed]
    topics = await cluster.topics(names=names)
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
    return Prepared(seeking, topics, moves, members)


async def execute(cluster: Cluster, prepared: Prepared) -> Executed:
    """Commit what was prepared, and read back what is committed then."""
    group, offsets = prepared.seeking.group, prepared.offsets()
    if prepared.members:
        raise click.ClickException(has_members(group, prepared.members))
    if not offsets:
        raise click.ClickException(f"{group}: there is nothing to move")
    refused = await commit_offsets(cluster, group, prepared.topics, offsets)
    if HAS_MEMBERS.intersection(refused.values()):
        raise click.ClickException(has_members(group, None))
    return Executed(prepared, refused, await committed_offsets(cluster, group))


def has_members(group: str, count: int | None) -> str:
    """Why a group cannot be moved now, and what to do."""
    some = {None: "members", 1: "1 live member"}.get(count, f"{count} live members")
    return (
        f"{group}: the group has {some}. They would commit over what is set here:"
        " stop them, or wait until their sessions end, and try again."
    )


async def _members(cluster: Cluster, group: str) -> int | None:
    try:
        _, facts = await describe_group(cluster, group)
    except KafkaFailure as failure:
        if failure.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return len(facts.members)


def _wanted(scopes: Iterable[Scope], topics: Mapping[str, Topic]) -> set[TopicPartition]:
    wanted = set()
    for scope in scopes:
        topic = topics.get(scope.topic)
        if topic is None:
            raise KafkaFailure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=scope.topic)
        indexes = tuple(topic.leaders) if scope.partitions is None else scope.partitions
        for index in indexes:
            at = TopicPartition(scope.topic, index)
            if index not in topic.leaders:
                raise KafkaFailure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(at))
            wanted.add(at)
    return wanted
