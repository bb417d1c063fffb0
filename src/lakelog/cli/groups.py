"""`lakelog groups`: list, describe, delete, seek.

They speak to any Kafka cluster. What is not known is `-` in a table and null in JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from lakelog.cli import group_seek, group_view
from lakelog.cli.command import (
    ClientConfig,
    converse,
    json_option,
    kafka_options,
    show,
    show_json,
    show_rows,
)
from lakelog.cli.group_offsets import dated, known_topics, positions
from lakelog.cli.group_seek import (
    TARGETS,
    Executed,
    Prepared,
    Seeking,
    Shift,
    Target,
    explain,
    has_members,
    parse_scope,
    parse_target,
)
from lakelog.cli.group_view import (
    NO_GROUP,
    GroupFacts,
    GroupMemberView,
    Position,
    describe_group,
    partitions_text,
    row,
)
from lakelog.cli.offsets import OffsetError
from lakelog.clock import SystemClock
from lakelog.kafka_client.admin import at_coordinator, load_committed
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import BrokerError
from lakelog.kafka_client.metadata import ClusterNode
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

NOTE = "note"
MOVE_HEAD = ("topic", "partition", "from", "to", "change", NOTE)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """All there is to say of a group at one moment."""

    node: ClusterNode
    facts: GroupFacts
    positions: tuple[Position, ...]
    now_ms: int

    def summary(self) -> dict[str, object]:
        """The group itself as a row."""
        return {
            "group": self.facts.group,
            "state": self.facts.state,
            "type": self.facts.type,
            "protocol": self.facts.protocol or None,
            "assignor": self.facts.assignor or None,
            "epoch": self.facts.epoch,
            "assignment_epoch": self.facts.assignment_epoch,
            "coordinator": self.node.id,
            "address": str(self.node.address),
        }

    def partitions(self) -> list[dict[str, object]]:
        """How far it is behind, a row a partition."""
        return [row(position, self.now_ms) for position in self.positions]


def show_facts(head: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    """Print rows as `show_rows` does; notes get a column only if there are any."""
    if as_json:
        show_json(list(rows))
        return
    if not any(each.get(NOTE) for each in rows):
        head = [name for name in head if name != NOTE]
    show_rows(
        head,
        [{name: "-" if each[name] is None else each[name] for name in head} for each in rows],
        as_json=False,
    )


def show_groups(found: Sequence[GroupDescription], *, as_json: bool) -> None:
    """Print groups with their partitions and members."""
    if as_json:
        show_json(
            [
                {
                    **each.summary(),
                    "partitions": each.partitions(),
                    "members": [_member(member) for member in each.facts.members],
                }
                for each in found
            ]
        )
        return
    for number, each in enumerate(found):
        if number:
            show("")
        _show_group(each)


def show_moves(prepared: Prepared) -> None:
    """Print what a seek would do."""
    show(f"Group {prepared.seeking.group} {explain(prepared.seeking.target)}\n")
    show_facts(MOVE_HEAD, [move.row() for move in prepared.moves], as_json=False)


def show_dry_run(prepared: Prepared, *, as_json: bool) -> None:
    """Print what a seek would do, and on standard error that it was not done."""
    if as_json:
        show_json(_seek(prepared, [move.row() for move in prepared.moves], executed=False))
    else:
        show_moves(prepared)
    group = prepared.seeking.group
    if prepared.members:
        refusal = has_members(group, prepared.members)
        click.echo(f"Warning: --execute would be refused. {refusal}", err=True)
    elif prepared.members is None:
        click.echo(f"There is no group {group} yet; --execute makes it.", err=True)
    click.echo("Dry run: nothing was committed. Add --execute to commit it.", err=True)


def show_executed(done: Executed, *, as_json: bool) -> None:
    """Print what is committed after a seek."""
    rows = [
        {**move.row(), "committed": done.committed.get(move.at)} for move in done.prepared.moves
    ]
    if as_json:
        show_json(_seek(done.prepared, rows, executed=True))
        return
    show("\nCommitted now:\n")
    show_facts(("topic", "partition", "committed"), rows, as_json=False)


def _show_group(found: GroupDescription) -> None:
    show(f"Group {found.facts.group}\n")
    head: tuple[str, ...]
    head = ("state", "type", "protocol", "assignor", "epoch", "coordinator", "address")
    show_facts(head, [found.summary()], as_json=False)
    if found.positions:
        show("")
        head = ("topic", "partition", "committed", "end", "lag", "seconds", NOTE)
        show_facts(head, found.partitions(), as_json=False)
    if found.facts.members:
        show("")
        head = ("member", "instance", "client", "host", "zone", "epoch", "assigned")
        rows = [{**_member(each), "assigned": _assigned(each)} for each in found.facts.members]
        show_facts(head, rows, as_json=False)


def _member(member: GroupMemberView) -> dict[str, object]:
    return {
        "member": member.id,
        "instance": member.instance,
        "client": member.client,
        "host": member.host,
        "zone": member.zone,
        "epoch": member.epoch,
        "assigned": member.assigned,
        "target": member.target,
    }


def _assigned(member: GroupMemberView) -> str:
    text = partitions_text(member.assigned)
    if member.target in (None, member.assigned):
        return text
    return f"{text} -> {partitions_text(member.target)}"


def _seek(
    prepared: Prepared, rows: Sequence[Mapping[str, object]], *, executed: bool
) -> dict[str, object]:
    return {
        "group": prepared.seeking.group,
        "executed": executed,
        "members": prepared.members,
        "partitions": list(rows),
    }


REASONS: Final = {
    int(ErrorCode.GROUP_ID_NOT_FOUND): NO_GROUP,
    int(ErrorCode.NON_EMPTY_GROUP): "it has live members; stop them first",
}


@click.group()
def groups() -> None:
    """List, describe, delete and move consumer groups."""


@groups.command(name="list")
@click.option("--state", "-s", "states", metavar="STATE,...", help="Only groups in these states.")
@click.option("--type", "-t", "types", metavar="TYPE,...", help="Only `classic` or `consumer`.")
@kafka_options()
@json_option
def list_groups(states: str | None, types: str | None, kafka: ClientConfig, as_json: bool) -> None:
    """List the groups of all brokers.

    \b
      lakelog groups list --state empty,stable --type consumer
    """
    wanted = group_view.GroupFilter(
        _chosen(states, group_view.STATES, "state"), _chosen(types, group_view.TYPES, "type")
    )
    listings = converse(kafka, lambda cluster: group_view.list_groups(cluster, wanted))
    head = ("group", "state", "type", "protocol", "coordinator", "address")
    show_facts(head, group_view.joined(listings), as_json=as_json)
    _end_with([listing.failure for listing in listings if listing.failure])


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@kafka_options()
@json_option
def describe(names: tuple[str, ...], kafka: ClientConfig, as_json: bool) -> None:
    """Show how far groups are behind, and who their members are.

    LAG is what is left to read, in records; SECONDS is how long the first of them has waited.
    """
    found: list[GroupDescription] = []
    failures: list[str] = []

    async def talk(cluster: KafkaCluster) -> None:
        for name in names:
            try:
                found.append(await _describe(cluster, name))
            except Failure as failure:
                failures.append(str(failure))

    converse(kafka, talk)
    show_groups(found, as_json=as_json)
    _end_with(failures)


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@kafka_options()
@json_option
def delete(names: tuple[str, ...], yes: bool, kafka: ClientConfig, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)} and all offsets in it?", abort=True, err=True)

    async def talk(cluster: KafkaCluster) -> list[tuple[str, str]]:
        return [(name, await _delete(cluster, name)) for name in names]

    done = converse(kafka, talk)
    rows = [{"group": name, "status": said or "OK"} for name, said in done]
    show_rows(("group", "status"), rows, as_json=as_json)
    if any(said for _, said in done):
        raise click.exceptions.Exit(1)


@groups.command()
@click.argument("group")
@click.option("--to", metavar="PLACE", help=f"Go there: {TARGETS}.")
@click.option("--by", type=int, metavar="N", help="Go N records on, or back if less than 0.")
@click.option(
    *("--topic", "-t", "topics"),
    multiple=True,
    metavar="NAME[:P,P...]",
    help="In this topic, or in these partitions of it.",
)
@click.option("--all-topics", is_flag=True, help="Wherever the group has committed.")
@click.option("--execute", is_flag=True, help="Commit it; without this it is a dry run.")
@kafka_options()
@json_option
def seek(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    group: str,
    to: str | None,
    by: int | None,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    kafka: ClientConfig,
    as_json: bool,
) -> None:
    """Move a group's committed offsets, while it has no members.

    Shows what would change; `--execute` commits it and shows what is committed then.

    \b
      lakelog groups seek billing --to earliest --topic orders
      lakelog groups seek billing --to 2026-01-31T12:00:00Z --all-topics --execute
      lakelog groups seek billing --by -100 --topic orders:0,3 --execute
    """
    seeking = _seeking(group, target=_target(to, by), topics=topics, all_topics=all_topics)

    async def talk(cluster: KafkaCluster) -> list[str]:
        prepared = await group_seek.prepare(cluster, seeking)
        if not execute:
            show_dry_run(prepared, as_json=as_json)
            return []
        if not as_json:
            show_moves(prepared)
        done = await group_seek.execute(cluster, prepared)
        show_executed(done, as_json=as_json)
        return done.failures()

    _end_with(converse(kafka, talk))


async def _describe(cluster: KafkaCluster, name: str) -> GroupDescription:
    node, facts = await describe_group(cluster, name)
    committed = await load_committed(cluster, name, None, cluster.deadline())
    wanted = {*committed, *facts.assigned()}
    topics = await known_topics(cluster, {at.topic for at in wanted})
    found = await positions(cluster, topics, committed, wanted)
    found = await dated(cluster, topics, found)
    return GroupDescription(node, facts, tuple(found), SystemClock().now_ms())


async def _delete(cluster: KafkaCluster, name: str) -> str:
    async def ask(connection: BrokerConnection) -> None:
        answer = await connection.call(DeleteGroupsRequest((name,)), DeleteGroupsResponse)
        for result in answer.results:
            if result.error_code:
                raise BrokerError(result.error_code, message=REASONS.get(result.error_code))

    try:
        await at_coordinator(cluster, name, ask, cluster.deadline())
    except Failure as failure:
        return str(failure)
    return ""


def _target(to: str | None, by: int | None) -> Target:
    if (to is None) == (by is None):
        raise click.UsageError("Say where to go: either --to or --by.")
    if by is not None:
        return Shift(by)
    assert to is not None
    try:
        return parse_target(to, now_ms=SystemClock().now_ms())
    except OffsetError as reason:
        raise click.UsageError(str(reason)) from None


def _seeking(group: str, *, target: Target, topics: Sequence[str], all_topics: bool) -> Seeking:
    if bool(topics) == all_topics:
        raise click.UsageError("Say what to move: either --topic or --all-topics.")
    try:
        return Seeking(group, tuple(parse_scope(topic) for topic in topics), target)
    except OffsetError as reason:
        raise click.UsageError(str(reason)) from None


def _chosen(text: str | None, known: Sequence[str], what: str) -> tuple[str, ...]:
    """The words of a list, as Kafka writes them; a word that it does not know is a mistake."""
    if text is None:
        return ()
    by_lower = {word.lower(): word for word in known}
    asked = [word.strip().lower() for word in text.split(",") if word.strip()]
    wrong = [word for word in asked if word not in by_lower]
    if wrong or not asked:
        raise click.UsageError(f"{text!r} is no {what}; there are {', '.join(known)}.")
    return tuple(by_lower[word] for word in asked)


def _end_with(failures: Sequence[str]) -> None:
    for failure in failures:
        click.echo(f"Error: {failure}", err=True)
    if failures:
        raise click.exceptions.Exit(1)
