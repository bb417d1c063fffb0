"""From snapshots of tables to offsets of topics, and back."""

from lakelog.tables.functions import offsets, read_seen, seen_by, snapshot_at, snapshots
from lakelog.tables.values import (
    NoSnapshot,
    NoTable,
    NothingCommitted,
    Offsets,
    Snapshot,
    TablesFailure,
    UnknownGroup,
    UnknownSnapshot,
    UnknownTopic,
)

__all__ = [
    "NoSnapshot",
    "NoTable",
    "NothingCommitted",
    "Offsets",
    "Snapshot",
    "TablesFailure",
    "UnknownGroup",
    "UnknownSnapshot",
    "UnknownTopic",
    "offsets",
    "read_seen",
    "seen_by",
    "snapshot_at",
    "snapshots",
]
