"""SQL over topics, table and tail together: `lakelog.sql('SELECT count(*) FROM "my-topic"')`.

Every name in a statement is a topic, with the columns of Spark's Kafka source and all headers. A
statement sees all of its topics at one offset for each partition, taken when it is given; those
are the rows that `lakelog.read` gives at these offsets. DuckDB runs the statement.

A data file that DuckDB scans may be deleted meanwhile, minutes after something better took its
place. Then the statement runs again at the same offsets, by the reader that finds rows wherever
they are now.
"""

import difflib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakelog.config.named_options import CONFIG, SERVER, BadOption
from lakelog.index.ports import ReadIndex
from lakelog.lake.read.arrow_reader import run_on_thread
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.read_options import ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN, parse_read
from lakelog.lake.read.read_request import ReadRequest, Subscribed
from lakelog.lake.read.topic_source import TopicSource, find_cluster, local_directory, open_source
from lakelog.model.failures import Refused

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.lake.sql.duckdb_engine import BoundStatement, QueryRun, Statement

MISSING: Final = "SQL needs DuckDB and Arrow: pip install 'lakelog[sql]'"
NAMES_SHOWN: Final = 5

_log: Final = logging.getLogger(__name__)


def query(
    statement: str,
    *,
    server: str | None = None,
    config: str | None = None,
    options: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> "pa.Table":
    """The result as a table; raises `BadStatement`, `BadOption` and other named failures."""
    work = _work(statement, _given(server, config, options), threads)
    from lakelog.lake.sql.duckdb_engine import DataFileGone, QueryRun  # noqa: PLC0415 - there, by `_work`

    try:
        return _table(QueryRun(work, scan_files=True))
    except DataFileGone:
        return _table(QueryRun(work, scan_files=False))


def open_query(
    statement: str,
    *,
    server: str | None = None,
    config: str | None = None,
    options: Mapping[str, str] | None = None,
    threads: int | None = None,
) -> "pa.RecordBatchReader":
    """The result as a reader of batches, planned now and made as they are taken."""
    work = _work(statement, _given(server, config, options), threads)
    import pyarrow as pa  # noqa: PLC0415 - there, by `_work`

    from lakelog.lake.sql.duckdb_engine import DataFileGone, QueryRun  # noqa: PLC0415 - there, by `_work`

    try:
        run = QueryRun(work, scan_files=True)
    except DataFileGone:
        run = QueryRun(work, scan_files=False)
    return pa.RecordBatchReader.from_batches(run.schema, _batches(run, work))


def _table(run: "QueryRun") -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - there, by `_work`

    with closing(run):
        return pa.Table.from_batches(run.batches(), run.schema)


def _batches(run: "QueryRun", work: "BoundStatement") -> "Iterator[pa.RecordBatch]":
    """The batches of the run; of another one if a file is gone before the first was given."""
    from lakelog.lake.sql.duckdb_engine import DataFileGone, QueryRun  # noqa: PLC0415 - there, by `_work`

    is_first = True
    try:
        with closing(run):
            for batch in run.batches():
                is_first = False
                yield batch
    except DataFileGone:
        if not is_first:
            raise
        again = QueryRun(work, scan_files=False)
        with closing(again):
            yield from again.batches()


def _given(
    server: str | None, config: str | None, options: Mapping[str, str] | None
) -> dict[str, str]:
    places = {SERVER: server, CONFIG: config}
    given = {**(options or {}), **{name: one for name, one in places.items() if one is not None}}
    for name in given:
        if name.lower() in (one.lower() for one in (ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN)):
            raise BadOption(name, f"{name} is not for SQL: the statement names its topics")
    return given


def _work(statement: str, given: dict[str, str], threads: int | None) -> "BoundStatement":
    """What the statement means now; raises `Refused` where DuckDB is not installed."""
    try:
        from lakelog.lake.sql import duckdb_engine  # noqa: PLC0415 - slow to import, and an extra
    except ImportError as error:
        raise Refused(MISSING) from error
    parsed = duckdb_engine.parse(statement)
    slots = threads or os.cpu_count() or 1
    if not parsed.names and not parsed.lists_topics:
        return duckdb_engine.BoundStatement(
            parsed, {}, (), None, None, fail_on_data_loss=True, threads=slots
        )
    # Any topic will do to list them: it is not looked up.
    subscribed = ",".join(parsed.names) or "listed"
    request = parse_read({**given, SUBSCRIBE: subscribed}, streaming=False)
    return run_on_thread(_planned(parsed, request, slots))


async def _planned(parsed: "Statement", request: ReadRequest, threads: int) -> "BoundStatement":
    from lakelog.lake.sql.duckdb_engine import BoundStatement  # noqa: PLC0415 - there, by `_work`

    environment = os.environ  # noqa: TID251 - a user's process has no other root
    reached = await find_cluster(request.connection, environment)
    source = await open_source(reached)
    try:
        listed: Sequence[str] = ()
        topics: Mapping[str, Sequence[PlannedRange]] = {}
        if parsed.lists_topics:
            listed = sorted(one.name for one in await source.index.topics(None))
        else:
            topics = await _pinned(source, parsed, request)
    finally:
        await source.close()
    directory = local_directory(reached.objects_url)
    return BoundStatement(
        parsed,
        topics,
        listed,
        reached,
        None if directory is None else str(directory),
        fail_on_data_loss=request.fail_on_data_loss,
        threads=threads,
    )


async def _pinned(
    source: TopicSource, parsed: "Statement", request: ReadRequest
) -> dict[str, list[PlannedRange]]:
    """The ranges of every topic of the statement, all at one offset vector."""
    meant = await topics_meant(source.index, parsed.names)
    request = replace(request, topics=Subscribed(tuple(sorted(set(meant.values())))))
    found = await source.pin(request)
    notes = [*request.notes, *found.notes]
    options = RowOptions((), request.fail_on_data_loss, note=notes.append)
    hinted = await source.hinted(found.ranges, options)
    for note in notes:
        _log.warning("%s", note)
    by_topic: dict[str, list[PlannedRange]] = {name: [] for name in meant.values()}
    for one in hinted:
        by_topic[one.pinned.topic].append(one)
    return by_topic


async def topics_meant(index: ReadIndex, names: Sequence[str]) -> dict[str, str]:
    """The topic that each name of a statement means; raises `BadStatement`.

    SQL does not tell small letters from capitals, so a name may be written otherwise than its
    topic, where only one topic has such a name; and a statement cannot name two of them.
    """
    from lakelog.lake.sql.duckdb_engine import BadStatement  # noqa: PLC0415 - there, by `_work`

    there = {one.name for one in await index.topics(names)}
    unknown = [name for name in names if name not in there]
    known = [one.name for one in await index.topics(None)] if unknown else []
    meant = {}
    by_lower: dict[str, str] = {}
    for name in names:
        alike = [name] if name in there else [o for o in known if o.lower() == name.lower()]
        if len(alike) != 1:
            raise BadStatement(_unknown(name, alike, known))
        other = by_lower.setdefault(name.lower(), alike[0])
        if other != alike[0]:
            both = f"{other} and {alike[0]}"
            raise BadStatement(f"{both} are one name to SQL: query them in two statements")
        meant[name] = alike[0]
    return meant


def _unknown(name: str, alike: Sequence[str], known: Sequence[str]) -> str:
    if alike:
        return f"{name} may be any of the topics {', '.join(sorted(alike))}: write it as it is"
    said = f"there is no topic {name!r}"
    close = difflib.get_close_matches(name, known, n=NAMES_SHOWN, cutoff=0.6)
    if close:
        shown = " or ".join(_written(one) for one in close)
        return f"{said}; did you mean {shown}?"
    if not known:
        return f"{said}, nor any other"
    some = ", ".join(_written(one) for one in sorted(known)[:NAMES_SHOWN])
    return f"{said}; there are {some}{', …' if len(known) > NAMES_SHOWN else ''}"


def _written(topic: str) -> str:
    """The topic as a statement has to write it."""
    plain = topic.isidentifier() and topic.isascii()
    return topic if plain else f'"{topic}"'
