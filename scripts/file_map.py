"""Write the file map: every module below `src/lakelog/` with the first sentence of its docstring,
and every file of `native/` with that of the comment that it begins with.

Run `python -m scripts.file_map` after a module came, went or changed its first sentence; the page
is checked in, and a test compares it with what this script writes. Packages stand in the order of
the layers, from the bottom up, as the import contract in `pyproject.toml` has them. The handlers of
`broker/` share one row: each is named like its API.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "lakelog"
NATIVE = ROOT / "native"
PAGE = ROOT / "docs" / "file-map.md"

HEAD = """# File map

Every module below `src/lakelog/`, by package from the bottom layer up, with the first sentence of
its docstring, and then the kernels in C. A package's own docstring says who does what in it.
Written by `scripts/file_map.py`; a test sees to it that nothing is missing.

| | |
|---|---|"""


def layers() -> list[list[str]]:
    """The layers of the import contract, from the bottom up."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (lines,) = (rule["layers"] for rule in contracts["contracts"] if rule["type"] == "layers")
    return [[name.strip() for name in line.split("|")] for line in reversed(lines)]


def first_sentence(path: Path) -> str:
    """The first paragraph's first sentence of a module's docstring."""
    return _first_sentence(ast.get_docstring(ast.parse(path.read_text())) or "")


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    end = paragraph.find(". ")
    return (paragraph if end < 0 else paragraph[: end + 1]).replace("|", r"\|")


def is_handler(path: Path) -> bool:
    """Whether a module serves an API of Kafka."""
    return path.parent.name == "broker" and "\nAPI: Final = Endpoint(" in path.read_text()


def modules(package: Path) -> Iterator[Path]:
    """The modules of a package and of those inside it, but for the generated messages."""
    for path in sorted(package.rglob("*.py")):
        if path.name != "__init__.py" and "messages" not in path.parts:
            yield path


def section(package: str) -> list[str]:
    """One package: its sentence, and a row for each of its modules."""
    place = PACKAGE / package
    if not place.is_dir():
        path = place.with_suffix(".py")
        return [f"| `{path.name}` | {first_sentence(path)} |"]
    handlers = [path.stem for path in modules(place) if is_handler(path)]
    rows = [f"| **`{package}/`** | **{first_sentence(place / '__init__.py')}** |"]
    if handlers:
        rows.append(f"| an API each | {', '.join(handlers)} |")
    return rows + [
        f"| `{path.relative_to(PACKAGE).as_posix()}` | {first_sentence(path)} |"
        for path in modules(place)
        if path.stem not in handlers
    ]


def kernels() -> Iterator[str]:
    """The files in C; `module.c` speaks for all of them."""
    for path in sorted(NATIVE.glob("*.[ch]"), key=lambda path: (path.name != "module.c", path)):
        comment = path.read_text().removeprefix("/*").partition("*/")[0]
        name, sentence = f"`native/{path.name}`", _first_sentence(comment)
        is_first = path.name == "module.c"
        yield f"| **{name}** | **{sentence}** |" if is_first else f"| {name} | {sentence} |"


def page() -> str:
    """The text of the page."""
    rows = (row for layer in layers() for package in layer for row in section(package))
    return "\n".join([HEAD, *rows, *kernels(), ""])


def main() -> int:
    """Write the page."""
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
