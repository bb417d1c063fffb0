"""What must hold of the saga's world in every state, and what its end must look like."""

from tests.compaction.saga_world import Index, Stored, Table, World, entry_of, is_wal

from lakelog.compaction.journal import is_open
from lakelog.streams.objects import FileKind


def flaw(world: World) -> str | None:
    """What must not be in this state, None when all is well."""
    return (
        _missing(world)
        or _index_flaw(world.stream)
        or _table_flaw(world.table, world.stream)
        or _swap_flaw(world.table, world.stream)
    )


def _missing(world: World) -> str | None:
    """Whatever a snapshot, an entry or an open task names is there and holds what they say."""
    held = {one.name: one for one in world.files}
    named = [*world.table.files, *world.stream.entries]
    record = world.record
    if record is not None and is_open(record) and record.file is not None:
        named.append(Stored(record.file.name, record.file.start, record.file.end))
    for one in named:
        found = held.get(one.name)
        if found is None:
            return f"{one.name} is named and not there"
        if found.end != one.end or found.start > one.start:
            return f"{one.name} does not hold [{one.start}, {one.end})"
    return None


def _table_flaw(table: Table, index: Index) -> str | None:
    """The files tile [table start, vector), but for what the log has nothing for."""
    reach = 0
    for one in table.files:
        if one.start < reach:
            return f"rows from {one.start} on are in the table twice"
        if any(_wants(index, offset) for offset in range(reach, one.start)):
            return f"rows of [{reach}, {one.start}) are missing in the table"
        reach = one.end
    return None if (reach or None) == table.vector else f"vector {table.vector}, files {reach}"


def _wants(index: Index, offset: int) -> bool:
    """Whether the log holds this offset for the table: not trimmed, not kept as a segment."""
    if not index.alive or offset < index.log_start:
        return False
    (entry,) = [one for one in index.entries if one.start <= offset < one.end]
    return entry_of(entry).kind is not FileKind.SEGMENT


def _index_flaw(index: Index) -> str | None:
    """The entries tile [log start, head); only the first may begin before the log start."""
    if not index.alive:
        return None
    reach = index.entries[0].start if index.entries else index.head
    for one in index.entries:
        if one.start != reach:
            return f"the index has a hole or an overlap at {reach}"
        reach = one.end
    covers = not index.entries or index.entries[0].start <= index.log_start < index.entries[0].end
    if reach != index.head or not covers:
        return f"the index does not cover [{index.log_start}, {index.head})"
    if not index.entries and index.log_start != index.head:
        return "the index is empty and the log is not"
    return None


def _swap_flaw(table: Table, index: Index) -> str | None:
    """A data file is in the index only if the table has it."""
    committed = {one.name for one in table.files}
    for one in index.entries:
        if entry_of(one).kind is FileKind.PARQUET and one.name not in committed:
            return f"the index names {one.name}, the table does not"
    return None


def is_good_end(world: World) -> bool:
    """Everything compacted, the record at its end, and nothing in the store that nobody names."""
    record, index = world.record, world.stream
    if world.flying or world.sweep or any(one.at != "idle" for one in world.workers):
        return False
    if any(is_wal(one) for one in index.entries):
        return False
    if record is not None and (is_open(record) or not index.alive):
        return False
    named = {one.name for one in (*world.table.files, *index.entries)}
    return all(one.name in named for one in world.files)
