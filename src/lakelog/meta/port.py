"""The port to the metadata store: keys with versions, logs with dense positions, sessions.

It knows nothing of Kafka. Rules every backend keeps, and the conformance suite checks:

- A key's version is greater after every change of the key, also after it was deleted and made
  again; 0 stands for "absent".
- Positions of a log are 1, 2, 3, … without hole or reuse for ever, also after a trim of
  everything and a restart; a trim never removes the newest record (rule 1).
- A read that returns began after it was called: it sees every append acknowledged before (the
  proof of currency of rule 16 rests on this).
- Writes fail as `Conflict`, `Unavailable` or `OutcomeUnknown` of `lakelog.model.failures`, reads
  as `Unavailable`; cancellation of a write leaves its outcome unknown (rule 5).
- `wait` may return early or for nothing; it is a hint to read, never a source of truth. On a store
  that was closed it is `Unavailable`, as everything else is.
- Time is an argument or a `Clock` handed to the backend; a backend starts no task that outlives
  `close`.
"""

from dataclasses import dataclass
from typing import Final, Protocol

RECORD_BYTES_MAX: Final = 1 << 20
"""The greatest log record: etcd's request limit is 1.5 MiB (rule 25)."""

VALUE_BYTES_MAX: Final = 1 << 20
"""The greatest value of a key."""

PAGE_RECORDS_MAX: Final = 4096
PAGE_BYTES_MAX: Final = 16 << 20
"""A page of a log ends after this many records or bytes, but holds one record at least (A7)."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key with its value and version."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some records of a log, in order, and how far the log reaches.

    `start` is the position of the first record here; when it is not the one asked for, what lies
    between was trimmed. `end` is the position of the newest record, 0 for an empty log.
    """

    start: int
    records: tuple[bytes, ...]
    end: int


class Session(Protocol):
    """A lease on life: keys put with it vanish when it is closed or not renewed in time."""

    @property
    def id(self) -> str:
        """A name for this session, unique for ever."""

    @property
    def kept_alive_s(self) -> float:
        """When the store last renewed it by itself, on the monotonic clock; -inf for never."""

    async def renew(self) -> None:
        """Live for another time to live; `Conflict` when the session has ended already."""

    async def close(self) -> None:
        """End the session and delete its keys."""


class MetadataLog(Protocol):
    """One ordered log of small records."""

    async def append(self, record: bytes) -> int:
        """Add a record and return its position once it is durable."""

    async def read(self, *, after: int) -> LogPage:
        """Records from position `after + 1` on, at most a page of them."""

    async def wait(self, *, after: int, timeout_s: float) -> None:
        """Return when the log may have grown beyond `after`, or when the time is over."""

    async def trim(self, *, before: int) -> None:
        """Forget records below position `before`, but never the newest one."""


class MetadataStore(Protocol):
    """Keys, logs and sessions of one cluster."""

    async def get(self, key: str) -> KeyValue | None:
        """The key's present value, or None."""

    async def range(self, prefix: str) -> list[KeyValue]:
        """All keys that begin with `prefix`, sorted by key, read at one moment."""

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        """Set the key (None deletes it) and return its new version, once it is durable.

        A deletion returns 0, the version of what is absent.

        `expect` is the version the key must have now, 0 for absent; otherwise `Conflict`. A key
        put with a session is deleted when the session ends; without one it becomes permanent.
        """

    def log(self, name: str) -> MetadataLog:
        """The log of that name; it exists from its first record on."""

    async def session(self, *, ttl_s: float, keep_s: float = 0.0) -> Session:
        """Begin a session that ends when it is not renewed within `ttl_s` seconds.

        A store that has a thread may renew it by itself while its owner is too busy to, but only
        for `keep_s` after the owner's last renewal: who is busy for longer counts as dead.
        """

    async def close(self) -> None:
        """Release what this process holds; the data stays."""
