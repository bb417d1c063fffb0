"""DuckDB, as statements over topics need it: what a statement names, and one run of it.

Rules:

- A statement reads. Anything but a query is refused, and before it runs DuckDB is shut off from the
  machine and its settings are locked: it opens the data files of the topics that the statement
  names, its own folder for what does not fit memory, and nothing else. A query that somebody else
  wrote can be tried without fear for one's files, and a misspelt topic is never a file or a
  variable that happens to have that name.
- Names mean topics. DuckDB's own parser finds them, so those that a statement defines itself do not
  count.
- Times are shown in UTC.
"""

import json
import os
import re
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa

from lakelog.model.failures import Failure
from lakelog.reading.plan import Hinted
from lakelog.reading.source import Reached
from lakelog.reading.sql_names import lists_topics, names_in
from lakelog.reading.sql_scan import TopicRows
from lakelog.reading.sql_view import Parts, empty_view, parts_of, text, view

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


class Moved(Failure):
    """A data file went away under a run: the same rows are elsewhere now."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, and the names in it that it does not define itself."""

    text: str
    names: tuple[str, ...]
    lists_topics: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What one run needs: a query, and what its names mean."""

    statement: Statement
    topics: Mapping[str, Sequence[Hinted]]
    """The pinned ranges of each topic, by the name that DuckDB is to know it by."""
    listed: Sequence[str]
    """Topics that are only to be listed."""
    reached: Reached | None
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


class Run:
    """One run of a query; its columns are known at once, its rows come as they are taken."""

    def __init__(self, work: Work, *, scan_files: bool) -> None:
        """Start it; raises `BadStatement`, `Moved` and what reading the topics raises."""
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
            parts = parts_of(ranges, work.directory if scan_files else None)
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

    def _scan(self, parts: Parts) -> TopicRows:
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
            return Moved("a data file was deleted while it was read: run the statement again")
        return BadStatement(_hinted(str(error)))


def _hinted(said: str) -> str:
    """DuckDB's words, with the remedy for what everybody meets first."""
    said = said.strip()
    if "syntax error" in said and "offset" in said.lower():
        return f'{said}\nOFFSET is a word of SQL: the column is written "offset", in double quotes.'
    if "disabled by configuration" in said or "disabled through configuration" in said:
        return f"{said}\nA statement reads topics, and no other files: see docs/reading.md."
    return said
