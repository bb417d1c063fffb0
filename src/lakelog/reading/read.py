"""Topics as Arrow, without Spark and without a broker on the way of the data.

    lakelog.read("orders", server="http://127.0.0.1:8080")            a pyarrow.Table
    lakelog.open("orders", server=…, columns=["value"])               a RecordBatchReader

The options are those of Spark's Kafka source, by the same names; `starting`, `ending`, `columns`
and `where` are shorter ways to say the usual ones. What is read is decided when the function is
called: the reader gives the rows of that moment, however late it is used. Rows come in the order of
topic, partition and offset. Several threads read and decode; memory is bounded by a few batches of
each.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lakelog.config.connection import CONFIG, SERVER
from lakelog.reading.batches import elsewhere, read_batches
from lakelog.reading.filters import Condition, checked_conditions, filters_of
from lakelog.reading.options import (
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    parse_read,
)
from lakelog.reading.request import BadOption, ReadRequest
from lakelog.reading.rows import RowOptions
from lakelog.reading.schema import arrow_schema, chosen_columns, default_columns
from lakelog.reading.source import Plan, Reached, open_source, reach

if TYPE_CHECKING:
    import pyarrow as pa

Where: TypeAlias = "str | datetime | Mapping[Any, Any] | None"
"""`earliest`, `latest`, Spark's JSON, a time, or offsets by partition: {0: 5} or {"t": {0: 5}}."""

_log: Final = logging.getLogger(__name__)


def read(  # noqa: PLR0913 - each is a thing that a user names
    topic: str | Sequence[str] | None = None,
    *,
    server: str | None = None,
    config: str | None = None,
    columns: Sequence[str] | None = None,
    starting: Where = None,
    ending: Where = None,
    where: Sequence[Sequence[object]] = (),
    threads: int | None = None,
    options: Mapping[str, str] | None = None,
) -> "pa.Table":
    """All rows as one table; raises `BadOption` and other named failures."""
    reader = open(
        topic,
        server=server,
        config=config,
        columns=columns,
        starting=starting,
        ending=ending,
        where=where,
        threads=threads,
        options=options,
    )
    return reader.read_all()


def open(  # noqa: A001, PLR0913 - `lakelog.open` reads well, and each is a thing that a user names
    topic: str | Sequence[str] | None = None,
    *,
    server: str | None = None,
    config: str | None = None,
    columns: Sequence[str] | None = None,
    starting: Where = None,
    ending: Where = None,
    where: Sequence[Sequence[object]] = (),
    threads: int | None = None,
    options: Mapping[str, str] | None = None,
) -> "pa.RecordBatchReader":
    """The rows as a reader of batches, planned now and read as they are taken."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    given = options_of(
        topic, server=server, config=config, starting=starting, ending=ending, options=options
    )
    request = parse_read(given, streaming=False)
    chosen = (
        default_columns(include_headers=request.include_headers)
        if columns is None
        else chosen_columns(columns)
    )
    task = _Task(request, chosen, checked_conditions(where), threads or os.cpu_count() or 1)
    reached, plan = elsewhere(task.planned())
    for note in plan.notes:
        _noted(note)
    return pa.RecordBatchReader.from_batches(arrow_schema(chosen), task.rows(reached, plan))


def options_of(
    topic: str | Sequence[str] | None,
    *,
    server: str | None,
    config: str | None,
    starting: Where,
    ending: Where,
    options: Mapping[str, str] | None,
) -> dict[str, str]:
    """What these arguments mean as options; raises `BadOption`."""
    given = dict(options or {})
    if topic is not None:
        names = [topic] if isinstance(topic, str) else list(topic)
        _set(given, SUBSCRIBE, ",".join(names))
    _set(given, SERVER, server)
    _set(given, CONFIG, config)
    for value, offsets, time in (
        (starting, STARTING_OFFSETS, STARTING_TIMESTAMP),
        (ending, ENDING_OFFSETS, ENDING_TIMESTAMP),
    ):
        _set(given, time if isinstance(value, datetime) else offsets, _limit(value, topic))
    return given


def _set(given: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        return
    if any(one.lower() == name.lower() for one in given):
        raise BadOption(name, f"{name} is given twice")
    given[name] = value


def _limit(value: Where, topic: str | Sequence[str] | None) -> str | None:
    """The text of an option for a place to begin or to end."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadOption("starting", f"{value!r} needs a time zone, as datetime.UTC")
        return str(round(value.timestamp() * 1000))
    if not all(isinstance(one, Mapping) for one in value.values()):
        if not isinstance(topic, str):
            raise BadOption(
                "starting", "offsets of several topics are {topic: {partition: offset}}"
            )
        value = {topic: value}
    by_name = {name: {str(key): at for key, at in one.items()} for name, one in value.items()}
    try:
        return json.dumps(by_name)
    except TypeError as reason:
        raise BadOption("starting", f"{value!r} is not offsets by partition: {reason}") from reason


@dataclass(frozen=True, slots=True)
class _Task:
    """One read: what, and with how many threads."""

    request: ReadRequest
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]
    threads: int

    async def planned(self) -> tuple[Reached, Plan]:
        """What the request means now, and where that is."""
        environment = os.environ  # noqa: TID251 - a user's process has no other root
        reached = await reach(self.request.connection, environment)
        source = await open_source(reached)
        try:
            filters = filters_of(self.conditions)
            return reached, await source.plan(self.request, filters=filters, slots=self.threads)
        finally:
            await source.close()

    def rows(self, reached: Reached, plan: Plan) -> "Iterator[pa.RecordBatch]":
        """The rows of the plan, in order; nothing is open before the first is asked for."""
        wanted = dict.fromkeys((*self.columns, *(column for column, _, _ in self.conditions)))
        since_us = filters_of(self.conditions).timestamp_start_us
        fail = self.request.fail_on_data_loss
        options = RowOptions(tuple(wanted), fail, note=_noted, since_us=since_us)
        keep = self._keep()
        with closing(read_batches(reached, plan.splits, options, threads=self.threads)) as batches:
            for batch in batches:
                yield from keep(batch)

    def _keep(self) -> "Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]":
        """What takes the wanted rows and columns out of a batch."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        if not self.conditions:
            return lambda batch: iter((batch,))
        from pyarrow.parquet import filters_to_expression  # noqa: PLC0415 - as above

        expression = filters_to_expression(list(self.conditions))
        columns = list(self.columns)

        def keep(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
            found = pa.Table.from_batches([batch]).filter(expression).select(columns)
            yield from found.to_batches()

        return keep


def _noted(note: str) -> None:
    _log.warning("%s", note)
