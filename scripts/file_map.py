"""Write the file map: every module below `src/lakelog/` with the first sentence of its docstring.

Run `python -m scripts.file_map` after a module came, went or changed its first sentence; the pages
are checked in, and a test compares them with what this script writes. Packages stand in the order
of the layers, from the bottom up, as the import contract in `pyproject.toml` has them.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "lakelog"
DOCS = ROOT / "docs"
PAGES = {"file-map": "model", "file-map-log": "log", "file-map-top": "config"}
"""Each page, and the first layer on it that holds this package."""

HEAD = """# File map{title}

Every module below `src/lakelog/`, by package from the bottom layer up, with the first sentence of
its docstring. A package's own docstring says who does what in it. Written by
`scripts/file_map.py`; a test sees to it that nothing is missing.{links}
"""


def layers() -> list[list[str]]:
    """The layers of the import contract, from the bottom up."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (lines,) = (rule["layers"] for rule in contracts["contracts"] if rule["type"] == "layers")
    return [[name.strip() for name in line.split("|")] for line in reversed(lines)]


def first_sentence(path: Path) -> str:
    """The first paragraph's first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    end = paragraph.find(". ")
    return (paragraph if end < 0 else paragraph[: end + 1]).replace("|", r"\|")


def modules(package: Path) -> Iterator[Path]:
    """The modules of a package and of those inside it, but for the generated messages."""
    for path in sorted(package.rglob("*.py")):
        if path.name != "__init__.py" and "messages" not in path.parts:
            yield path


def section(package: str) -> list[str]:
    """One package: its sentence, and a row for each of its modules."""
    place = PACKAGE / package
    if not place.is_dir():
        return [f"\n`{package}.py`: {first_sentence(place.with_suffix('.py'))}"]
    lines = [f"\n## {package}\n", first_sentence(place / "__init__.py"), "", "| | |", "|---|---|"]
    return lines + [
        f"| `{path.relative_to(PACKAGE).as_posix()}` | {first_sentence(path)} |"
        for path in modules(place)
    ]


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    texts: dict[str, list[str]] = {}
    names = list(PAGES)
    current = names[0]
    for layer in layers():
        current = next((page for page, first in PAGES.items() if first in layer), current)
        for package in layer:
            texts.setdefault(current, []).extend(section(package))
    found = {}
    for number, name in enumerate(names, start=1):
        others = [f"[{page}]({page}.md)" for page in names if page != name]
        links = f"\n\nThe other pages: {', '.join(others)}." if others else ""
        title = f", page {number}" if len(names) > 1 else ""
        found[name] = "\n".join([HEAD.format(title=title, links=links).rstrip(), *texts[name], ""])
    return found


def main() -> int:
    """Write all pages."""
    for old in DOCS.glob("file-map*.md"):
        old.unlink()
    for name, text in pages().items():
        (DOCS / f"{name}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
