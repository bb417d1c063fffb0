"""The documents as tests read them: pages, fenced examples, tables behind a marker."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: what stands behind its opening backticks, and its text."""

    place: str
    words: tuple[str, ...]
    text: str


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def fences(path: Path) -> Iterator[Fence]:
    opened: tuple[int, str] | None = None
    body: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("```"):
            body.append(line)
        elif opened is None:
            opened, body = (number, line.removeprefix("```")), []
        else:
            place = f"{path.relative_to(ROOT)}:{opened[0]}"
            yield Fence(place, tuple(opened[1].split()), "\n".join(body) + "\n")
            opened = None
    assert opened is None, f"{path}: the fence of line {opened} is not closed"


def all_fences(*words: str) -> list[Fence]:
    """Every fence whose opening begins with these words."""
    found = [fence for path in pages() for fence in fences(path)]
    return [fence for fence in found if fence.words[: len(words)] == words]


def rows(lines: list[str]) -> list[list[str]]:
    """The cells of a table, without its head."""
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def marked_tables(path: Path, kind: str) -> list[tuple[str, list[list[str]]]]:
    """The tables directly behind `<!-- kind: subject -->`, by subject."""
    found = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(rf"<!-- {kind}: (\S+) -->", line)
        if match:
            table = takewhile(lambda each: each.startswith("|"), lines[number:])
            found.append((match[1], rows(list(table))))
    return found


def section(path: Path, heading: str) -> list[str]:
    """The lines below a heading, up to the next one of its rank or higher."""
    lines = path.read_text().splitlines()
    start = lines.index(heading) + 1
    rank = len(heading.split(maxsplit=1)[0])
    for end in range(start, len(lines)):
        match = re.match(r"(#+) ", lines[end])
        if match and len(match[1]) <= rank:
            return lines[start:end]
    return lines[start:]
