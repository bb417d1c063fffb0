"""Ids that comments and docstrings cite are explained in the documents.

An id is a capital letter with one or two digits (`L4`, `C7`), `rule 16`, `rules 3 and 5`, or
`row 20`, `rows 58 to 60`. Invariants, rules and failures are in docs/invariants.md, rows in
docs/compatibility.md, and what a file of bench/ calls `B1` in docs/benchmarks.md.
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, ROOT

LETTERED = re.compile(r"(?<![\w-])[A-Z][0-9]{1,2}(?![\w-])")
NUMBERED = re.compile(r"\b(rule|row)s? ([1-9]\d*(?:(?:, | and | to |, and )\d+)*)\b", re.IGNORECASE)


def prose(path: Path) -> Iterator[str]:
    """The comments and docstrings of a file."""
    with path.open("rb") as opened:
        for token in tokenize.tokenize(opened.readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield text
            case _:
                pass


def cited(text: str) -> set[str]:
    """The ids in a text; a span such as `rows 58 to 60` cites all in it."""
    found = set(LETTERED.findall(text))
    for kind, numbers in NUMBERED.findall(" ".join(text.split())):
        for part in re.split(r", and |, | and ", numbers):
            first, _, last = part.partition(" to ")
            span = range(int(first), int(last or first) + 1)
            found |= {f"{kind.lower()} {number}" for number in span}
    return found


def defined(page: str) -> list[str]:
    """The ids that a page explains: `- **L4** …` and `## B1: …`."""
    return re.findall(r"^(?:- \*\*|## )([A-Z]\d+|rule \d+|row \d+)\b", page, re.MULTILINE)


def explained(*names: str) -> set[str]:
    return {found for name in names for found in defined((DOCS / name).read_text())}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_every_id_that_the_code_cites_is_explained(folder: str) -> None:
    known = explained("invariants.md", "compatibility.md")
    dangling = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in sources(folder)
        for text in prose(path)
        for found in cited(text) - known
    }
    assert not sorted(dangling)


def test_every_benchmark_that_is_named_is_explained() -> None:
    known = explained("benchmarks.md", "benchmarks-groups.md")
    named = {found for path in sources("bench") for text in prose(path) for found in cited(text)}
    assert not {found for found in named if found.startswith("B")} - known


def test_an_id_is_explained_once() -> None:
    for name in ("invariants.md", "compatibility.md", "benchmarks.md", "benchmarks-groups.md"):
        found = defined((DOCS / name).read_text())
        assert len(found) == len(set(found)), name


def test_all_rules_are_explained() -> None:
    assert {f"rule {number}" for number in range(1, 26)} <= explained("invariants.md")


def test_citations_are_read_as_people_write_them() -> None:
    assert cited("rules 3 and 5, rows 58 to 60") == {
        "rule 3",
        "rule 5",
        "row 58",
        "row 59",
        "row 60",
    }
    assert cited("(C6, C7, rule\n14)") == {"C6", "C7", "rule 14"}
    assert cited("ruff B007, KIP-227, v13, UTF8, [A-Z0-9], row 0") == set()
