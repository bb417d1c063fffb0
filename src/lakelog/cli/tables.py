"""`lakelog tables`: list, describe, snapshots. A broker is asked over its HTTP port.

What is not known is `-` in a table and null in JSON.
"""

import urllib.parse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from lakelog.cli.conversation import json_option
from lakelog.cli.http_pages import asked, http_option
from lakelog.cli.output import show, show_json, show_rows
from lakelog.server.address import Address

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LIST_HEAD: Final = ("table", "rows", "files", "snapshots", "rows_behind", "seconds_behind")
PARTITION_HEAD: Final = (
    "partition",
    "log_start",
    "table_end",
    "head",
    "rows_behind",
    "seconds_behind",
)
SNAPSHOT_HEAD: Final = (
    "snapshot_id",
    "made",
    "operation",
    "added_rows",
    "deleted_rows",
    "rows",
    "files",
)


@click.group()
def tables() -> None:
    """List and describe the Iceberg tables of topics."""


@tables.command(name="list")
@http_option
@json_option
def list_tables(http: Address, as_json: bool) -> None:
    """List the tables of all topics, and how far each is behind its topic.

    ROWS_BEHIND counts offsets that the table lacks; SECONDS_BEHIND is the age of the oldest object
    of the log that is not compacted yet.
    """
    found = asked(http, "/admin/tables")
    assert isinstance(found, list)
    if as_json:
        show_json(found)
        return
    _show(LIST_HEAD, found)
    for row in found:
        if row["error"] is not None:
            click.echo(f"{row['table']}: {row['error']}", err=True)


@tables.command()
@click.argument("topic")
@http_option
@json_option
def describe(topic: str, http: Address, as_json: bool) -> None:
    """Show a topic's table, partition by partition.

    \b
      lakelog tables describe greetings
    """
    found = _table(http, topic)
    if as_json:
        show_json(found)
        return
    names = ("table", "uuid", "location", "metadata_location", "snapshot_id", "snapshots")
    for name in (*names, "rows", "files", "bytes", "rows_behind", "seconds_behind", "error"):
        if found[name] is not None:
            show(f"{name.replace('_', ' ')}: {found[name]}")
    show("")
    _show(PARTITION_HEAD, found["partitions"])


@tables.command()
@click.argument("topic")
@http_option
@json_option
def snapshots(topic: str, http: Address, as_json: bool) -> None:
    """List the snapshots that a topic's table still has, the oldest first."""
    found = _table(http, topic)["history"]
    rows = [{**row, "made": _moment(row["timestamp_ms"])} for row in found]
    if as_json:
        show_json(rows)
        return
    _show(SNAPSHOT_HEAD, rows)


def _table(http: Address, topic: str) -> dict[str, list[dict[str, object]]]:
    found = asked(http, f"/admin/tables/{urllib.parse.quote(topic, safe='')}")
    assert isinstance(found, dict)
    return found


def _show(head: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    shown = [{name: "-" if row[name] is None else row[name] for name in head} for row in rows]
    show_rows(head, shown, as_json=False)


def _moment(timestamp_ms: object) -> str:
    assert isinstance(timestamp_ms, int), timestamp_ms
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
