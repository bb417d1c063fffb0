"""A table with many small files, and what is done to them."""

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

from pyiceberg.table import Table
from tests.catalog.kit import Place, advance, appending, exchange, facts, loaded, made, move

from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.live_files import vector_of
from lakelog.catalog.port import DataFileFacts, Replacement

Work = Callable[[BuiltinCatalog], Any]


def small(partition: int, start: int) -> DataFileFacts:
    """One of the files that are there."""
    return facts(partition, start, start + 5)


def merged(partition: int, start: int, end: int, *, rows: int | None = None) -> DataFileFacts:
    """A file for several of them."""
    whole = facts(partition, start, end, attempt="merged")
    return whole if rows is None else changed(whole, row_count=rows)


def rewrite(partition: int, start: int, end: int) -> Replacement:
    """The small files of a range become one."""
    removed = tuple(small(partition, first).key for first in range(start, end, 5))
    return Replacement(partition, removed, (merged(partition, start, end),), drops_rows=False)


async def filled(*, partitions: int = 2, files: int = 4) -> Place:
    """A table with files of five offsets each, one commit for each."""
    there = await made()
    for number in range(files):
        for partition in range(partitions):
            one = advance(partition, number * 5, number * 5 + 5)
            await there.with_catalog(appending(one))
    return there


def live(table: Table) -> list[str]:
    """The files that the newest snapshot names, twice if it names one twice."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    entries = [one for manifest in manifests for one in manifest.fetch_manifest_entry(table.io)]
    return sorted(one.data_file.file_path.removeprefix("memory:///") for one in entries)


def replacing(replacement: Replacement) -> Work:
    return lambda catalog: exchange(loaded(catalog), replacement)


def moving(catalog: BuiltinCatalog) -> Any:
    return move(loaded(catalog))


async def look(there: Place) -> tuple[list[str], dict[int, int]]:
    return await there.with_catalog(
        lambda catalog: (live(loaded(catalog)), vector_of(loaded(catalog)))
    )


def keys(*files: DataFileFacts) -> list[str]:
    return sorted(file.key for file in files)


OTHERS = tuple(small(1, start) for start in (0, 5, 10, 15))
