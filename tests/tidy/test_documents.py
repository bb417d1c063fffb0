"""README, CONTRIBUTING, CHANGELOG and docs: their size, their links, their words and paths."""

import re
import tomllib
from pathlib import Path

import pytest
from scripts import file_map
from tests.docs.pages import DOCS, ROOT, pages

PACKAGE = ROOT / "src" / "lakelog"
PAGE_LINES_MAX = 400
LINE_MAX = 100
PAGES = ("design", "glossary", "invariants", "formats", "benchmarks", "compatibility")

WALK_FILES_MAX = {"Flow 1": 38, "Flow 2": 28, "Flow 3": 26, "Flow 4": 32, "Flow 5": 22}
"""How many files one may have to open to follow produce, fetch, a join, a task, a poll."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_documents_are_there() -> None:
    wanted = [DOCS / f"{name}.md" for name in PAGES] + [DOCS / "rfcs" / "0001-domain-log.md"]
    wanted += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")]
    assert not [relative(path) for path in wanted if not path.is_file()]


@pytest.mark.parametrize("path", pages(), ids=relative)
def test_a_page_fits_a_sitting_and_its_lines_a_screen(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= PAGE_LINES_MAX
    # A row of a table cannot be wrapped.
    assert not [line for line in lines if len(line) > LINE_MAX and not line.startswith("|")]
    assert lines[0].startswith("# ")


@pytest.mark.parametrize("path", pages(), ids=relative)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text())
    for link in links:
        target, _, anchor = link.partition("#")
        page = (path.parent / target).resolve() if target else path
        assert page.is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
            assert anchor in [heading.lower().replace(" ", "-") for heading in headings], link


@pytest.mark.parametrize("path", pages(), ids=relative)
def test_paths_that_a_page_names_exist(path: Path) -> None:
    named = re.findall(r"`([\w./-]+(?:\.py|\.md|/))`", path.read_text())
    missing = [name for name in named if not any((base / name).exists() for base in bases(path))]
    assert not missing


def bases(path: Path) -> tuple[Path, ...]:
    return ROOT, PACKAGE, path.parent


def test_the_file_map_is_what_the_docstrings_say() -> None:
    assert file_map.PAGE.read_text() == file_map.page(), "run `python -m scripts.file_map`"


def test_the_words_of_the_glossary_are_used_in_the_code() -> None:
    text = " ".join(path.read_text().lower() for path in sorted(PACKAGE.rglob("*.py")))
    words = glossary_words()
    assert words == sorted(words, key=str.lower)
    unused = [word for word in words if not re.search(pattern(word), text)]
    assert not unused


def glossary_words() -> list[str]:
    return re.findall(r"^- \*\*(.+?)\*\*: ", (DOCS / "glossary.md").read_text(), re.MULTILINE)


def pattern(word: str) -> str:
    """A word as code may write it: `log start`, `log_start`, `LogStart`, with its endings."""
    return r"[\s_-]*".join(map(re.escape, word.lower().split()))


@pytest.mark.parametrize("flow", WALK_FILES_MAX)
def test_a_walk_through_the_code_is_short_and_its_files_are_there(flow: str) -> None:
    section = (DOCS / "design.md").read_text().split(f"\n## {flow}: ")[1].split("\n## ")[0]
    count, walk = re.split(r"Files on the way.*? \((\d+)\): ", section)[1:]
    files = re.findall(r"`([\w/]+\.py)`", walk)
    assert len(files) == len(set(files)) == int(count) <= WALK_FILES_MAX[flow]
    assert [file for file in files if not (PACKAGE / file).exists()] == []


def test_the_changelog_knows_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", version]
