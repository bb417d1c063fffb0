"""`lakelog sql`: a query over topics, table and tail together, without a broker in between.

The result goes to standard output: a table for people; CSV, JSON or lines for programs. All but the
table are written as the rows come, however many there are. JSON is one list of objects, `jsonl` one
object a line.

As in `lakelog records consume`, bytes stand as text where they are UTF-8, else as base64. Times are
ISO 8601 with a Z where they have a zone, in any year: Python's dates end with the year 9999, and a
record's time does not. Numbers stay exact.
"""

import base64
import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from click.core import ParameterSource

from lakelog.cli.command import file_option, http_option, show, table
from lakelog.server.options import Address

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = ("table", "csv", "json", "jsonl")

TABLE_ROWS: Final = 1000
"""What a table shows unless it is told otherwise: its columns are only as wide as they must be, so
all of it is held in memory."""

CELL_CHARACTERS: Final = 80
"""A longer text is cut in a table."""


def print_rows(reader: "pa.RecordBatchReader", form: str, *, rows_max: int | None) -> None:
    """Print the rows in that form, and no more than asked for."""
    names = list(reader.schema.names)
    rows = _rows(reader)
    if form == "table":
        _table(names, rows, rows_max)
        return
    chosen = rows if rows_max is None else islice(rows, rows_max)
    {"csv": _csv, "json": _json, "jsonl": _lines}[form](names, chosen)


def _rows(reader: "pa.RecordBatchReader") -> Iterator[tuple[object, ...]]:
    for batch in reader:
        yield from zip(*(values_of(column) for column in batch.columns), strict=True)


def _table(names: Sequence[str], rows: Iterator[tuple[object, ...]], rows_max: int | None) -> None:
    shown = list(islice(rows, TABLE_ROWS if rows_max is None else rows_max))
    if len(names) == 2 and names == ["explain_key", "explain_value"]:
        show("\n".join(str(plan) for _, plan in shown))  # a drawing, as wide as it is
        return
    show(table(names, [[_cell(value) for value in row] for row in shown]))
    if rows_max is None and next(rows, None) is not None:
        click.echo(f"These are the first {TABLE_ROWS} rows: for more use --num.", err=True)


def _cell(value: object) -> str:
    text = "NULL" if value is None else text_of(value)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= CELL_CHARACTERS else f"{text[: CELL_CHARACTERS - 1]}…"


def _csv(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    show(_csv_line(names))
    for row in rows:
        show(_csv_line([text_of(value) for value in row]))


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)  # what ends a line is quoted in a cell
    return line.getvalue().removesuffix("\r\n")


def _json(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    show("[")
    held: str | None = None
    for row in _objects(names, rows):
        if held is not None:
            show(f"  {held},")
        held = row
    if held is not None:
        show(f"  {held}")
    show("]")


def _lines(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    for row in _objects(names, rows):
        show(row)


def _objects(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    for row in rows:
        yield json_of(dict(zip(names, row, strict=True)))


_ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


def values_of(column: "pa.Array") -> list[object]:
    """The values of a column, one for each row; None for null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return list(_lists(column))
    if pa.types.is_fixed_size_list(kind):
        return [None if one.as_py() is None else values_of(one.values) for one in column]
    if pa.types.is_struct(kind):
        return _structs(column)
    return [_plain(value) for value in column.to_pylist()]


def json_of(value: object) -> str:
    """A value as JSON on one line."""
    return _ENCODER.encode(value).decode()


def text_of(value: object) -> str:
    """A value as a cell of a table shows it: one line, whatever it holds."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_of(value)


def _plain(value: object) -> object:
    found: object
    match value:
        case bytes():
            found = _bytes(value)
        case Decimal() if value == value.to_integral_value():
            found = int(value)
        case datetime() | date() | time():
            found = value.isoformat()
        case None | bool() | int() | float() | str() | Decimal():
            found = value
        case _:
            found = str(value)
    return found


def _bytes(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _times(column: "pa.Array") -> list[object]:
    import numpy as np  # noqa: PLC0415 - slow to import
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    kind = column.type
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    texts = np.datetime_as_string(numbers.astype(f"datetime64[{kind.unit}]"), unit=kind.unit)
    end = "Z" if kind.tz else ""
    nulls = column.is_null().to_pylist()
    return [
        None if is_null else f"{_short(text)}{end}"
        for text, is_null in zip(texts.tolist(), nulls, strict=True)
    ]


def _short(text: str) -> str:
    """The time to the millisecond, which is what records have, or as exact as it is."""
    whole, point, part = text.partition(".")
    kept = part.rstrip("0").ljust(3, "0") if point else ""
    return f"{whole}{point}{kept}"


def _lists(column: "pa.Array") -> Iterator[object]:
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    if pa.types.is_map(column.type):
        pairs = zip(values_of(column.keys), values_of(column.items), strict=True)
        inner: list[object] = [list(pair) for pair in pairs]
    else:
        inner = values_of(column.values)
    edges = column.offsets.to_pylist()
    for at, is_null in enumerate(column.is_null().to_pylist()):
        yield None if is_null else inner[edges[at] : edges[at + 1]]


def _structs(column: "pa.Array") -> list[object]:
    names = [field.name for field in column.type]
    parts = [values_of(column.field(at)) for at in range(len(names))]
    nulls = column.is_null().to_pylist()
    return [
        None if is_null else dict(zip(names, (part[at] for part in parts), strict=True))
        for at, is_null in enumerate(nulls)
    ]


@click.command()
@click.argument("statement", required=False)
@click.option(
    "--file",
    "-f",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Where the statement is.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print the result.",
)
@click.option("--num", "-n", type=click.IntRange(min=0), help="Print no more rows than this.")
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of Spark's Kafka source, for all topics: failOnDataLoss=false.",
)
@http_option
@file_option
@click.pass_context
def sql(  # noqa: PLR0913 - one parameter for each option of the command
    context: click.Context,
    *,
    statement: str | None,
    source: Path | None,
    form: str,
    num: int | None,
    options: tuple[str, ...],
    http: Address,
    file: Path | None,
) -> None:
    """Run a SQL query over topics, up to the newest record; `-` reads it from standard input.

    Every topic is a table with the columns key, value, topic, partition, "offset", timestamp,
    timestampType and headers. Keys and values are bytes: decode(value) is their text. Write names
    that are no plain words in double quotes.

    \b
      lakelog sql 'SHOW TABLES'
      lakelog sql 'SELECT partition, count(*) FROM greetings GROUP BY ALL'
      lakelog sql 'SELECT decode(value) FROM greetings ORDER BY "offset" DESC LIMIT 5'
      lakelog sql "SELECT decode(value)->>'name' FROM \\"my-topic\\"" --format csv
    """
    from lakelog.lake.sql.sql_query import open_query  # noqa: PLC0415 - a start must be quick

    text = _statement(statement, source)
    # A configuration file leads to brokers by itself; an address that was given wins.
    is_given = context.get_parameter_source("http") is not ParameterSource.DEFAULT
    reader = open_query(
        text,
        server=None if file is not None and not is_given else f"http://{http}",
        config=None if file is None else str(file),
        options=dict(map(_pair, options)),
    )
    with reader:
        print_rows(reader, form, rows_max=num)


def _statement(statement: str | None, source: Path | None) -> str:
    if (statement is None) == (source is None):
        raise click.UsageError("Give one statement: as an argument, as -, or with --file.")
    if source is not None:
        written = source.read_bytes()
    elif statement == "-":
        written = sys.stdin.buffer.read()
    else:
        return str(statement)
    try:
        return written.decode()
    except UnicodeDecodeError as reason:
        raise click.UsageError(f"The statement is no UTF-8 text: {reason}") from None


def _pair(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals:
        raise click.UsageError(f"--option takes NAME=VALUE, not {option!r}.")
    return name, value
