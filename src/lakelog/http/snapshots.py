"""Snapshots of tables and offsets of groups over HTTP, for `lakelog.tables`; read only.

/read/v1/snapshots        the newest snapshots of a topic's table, and where the rest is
/read/v1/snapshot_pages   the rest, page by page
/read/v1/group            what a group has committed in a topic
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from starlette.routing import BaseRoute

from lakelog.http.asking import Answer, Asking, question_in
from lakelog.http.reading_messages import PATH
from lakelog.http.snapshot_messages import (
    ANSWER_BYTES,
    GROUP,
    QUESTION_BYTES_MAX,
    SNAPSHOT_PAGES,
    SNAPSHOTS,
    GroupAnswer,
    GroupQuestion,
    PagesAnswer,
    PagesQuestion,
    SnapshotsAnswer,
    SnapshotsQuestion,
)


class KnownSnapshots(Protocol):
    """What an index tells of a table's snapshots."""

    @property
    def topic_id(self) -> bytes:
        """Sixteen bytes."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""

    @property
    def kept_from_ms(self) -> int:
        """What expired before is not told."""

    @property
    def live(self) -> bytes:
        """A page of those that the table has."""

    @property
    def recent(self) -> bytes:
        """A page of those that it let go of last."""

    @property
    def first(self) -> int:
        """The first of the pages with the rest."""

    @property
    def end(self) -> int:
        """Where those pages end."""


class Committed(Protocol):
    """What an index tells of a group."""

    @property
    def topic_id(self) -> bytes:
        """Sixteen bytes."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""

    @property
    def offsets(self) -> dict[int, int]:
        """Committed offsets by partition."""


class ReadableSnapshots(Protocol):
    """What is asked about; an Enum names what there is not. Raises `Unavailable`."""

    async def snapshots(self, topic: str) -> KnownSnapshots | Enum:
        """What is known of the snapshots of a topic's table."""

    async def page(self, topic_id: bytes, number: int) -> bytes | None:
        """A page of older snapshots; None when it was deleted."""

    async def committed(self, group: str, topic: str) -> Committed | Enum:
        """What a group has committed in a topic."""


@dataclass(frozen=True, slots=True)
class SnapshotPages:
    """Answers questions about snapshots and groups."""

    index: ReadableSnapshots

    async def snapshots(self, body: bytes) -> SnapshotsAnswer:
        """The newest snapshots of a table."""
        topic = question_in(body, SnapshotsQuestion).topic
        found = await self.index.snapshots(topic)
        if isinstance(found, Enum):
            return SnapshotsAnswer(str(found.value))
        return SnapshotsAnswer(
            topic_id=found.topic_id,
            partition_count=found.partition_count,
            kept_from_ms=found.kept_from_ms,
            live=found.live,
            recent=found.recent,
            first=found.first,
            end=found.end,
        )

    async def pages(self, body: bytes) -> PagesAnswer:
        """Older snapshots."""
        question = question_in(body, PagesQuestion)
        pages: list[bytes | None] = []
        size = 0
        for number in question.numbers:
            page = await self.index.page(question.topic_id, number)
            size += len(page or b"")
            if pages and size > ANSWER_BYTES:
                break
            pages.append(page)
        return PagesAnswer(pages)

    async def group(self, body: bytes) -> GroupAnswer:
        """Where a group is."""
        question = question_in(body, GroupQuestion)
        found = await self.index.committed(question.group, question.topic)
        if isinstance(found, Enum):
            return GroupAnswer(str(found.value))
        return GroupAnswer("", found.topic_id, found.partition_count, found.offsets)


def snapshot_routes(index: ReadableSnapshots) -> list[BaseRoute]:
    """The routes that serve snapshots and groups to readers."""
    pages = SnapshotPages(index)
    answers: dict[str, Answer] = {
        SNAPSHOTS: pages.snapshots,
        SNAPSHOT_PAGES: pages.pages,
        GROUP: pages.group,
    }
    return Asking(PATH, QUESTION_BYTES_MAX).routes(answers)
