"""What a broker and a reader say to each other about snapshots and groups: bodies in msgpack. Pure.

The paths are below that of `lakelog.http.reading_messages`. Pages travel as they are stored
(`lakelog.catalog.snapshot_page`): the rest of a long history is asked for page by page.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from lakelog.http.reading_messages import Natural

SNAPSHOTS: Final = "snapshots"
SNAPSHOT_PAGES: Final = "snapshot_pages"
GROUP: Final = "group"
QUESTION_BYTES_MAX: Final = 1 << 20
PAGES_PER_QUESTION: Final = 64
ANSWER_BYTES: Final = 8 << 20
"""An answer with pages ends after so many bytes, but has one page at least."""

Name = Annotated[str, Meta(max_length=1 << 16)]
TopicIdBytes = Annotated[bytes, Meta(min_length=16, max_length=16)]


class SnapshotsQuestion(Struct, frozen=True):
    """About which topic's table."""

    topic: Name


class SnapshotsAnswer(Struct, frozen=True):
    """The newest snapshots as two pages, and the numbers [first, end) of the pages with the rest.

    What there is not is named in `missing`: `topic` or `table`; the rest says nothing then.
    """

    missing: str = ""
    topic_id: bytes = b""
    partition_count: int = 0
    kept_from_ms: int = 0
    live: bytes = b""
    recent: bytes = b""
    first: int = 0
    end: int = 0


class PagesQuestion(Struct, frozen=True):
    """About which pages of which topic's history."""

    topic_id: TopicIdBytes
    numbers: Annotated[list[Natural], Meta(max_length=PAGES_PER_QUESTION)]


class PagesAnswer(Struct, frozen=True):
    """The first of the pages asked for, one at least; None for one that was deleted."""

    pages: list[bytes | None]


class GroupQuestion(Struct, frozen=True):
    """What a group has committed in a topic."""

    group: Name
    topic: Name


class GroupAnswer(Struct, frozen=True):
    """Committed offsets by partition; `missing` names `topic`, `group` or `offsets`."""

    missing: str = ""
    topic_id: bytes = b""
    partition_count: int = 0
    offsets: dict[int, int] = {}
