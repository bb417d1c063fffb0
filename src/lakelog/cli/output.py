"""What commands print: tables for people, JSON for programs. Results go to standard output."""

import json
import sys
from collections.abc import Mapping, Sequence

GAP = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in columns, as wide as they need to be."""
    texts = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    lines = (
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )
    return "\n".join(lines)


def show(text: str) -> None:
    """Print a line as UTF-8, whatever the terminal thinks it is."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


def show_json(value: object) -> None:
    """Print a value as indented JSON."""
    show(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def show_rows(head: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    """Print rows as a table with these columns, or all they hold as JSON."""
    if as_json:
        show_json(list(rows))
        return
    show(table([name.upper() for name in head], [[row[name] for name in head] for row in rows]))
