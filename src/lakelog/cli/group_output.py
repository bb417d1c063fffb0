"""What the group commands print; what is not known is `-` in a table and null in JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from lakelog.cli.cluster import Node
from lakelog.cli.group_facts import GroupFacts, Member, partitions_text
from lakelog.cli.group_lag import Position, row
from lakelog.cli.group_seek import explain
from lakelog.cli.group_seeking import Executed, Prepared, has_members
from lakelog.cli.output import show, show_json, show_rows

NOTE = "note"
MOVE_HEAD = ("topic", "partition", "from", "to", "change", NOTE)


@dataclass(frozen=True, slots=True)
class Described:
    """All there is to say of a group at one moment."""

    node: Node
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


def show_groups(found: Sequence[Described], *, as_json: bool) -> None:
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


def _show_group(found: Described) -> None:
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


def _member(member: Member) -> dict[str, object]:
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


def _assigned(member: Member) -> str:
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
