"""Pages that are read like a notebook: code, and below it what it prints."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import fences


@dataclass(frozen=True, slots=True)
class Cell:
    """A block of code and the text block that follows it, if one does."""

    place: str
    code: str
    printed: str | None


def cells(path: Path, mark: str) -> list[Cell]:
    """The blocks that open with `python` and this mark, in order."""
    found = []
    blocks = list(fences(path))
    for at, fence in enumerate(blocks):
        if fence.words[:2] != ("python", mark):
            continue
        after = blocks[at + 1] if at + 1 < len(blocks) else None
        printed = after.text if after is not None and after.words == ("text",) else None
        found.append(Cell(fence.place, fence.text, printed))
    return found


def run_cells(
    chosen: Sequence[Cell], changes: dict[str, str], **names: object
) -> dict[str, object]:
    """Run them one after another in one namespace; each prints exactly what stands below it."""
    space: dict[str, object] = {"__name__": "__page__", **names}
    for cell in chosen:
        code = cell.code
        for old, new in changes.items():
            code = code.replace(old, new)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, cell.place, "exec"), space)  # the page's own code
        shown = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
        expected = (cell.printed or "").rstrip("\n")
        assert shown.rstrip("\n") == expected, f"{cell.place} prints\n{out.getvalue()}"
    return space
