"""What may be deleted of data files and of tables' metadata, given all that was looked at. Pure.

The order of looking is the proof, and the caller keeps it: objects were listed first, then task
records were read, then every table, then topics and index. A file goes from record to table to
index and is named by the next before the last lets go of it (`lakelog.pipeline.saga.task_record`).

- A data file is garbage when its task's record will never name it, no table names it, and no index
  entry does. Nobody can ever name it again.
- Metadata of a table that nothing names may belong to a commit under way, which would name it when
  it lands. It is garbage for certain (`is_fenced`) when it was named once, for then its commit has
  landed and what follows writes other objects; or when the table has another token than it had
  after the object was listed first, for whatever wrote it was built on a snapshot that is gone.
- The home of a topic that is gone and has no table is garbage as a whole: a commit to a table that
  was dropped fails, and the id of a topic never comes back.
- What could not be read protects everything that it may name: a record its stream, a table its
  topic, a namespace all tables. What nobody of us writes is reported and left alone.

Sets of names are kept as 8 bytes a key (`marks`): two keys with one mark keep each other, which is
safe. A listed key takes about 150 bytes while a pass runs, a suspect 40 to 100 more between passes.
"""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lakelog.catalog.port import TableName
from lakelog.pipeline.saga.task_record import (
    FILES,
    Origin,
    TaskRecord,
    may_be_named,
    parse_output_key,
)
from lakelog.streams.objects import FileKind
from lakelog.streams.table import Int64s

TABLES: Final = "tables/"
PREFIXES: Final = (FILES, TABLES)
"""Where the objects are that are judged here."""

EXAMPLES_MAX: Final = 10

_HOME: Final = re.compile(r"tables/(?P<space>[^/]+)/(?P<table>[^/]+)/(?P<topic>[0-9a-f]{32})/")
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_METADATA: Final = re.compile(
    rf"metadata/(?:[0-9]{{5,}}-{_UUID}(?:\.gz)?\.metadata\.json"
    rf"|snap-[0-9]+-[0-9]+-{_UUID}\.avro|{_UUID}-m[0-9]+\.avro)"
)


@dataclass(frozen=True, slots=True, order=True)
class TablePrefix:
    """Where the metadata of one topic's table lies; the key of each object begins with it."""

    name: TableName
    topic_id: str


@dataclass(slots=True)
class KeySample:
    """How many there are of something, and some of them."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, one: str) -> None:
        """Count it, and remember it when it is among the first."""
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(one)


@dataclass(slots=True)
class HomeKeys:
    """The objects in a home: those whose names we give, and others."""

    ours: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ObjectListing:
    """What a listing showed, by whose it is."""

    data: list[str] = field(default_factory=list)
    homes: dict[TablePrefix, HomeKeys] = field(default_factory=dict)
    unknown: KeySample = field(default_factory=KeySample)
    count: int = 0

    def add(self, key: str) -> None:
        """Take in one key below one of the prefixes."""
        self.count += 1
        if parse_output_key(key) is not None:
            self.data.append(key)
            return
        home = _HOME.match(key)
        if home is None:
            self.unknown.add(key)
            return
        place = TablePrefix(TableName(home["space"], home["table"]), home["topic"])
        keys = self.homes.setdefault(place, HomeKeys())
        is_ours = _METADATA.fullmatch(key, home.end()) is not None
        (keys.ours if is_ours else keys.others).append(key)


def marks(keys: Collection[str]) -> Int64s:
    """The keys as sorted numbers, for `marked`; they mean nothing outside of this process."""
    found = np.fromiter(map(hash, keys), np.int64, len(keys))
    found.sort()
    return found


def merged_marks(parts: Sequence[Int64s]) -> Int64s:
    """The marks of all parts."""
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def unmarked(keys: Sequence[str], named: Int64s) -> list[str]:
    """Those of the keys that are not among the marks."""
    if not len(keys) or not len(named):
        return list(keys)
    wanted = np.fromiter(map(hash, keys), np.int64, len(keys))
    places = np.minimum(np.searchsorted(named, wanted), len(named) - 1)
    return [keys[row] for row in np.flatnonzero(named[places] != wanted).tolist()]


def unrecorded(
    data: Iterable[str], records: Mapping[int, TaskRecord], *, unreadable: Container[int]
) -> list[str]:
    """The data files that no task record names or may come to name."""
    return [
        key
        for key, origin in _origins(data)
        if origin.stream not in unreadable
        and not may_be_named(origin, key, records.get(origin.stream))
    ]


def _origins(data: Iterable[str]) -> Iterator[tuple[str, Origin]]:
    for key in data:
        origin = parse_output_key(key)
        assert origin is not None, key
        yield key, origin


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table that was read whole."""

    name: TableName
    topic_id: str
    """Empty when it is nobody's of ours."""
    token: str


@dataclass(frozen=True, slots=True, eq=False)
class SeenTables:
    """All tables, as far as they could be read."""

    tables: Mapping[TableName, SeenTable]
    named: Int64s
    """The marks of everything that any of their snapshots needs."""
    blind_spaces: frozenset[str] = frozenset()
    """Namespaces whose tables nobody could name."""
    blind_tables: frozenset[TableName] = frozenset()
    """Tables that could not be read."""

    def may_hold(self, topic: str) -> bool:
        """Whether data files of the topic may be in a table that was not read.

        A table has the very name of its topic, in every catalog that is asked through the port.
        """
        return bool(self.blind_spaces) or any(name.table == topic for name in self.blind_tables)

    def is_blind(self, name: TableName) -> bool:
        """Whether nothing is known of a table."""
        return name in self.blind_tables or name.namespace in self.blind_spaces


@dataclass(frozen=True, slots=True)
class Garbage:
    """What nothing names."""

    certain: list[str]
    """Data files and the homes of topics that are gone: nothing under way can name them."""
    metadata: Mapping[TableName, list[str]]
    """Of tables that are there: a commit under way may come to name some of it."""
    unknown: KeySample
    """What nothing names and nobody of us writes."""


def judge(
    listing: ObjectListing,
    unrecorded_data: Sequence[str],
    tables: SeenTables,
    *,
    live_topics: Container[str],
    named_files: frozenset[str],
) -> Garbage:
    """What nothing names, of all that was listed before everything else was looked at."""
    certain = _data_garbage(unrecorded_data, tables, named_files)
    unknown = KeySample(listing.unknown.count, list(listing.unknown.examples))
    homed = {table.topic_id for table in tables.tables.values()}
    metadata: dict[TableName, list[str]] = {}
    for home, keys in sorted(listing.homes.items()):
        if tables.is_blind(home.name):
            continue
        table = tables.tables.get(home.name)
        if table is not None and table.topic_id == home.topic_id:
            metadata[home.name] = unmarked(keys.ours, tables.named)
            for key in unmarked(keys.others, tables.named):
                unknown.add(key)
        elif home.topic_id not in live_topics and home.topic_id not in homed:
            certain += unmarked([*keys.ours, *keys.others], tables.named)
    return Garbage(certain, metadata, unknown)


def _data_garbage(
    keys: Sequence[str], tables: SeenTables, named_files: frozenset[str]
) -> list[str]:
    shielded: dict[str, bool] = {}
    found = []
    for key, origin in _origins(unmarked(keys, tables.named)):
        if key in named_files:
            continue
        if origin.kind is FileKind.PARQUET:  # segments are in no table
            if origin.topic not in shielded:
                shielded[origin.topic] = tables.may_hold(origin.topic)
            if shielded[origin.topic]:
                continue
        found.append(key)
    return found


@dataclass(frozen=True, slots=True)
class GarbageCandidate:
    """An object that nothing names, since when, and what its table's token was then."""

    since_s: float
    token: str | None = None
    """None: nothing that is under way can come to name it."""


def suspects_after(
    before: Mapping[str, GarbageCandidate],
    garbage: Garbage,
    *,
    tokens: Mapping[TableName, str],
    once_named: Mapping[TableName, Int64s],
    now_s: float,
) -> dict[str, GarbageCandidate]:
    """The suspects after a pass: what is named again, or could not be judged, is none any more.

    `tokens` are those of the pass; `once_named` is what each table named in passes before.
    """
    fresh = GarbageCandidate(now_s)
    suspects = {}
    for key in garbage.certain:
        known = before.get(key)
        suspects[key] = fresh if known is None else GarbageCandidate(known.since_s)
    nothing = np.zeros(0, np.int64)
    for name, keys in garbage.metadata.items():
        never_named = set(unmarked(keys, once_named.get(name, nothing)))
        for key in keys:
            first = GarbageCandidate(now_s, tokens[name] if key in never_named else None)
            suspects[key] = before.get(key, first)
    return suspects


def is_due(suspect: GarbageCandidate, *, now_s: float, grace_s: float) -> bool:
    """Whether readers had a grace to finish with it since it was first seen without a name."""
    return now_s - suspect.since_s >= grace_s


def is_fenced(suspect: GarbageCandidate, token: str) -> bool:
    """Whether no commit that is under way can name it, now that its table has this token."""
    return suspect.token is None or suspect.token != token
