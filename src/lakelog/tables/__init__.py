"""From snapshots of tables to offsets of topics, and back.

- `functions` is what users call: `snapshots`, `offsets`, `snapshot_at`, `seen_by`, `read_seen`.
- `client` asks brokers for snapshots and groups, and goes back through older pages.
- `values` are the answers: `Snapshot`, `Offsets`, and failures named for what was not there.
"""

from lakelog.tables.functions import offsets, read_seen, seen_by, snapshot_at, snapshots
from lakelog.tables.values import (
    NoSnapshot,
    NoTable,
    NothingCommitted,
    Offsets,
    TablesFailure,
    UnknownGroup,
    UnknownSnapshot,
)
from lakelog.tables.values import TableSnapshot as Snapshot
from lakelog.tables.values import TopicNotFound as UnknownTopic

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
