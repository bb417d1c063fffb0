"""The names in a query that mean topics, found in the tree that DuckDB's own parser makes. Pure.

A name that the query defines itself, by WITH, is no topic within what it is defined for. As in
DuckDB, such a definition sees those before it and not itself, unless it is recursive: WITH orders
AS (SELECT … FROM orders) reads the topic once. Names in a schema other than `main` are DuckDB's.
"""

from collections.abc import Iterator, Mapping
from typing import Final

_LISTINGS: Final = ('"tables"', "__show_tables_expanded")
"""What SHOW TABLES and SHOW ALL TABLES look at."""


def names_in(tree: object) -> tuple[str, ...]:
    """Every name that means a topic, once, in order."""
    return tuple(sorted(set(_names(tree, frozenset()))))


def lists_topics(tree: object) -> bool:
    """Whether the query shows which tables there are."""
    return any(
        one.get("type") == "SHOW_REF" and one.get("table_name") in _LISTINGS for one in _nodes(tree)
    )


def _names(tree: object, defined: frozenset[str]) -> Iterator[str]:
    if isinstance(tree, list):
        for one in tree:
            yield from _names(one, defined)
    if not isinstance(tree, Mapping):
        return
    name = tree.get("table_name")
    if tree.get("type") == "BASE_TABLE" and isinstance(name, str):
        own = tree.get("schema_name") or tree.get("catalog_name")
        if own in ("", None, "main") and not (own != "main" and name.lower() in defined):
            yield name
        return
    for definition, query in _definitions(tree):
        itself = frozenset((definition,)) if _is_recursive(query) else frozenset()
        yield from _names(query, defined | itself)
        defined |= {definition}
    for key, one in tree.items():
        if key != "cte_map":
            yield from _names(one, defined)


def _definitions(tree: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What WITH defines at this node, in order."""
    held = tree.get("cte_map")
    pairs = held.get("map") if isinstance(held, Mapping) else None
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, Mapping):
            yield str(pair.get("key")).lower(), pair.get("value")


def _is_recursive(query: object) -> bool:
    return any(one.get("type") == "RECURSIVE_CTE_NODE" for one in _nodes(query))


def _nodes(tree: object) -> Iterator[Mapping[str, object]]:
    if isinstance(tree, Mapping):
        yield tree
        for one in tree.values():
            yield from _nodes(one)
    elif isinstance(tree, list):
        for one in tree:
            yield from _nodes(one)
