"""DuckDB over topics: what a statement names, one run of it, and the rows that it asks us for.

Rules:

- A statement reads. Anything but a query is refused, and before it runs DuckDB is shut off from the
  machine and its settings are locked: it opens the data files of the topics that the statement
  names, its own folder for what does not fit memory, and nothing else. A query that somebody else
  wrote can be tried without fear for one's files, and a misspelt topic is never a file or a
  variable that happens to have that name.
- Names mean topics. DuckDB's own parser finds them, so those that a statement defines itself do not
  count.
- Times are shown in UTC.
- Rows that DuckDB cannot read by itself come as an Arrow dataset of a kind of our own. DuckDB asks
  it for the columns that a statement needs and hands over the conditions that it found, some only
  while it runs. So nothing else is decoded, and index entries that cannot hold such a row are not
  read: what the index says of an entry is a guarantee that Arrow holds the conditions against.
  DuckDB relies on the conditions being kept exactly; Arrow's scanner does that.
"""

import json
import logging
import os
import re
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from lakelog.lake.read.arrow_reader import read_batches
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.read_request import arrow_schema
from lakelog.lake.read.splits import PackOptions, pack
from lakelog.lake.read.topic_source import ClusterAddress
from lakelog.lake.sql.topic_views import (
    TAIL_COLUMNS,
    TopicParts,
    empty_view,
    lists_topics,
    names_in,
    text,
    topic_parts,
    view,
)
from lakelog.model.failures import Failure

BLOCK_ENTRIES: Final = 64
"""Index entries that are ruled out together or not at all."""

_MS_MAX: Final = ((1 << 63) - 1) // 1000

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EntryBlock:
    """The offsets [start, end) of one of the ranges, and no later time than any of them has."""

    number: int
    partition: int
    start: int
    end: int
    max_timestamp_ms: int


class TopicRows(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """Ranges of one topic; `failures` has what went wrong in reading them, in its own words."""

    def __init__(
        self,
        reached: ClusterAddress,
        ranges: Sequence[PlannedRange],
        *,
        fail_on_data_loss: bool,
        threads: int,
    ) -> None:
        self._reached = reached
        self._ranges = ranges
        self._fail_on_data_loss = fail_on_data_loss
        self._threads = threads
        self._blocks = list(blocks_of(ranges))
        self.failures: list[Failure] = []

    @property
    def schema(self) -> pa.Schema:
        """All columns but the topic."""
        return arrow_schema(TAIL_COLUMNS)

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - Arrow's name, which DuckDB gives
        **_: object,
    ) -> ds.Scanner:
        """The rows that fulfil the condition, with these columns; called once for every scan."""
        wanted = list(TAIL_COLUMNS if columns is None else columns)
        named = re.findall(r"\w+", str(filter)) if filter is not None else []
        needed = tuple(name for name in TAIL_COLUMNS if name in wanted or name in named)
        ranges = chosen(self._ranges, self._blocks, filter)
        reader = pa.RecordBatchReader.from_batches(
            arrow_schema(needed), self._batches(ranges, needed)
        )
        return ds.Scanner.from_batches(reader, columns=wanted, filter=filter)

    def _batches(
        self, ranges: Sequence[PlannedRange], columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        splits = pack(ranges, PackOptions(slots=self._threads))
        options = RowOptions(columns, self._fail_on_data_loss, note=_noted)
        try:
            yield from read_batches(self._reached, splits, options, threads=self._threads)
        except Failure as failure:
            self.failures.append(failure)  # DuckDB shows the text of a failure and drops the rest
            raise


def blocks_of(ranges: Sequence[PlannedRange]) -> Iterator[EntryBlock]:
    """The ranges in pieces of some entries, with what the index says of them."""
    for number, one in enumerate(ranges):
        entries = one.entries
        edges, times_ms = entries.edges, entries.max_timestamps_ms
        for first in range(0, len(entries), BLOCK_ENTRIES):
            stop = min(first + BLOCK_ENTRIES, len(entries))
            start = max(one.pinned.start, int(edges[first]))
            end = min(one.pinned.end, int(edges[stop]))
            if start < end:
                latest = int(times_ms[first:stop].max())
                yield EntryBlock(number, one.pinned.partition, start, end, latest)


def chosen(
    ranges: Sequence[PlannedRange], blocks: Sequence[EntryBlock], wanted: ds.Expression | None
) -> list[PlannedRange]:
    """The parts of the ranges that can hold a row that fulfils the condition, in order."""
    if wanted is None:
        return list(ranges)
    # A fragment is a file to Arrow; these are only ever asked whether they can hold such a row.
    form, files = ds.ParquetFileFormat(), LocalFileSystem()
    fragments = [
        form.make_fragment(str(at), files, partition_expression=_guarantee(block))
        for at, block in enumerate(blocks)
    ]
    known = ds.FileSystemDataset(fragments, arrow_schema(TAIL_COLUMNS), form, files)
    kept = sorted(int(one.path) for one in known.get_fragments(filter=wanted))
    runs: list[list[int]] = []
    for block in (blocks[at] for at in kept):
        if runs and runs[-1][0] == block.number and runs[-1][2] == block.start:
            runs[-1][2] = block.end
        else:
            runs.append([block.number, block.start, block.end])
    return [ranges[number].cut(start, end) for number, start, end in runs]


def _guarantee(block: EntryBlock) -> ds.Expression:
    """What is true of every row of the block."""
    known = (
        (ds.field("partition") == pa.scalar(block.partition, pa.int32()))
        & (ds.field("offset") >= block.start)
        & (ds.field("offset") < block.end)
    )
    if block.max_timestamp_ms >= _MS_MAX:
        return known
    latest_us = max(block.max_timestamp_ms, -_MS_MAX) * 1000
    return known & (ds.field("timestamp") <= pa.scalar(latest_us, pa.timestamp("us", tz="UTC")))


def _noted(note: str) -> None:
    _log.warning("%s", note)


BATCH_ROWS: Final = 65_536
"""The most rows of a result in one batch."""

_EXPLAIN: Final = re.compile(
    r"\A(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b(?:\s*\([^)]*\)|\s*analyze\b)*",
    re.IGNORECASE | re.DOTALL,
)
"""What stands before the query that is to be explained."""

_READS: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


class BadStatement(Failure):
    """A statement that cannot be run; the text says why."""


class DataFileGone(Failure):
    """A data file went away under a run: the same rows are elsewhere now."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, and the names in it that it does not define itself."""

    text: str
    names: tuple[str, ...]
    lists_topics: bool


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """What one run needs: a query, and what its names mean."""

    statement: Statement
    topics: Mapping[str, Sequence[PlannedRange]]
    """The pinned ranges of each topic, by the name that DuckDB is to know it by."""
    listed: Sequence[str]
    """Topics that are only to be listed."""
    reached: ClusterAddress | None
    directory: str | None
    """Where the data files are, if DuckDB can open them."""
    fail_on_data_loss: bool
    threads: int


def parse(statement: str) -> Statement:
    """What the text says; raises `BadStatement`."""
    with duckdb.connect(":memory:", config={"enable_external_access": False}) as parser:
        try:
            statement.encode()
            found = parser.extract_statements(statement)
            tree = _tree(parser, _EXPLAIN.sub("", statement, count=1))
            names = names_in(tree)
        except duckdb.Error as error:
            raise BadStatement(_hinted(str(error))) from None
        except UnicodeEncodeError as error:
            raise BadStatement(f"the statement is no text: {error}") from None
        except RecursionError:
            raise BadStatement("the statement is nested too deeply") from None
        own = parser.execute("SELECT view_name FROM duckdb_views() WHERE internal").fetchall()
    _check(found, is_query=tree is not None)
    internal = {name for (name,) in own}
    names = tuple(name for name in names if name.lower() not in internal)
    return Statement(statement, names, lists_topics(tree))


def _check(found: Sequence[duckdb.Statement], *, is_query: bool) -> None:
    """Whether there is one statement, and it reads."""
    if not found:
        raise BadStatement("there is no statement: write one, as SELECT count(*) FROM topic")
    if len(found) > 1 and any(one.query for one in found):
        raise BadStatement(f"there are {len(found)} statements: run them one by one")
    if len(found) > 1:
        # DuckDB makes several statements of it, one to collect the values in an enumeration.
        raise BadStatement("PIVOT needs its values here: PIVOT topic ON column IN (…)")
    kind = found[0].type
    if kind not in _READS or not is_query:
        raise BadStatement(f"topics can only be queried here, and {kind.name} is no query")


def _tree(parser: duckdb.DuckDBPyConnection, statement: str) -> object:
    """What the parser makes of a query; None where it is none."""
    found = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchone()
    tree = json.loads(found[0]) if found else {}
    return None if tree.get("error", True) else tree


class QueryRun:
    """One run of a query; its columns are known at once, its rows come as they are taken."""

    def __init__(self, work: BoundStatement, *, scan_files: bool) -> None:
        """Start it; raises `BadStatement`, `DataFileGone` and what reading the topics raises."""
        self._work = work
        self._paths: list[str] = []
        self._scans: list[TopicRows] = []
        self._open = ExitStack()
        try:
            connection = self._connected(scan_files=scan_files)
            self._reader = connection.execute(work.statement.text).to_arrow_reader(BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            self.close()
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._reader.schema

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows, to the end; raises as the start does."""
        try:
            yield from self._reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error
        finally:
            self.close()

    def close(self) -> None:
        """Let everything go."""
        self._open.close()

    def _connected(self, *, scan_files: bool) -> duckdb.DuckDBPyConnection:
        """DuckDB with the topics in it, shut off from everything else."""
        work = self._work
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="lakelog-sql-"))
        connection = self._open.enter_context(duckdb.connect(":memory:"))
        connection.execute(
            f"SET temp_directory = {text(folder)}; SET threads = {work.threads};"
            " SET TimeZone = 'UTC'; SET python_enable_replacements = false"
        )
        for name in work.listed:
            connection.execute(empty_view(name))
        # Times in the statement are only a hint: rows are the same either way.
        by_time = "timestamp" in work.statement.text.lower()
        for at, (name, ranges) in enumerate(work.topics.items()):
            parts = topic_parts(ranges, work.directory if scan_files else None)
            self._paths += parts.paths
            tail = f"~tail {at}"  # no topic can have such a name
            connection.register(tail, self._scan(parts))
            connection.execute(view(name, tail, parts, by_time=by_time))
        allowed = ", ".join(map(text, self._paths))
        connection.execute(
            f"SET allowed_paths = [{allowed}]; SET enable_external_access = false;"
            " SET lock_configuration = true"
        )
        return connection

    def _scan(self, parts: TopicParts) -> TopicRows:
        work = self._work
        assert work.reached is not None, "topics are reached"
        scan = TopicRows(
            work.reached,
            parts.tail,
            fail_on_data_loss=work.fail_on_data_loss,
            threads=work.threads,
        )
        self._scans.append(scan)
        return scan

    def _failure(self, error: Exception) -> Failure:
        """What it means that DuckDB failed."""
        for scan in self._scans:
            if scan.failures:
                return scan.failures[0]
        if any(not os.path.exists(path) for path in self._paths):
            return DataFileGone(
                "a data file was deleted while it was read: run the statement again"
            )
        return BadStatement(_hinted(str(error)))


def _hinted(said: str) -> str:
    """DuckDB's words, with the remedy for what everybody meets first."""
    said = said.strip()
    if "syntax error" in said and "offset" in said.lower():
        return f'{said}\nOFFSET is a word of SQL: the column is written "offset", in double quotes.'
    if "disabled by configuration" in said or "disabled through configuration" in said:
        return f"{said}\nA statement reads topics, and no other files: see docs/reading.md."
    return said
