"""Topics, bounds and ranges, as a reader and the index speak of them. Pure.

A range [start, end) of a stream holds the same records for ever, whatever files they lie in. A
topic that was deleted and made again has other streams under its name, so a range never means
another topic than the one that it was planned for.
"""

from dataclasses import dataclass

from lakelog.reading.entries import Entries


@dataclass(frozen=True, slots=True)
class TopicStreams:
    """A topic: its id, and the stream of each partition from partition 0 on."""

    name: str
    topic_id: bytes
    streams: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a stream has: the offsets [log_start, head)."""

    log_start: int
    head: int


@dataclass(frozen=True, slots=True)
class PinnedRange:
    """The offsets [start, end) of a partition; the same records whoever reads them and when."""

    topic: str
    topic_id: bytes
    partition: int
    stream: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Where a range lies now, and what its stream has."""

    log_start: int
    head: int
    entries: Entries
