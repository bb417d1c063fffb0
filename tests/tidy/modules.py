"""The modules of the package as the tests of its structure see them."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lakelog"


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the package: its dotted name, its lines, its public classes."""

    name: str
    is_package: bool
    line_count: int
    classes: tuple[str, ...]
    imports: frozenset[str]
    """What it imports: modules, and names in modules."""
    is_handler: bool
    """Whether it serves an API of Kafka: those are one file each, however small."""

    @property
    def package(self) -> str:
        """The package that it is in."""
        return self.name.rpartition(".")[0]

    @property
    def is_generated(self) -> bool:
        """Whether it holds message classes, which a script writes."""
        return ".wire.messages" in self.name

    @property
    def is_ordinary(self) -> bool:
        """Whether the rules about sizes are for it."""
        return not (self.is_package or self.is_generated or self.is_handler)


@cache
def modules() -> Mapping[str, Module]:
    """All modules by name."""
    return {module.name: module for module in map(_module, sorted(PACKAGE.rglob("*.py")))}


def _module(path: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(
        ".".join(parts[:-1] if is_package else parts),
        is_package,
        len(text.splitlines()),
        tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        frozenset(_imports(tree)),
        path.parent.name == "broker" and "\nAPI: Final = Endpoint(" in text,
    )


def _imports(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def words_of(name: str) -> list[str]:
    """The words of a class or of a module, in lower case: `FetchSlot`, `fetch_slot`."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def importers() -> Mapping[str, set[str]]:
    """Who imports each module."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        for name in module.imports & modules().keys():
            found[name].add(module.name)
    return found
