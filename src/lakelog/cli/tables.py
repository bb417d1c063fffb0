"""`lakelog tables`: list, describe, snapshots, offsets, at. A broker is asked over its HTTP port.

What is not known is `-` in a table and null in JSON.
"""

import urllib.parse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import click
import msgspec
from msgspec import Meta

from lakelog.cli.command import asked, http_option, json_option, show, show_json, show_rows
from lakelog.cli.offsets import At, OffsetError, parse
from lakelog.clock import SystemClock
from lakelog.server.options import Address

if TYPE_CHECKING:
    from lakelog.tables import Snapshot

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
    "live",
    "operation",
    "added_rows",
    "deleted_rows",
    "rows",
    "files",
)


UNKNOWN: Final = dict.fromkeys(("added_rows", "deleted_rows", "rows", "files"))
OFFSETS_HEAD: Final = ("partition", "offset")
SNAPSHOTS_SHOWN: Final = 100

_Partition = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Offset = Annotated[int, Meta(ge=-2, le=(1 << 63) - 1)]


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
@click.option(
    "--num",
    "-n",
    type=click.IntRange(min=0),
    default=SNAPSHOTS_SHOWN,
    show_default=True,
    help="Show the newest so many; 0: all.",
)
@http_option
@json_option
def snapshots(topic: str, num: int, http: Address, as_json: bool) -> None:
    """List the snapshots of a topic's table, the oldest first.

    Those that are not live have expired: they cannot be queried any more, and how large they were
    is not known, but where they ended is (`lakelog tables offsets`). The topic's
    lakelog.snapshots.history.ms says how long.
    """
    from lakelog import tables as library  # noqa: PLC0415 - a start must be quick

    large = {row["snapshot_id"]: row for row in _table(http, topic)["history"]}
    known = library.snapshots(topic, server=f"http://{http}", limit=num or None)
    rows = [{**UNKNOWN, **large.pop(one.id, {}), **_row(one)} for one in known]
    if not num or len(known) < num:  # those that others made have no offsets
        others = [
            {**row, "made": _moment(row["timestamp_ms"]), "live": True} for row in large.values()
        ]
        rows = sorted((*rows, *others), key=lambda row: str(row["made"]))
    if as_json:
        show_json(rows)
        return
    _show(SNAPSHOT_HEAD, [{**row, "live": "yes" if row["live"] else "no"} for row in rows])


@tables.command()
@click.argument("topic")
@click.argument("snapshot", type=int)
@http_option
@json_option
def offsets(topic: str, snapshot: int, http: Address, as_json: bool) -> None:
    """Show where a snapshot ends: for each partition the first offset that it does not hold.

    -2 stands for the earliest offset, where the snapshot holds nothing of a partition. The JSON is
    what Spark takes as startingOffsets.

    \b
      lakelog tables offsets greetings 4294967296
    """
    from lakelog import tables as library  # noqa: PLC0415 - a start must be quick

    found = library.offsets(topic, snapshot, server=f"http://{http}")
    if as_json:
        show(found.as_spark())
        return
    _show(OFFSETS_HEAD, [{"partition": one, "offset": offset} for one, offset in found.items()])


@tables.command()
@click.argument("topic")
@click.option("--time", help="A date, a date and time, milliseconds, or -1h: an hour ago.")
@click.option("--offsets", "given", metavar="JSON", help='By partition: {"0": 23, "1": 42}.')
@http_option
@json_option
def at(topic: str, time: str | None, given: str | None, http: Address, as_json: bool) -> None:
    """Show the newest snapshot that was there at a time, or holds nothing beyond some offsets.

    \b
      lakelog tables at greetings --time 2026-01-31T12:00
      lakelog tables at greetings --offsets '{"0": 23}'
    """
    from lakelog import tables as library  # noqa: PLC0415 - a start must be quick

    if (time is None) == (given is None):
        raise click.UsageError("Give either --time or --offsets.")
    found = library.snapshot_at(
        topic,
        time=None if time is None else _time(time),
        offsets=None if given is None else _offsets(given),
        server=f"http://{http}",
    )
    row = {**_row(found), "offsets": found.offsets.as_mapping()}
    if as_json:
        show_json(row)
        return
    for name, value in row.items():
        show(f"{name.replace('_', ' ')}: {value}")


def _row(snapshot: "Snapshot") -> dict[str, object]:
    """What is known of every snapshot."""
    return {
        "snapshot_id": snapshot.id,
        "made": _written(snapshot.time),
        "operation": snapshot.operation,
        "live": snapshot.is_live,
    }


def _offsets(text: str) -> dict[int, int]:
    try:
        return msgspec.json.decode(text, type=dict[_Partition, _Offset])
    except (msgspec.MsgspecError, UnicodeEncodeError) as reason:
        raise click.BadParameter(f"{text!r} is not offsets by partition: {reason}") from None


def _time(text: str) -> datetime:
    wrong = click.BadParameter(f"{text!r} is no time; write a date, milliseconds or -1h")
    try:
        found = parse(f"@{text}", now_ms=SystemClock().now_ms())
        if isinstance(found.start, At) and found.end is None:
            return _EPOCH + timedelta(milliseconds=found.start.timestamp_ms)
    except (OffsetError, OverflowError):
        raise wrong from None
    raise wrong


def _table(http: Address, topic: str) -> dict[str, list[dict[str, object]]]:
    found = asked(http, f"/admin/tables/{urllib.parse.quote(topic, safe='')}")
    assert isinstance(found, dict)
    return found


def _show(head: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    shown = [{name: "-" if row[name] is None else row[name] for name in head} for row in rows]
    show_rows(head, shown, as_json=False)


def _moment(timestamp_ms: object) -> str:
    assert isinstance(timestamp_ms, int), timestamp_ms
    return _written(_EPOCH + timedelta(milliseconds=timestamp_ms))


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
