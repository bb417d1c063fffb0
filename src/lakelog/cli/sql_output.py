"""The result of a query on standard output: a table for people; CSV, JSON or lines for programs.

All but the table are written as the rows come, however many there are. JSON is one list of objects,
`jsonl` one object a line.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from lakelog.cli.output import show, table

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
    from lakelog.cli.sql_values import values_of  # noqa: PLC0415 - needs Arrow, as the reader does

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
    from lakelog.cli.sql_values import text_of  # noqa: PLC0415 - as above

    text = "NULL" if value is None else text_of(value)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= CELL_CHARACTERS else f"{text[: CELL_CHARACTERS - 1]}…"


def _csv(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    from lakelog.cli.sql_values import text_of  # noqa: PLC0415 - as above

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
    from lakelog.cli.sql_values import json_of  # noqa: PLC0415 - as above

    for row in rows:
        yield json_of(dict(zip(names, row, strict=True)))
