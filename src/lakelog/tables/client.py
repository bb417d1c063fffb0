"""Asks brokers about snapshots and groups, and finds the snapshot that somebody looks for.

A table's own snapshots come first and its history after them, the newest page first; older pages
are asked for only while a newer snapshot may be in them. What a broker says is checked before it is
believed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from lakelog.catalog.snapshot_page import SnapshotFact, SnapshotPage, decode_page
from lakelog.index.http_client import BrokerClient
from lakelog.index.messages import (
    PAGES_PER_QUESTION,
    GroupAnswer,
    GroupQuestion,
    Missing,
    PagesAnswer,
    PagesQuestion,
    SnapshotsAnswer,
    SnapshotsQuestion,
)
from lakelog.model.failures import Unavailable
from lakelog.tables.values import (
    NoTable,
    NothingCommitted,
    TopicNotFound,
    UnknownGroup,
    newest,
)

PARTITIONS_MAX: Final = 1 << 20
TOPIC_ID_BYTES: Final = 16


class SnapshotClient:
    """Snapshots and groups of a running cluster, through whichever of these brokers answers."""

    def __init__(self, client: BrokerClient, brokers: Sequence[str]) -> None:
        self.brokers = tuple(brokers)
        """Whom to ask for more."""
        self.client = client

    async def found(self, topic: str) -> "SnapshotSearch":
        """The newest snapshots of a topic's table; raises `TopicNotFound` and `NoTable`."""
        answer = await self.client.ask("snapshots", SnapshotsQuestion(topic), SnapshotsAnswer)
        _check_there(answer.missing, topic)
        _check_topic(answer.topic_id, answer.partition_count)
        return SnapshotSearch(self, topic, answer)

    async def committed(self, group: str, topic: str) -> GroupAnswer:
        """What a group has committed in a topic.

        Raises `TopicNotFound`, `UnknownGroup` and `NothingCommitted`.
        """
        answer = await self.client.ask("group", GroupQuestion(group, topic), GroupAnswer)
        _check_there(answer.missing, topic, group)
        _check_topic(answer.topic_id, answer.partition_count)
        if any(partition < 0 or offset < 0 for partition, offset in answer.offsets.items()):
            raise Unavailable("the answer about a group makes no sense")
        return answer


class SnapshotSearch:
    """The snapshots of a table that were looked at so far, and the way to older ones."""

    def __init__(self, client: SnapshotClient, topic: str, answer: SnapshotsAnswer) -> None:
        self.topic = topic
        self.partition_count = answer.partition_count
        self.live = {one.snapshot_id: one for one in decode_page(answer.live).facts}
        self.expired: dict[int, SnapshotFact] = {}
        self.reached = -1
        """No snapshot that was not looked at has a greater sequence number."""
        self._client = client
        self._topic_id = answer.topic_id
        self._kept_from_ms = answer.kept_from_ms
        self._first, self._end = answer.first, answer.end
        self._pages: deque[SnapshotPage] = deque()
        self._pages_next = 1
        self._take(decode_page(answer.recent))

    def all(self) -> list[SnapshotFact]:
        """All that were looked at, the newest first."""
        found = [*self.live.values(), *self.expired.values()]
        return sorted(found, key=lambda one: one.sequence_number, reverse=True)

    def get(self, snapshot_id: int) -> SnapshotFact | None:
        """The snapshot with this id, if it was looked at."""
        return self.live.get(snapshot_id) or self.expired.get(snapshot_id)

    async def newest(self, wanted: Callable[[SnapshotFact], bool]) -> SnapshotFact | None:
        """The newest snapshot that is wanted; looks as far back as it must."""
        best = newest(one for one in self.all() if wanted(one))
        while best is None or best.sequence_number < self.reached:
            fresh = await self.older()
            if fresh is None:
                break
            late = newest(one for one in fresh if wanted(one))
            best = newest(one for one in (best, late) if one is not None)
        return best

    async def older(self) -> list[SnapshotFact] | None:
        """Look at one more page; what was new in it, or None when there is none."""
        while not self._pages:
            if self._end <= self._first:
                return None
            await self._ask()
        return self._take(self._pages.popleft())

    async def _ask(self) -> None:
        start = max(self._first, self._end - self._pages_next)
        question = PagesQuestion(self._topic_id, list(range(self._end - 1, start - 1, -1)))
        pages = (await self._client.client.ask("snapshot_pages", question, PagesAnswer)).pages
        if not 0 < len(pages) <= self._end - start:
            raise Unavailable("the answer about pages is not about those asked for")
        self._pages += [decode_page(page) for page in pages if page is not None]
        self._end -= len(pages)
        # Who looks further back is likely to look even further.
        self._pages_next = min(self._pages_next * 2, PAGES_PER_QUESTION)

    def _take(self, page: SnapshotPage) -> list[SnapshotFact]:
        fresh = []
        for one in page.facts:
            is_known = one.snapshot_id in self.live or one.snapshot_id in self.expired
            if not is_known and one.expired_ms >= self._kept_from_ms:
                self.expired[one.snapshot_id] = one
                fresh.append(one)
        self.reached = page.reached
        return fresh


def _check_there(missing: str, topic: str, group: str = "") -> None:
    match missing:
        case Missing.NOTHING:
            return
        case Missing.TOPIC:
            raise TopicNotFound(f"there is no topic {topic!r}")
        case Missing.TABLE:
            raise NoTable(
                f"{topic} has no table: its lakelog.format is not parquet, or tables are off"
            )
        case Missing.GROUP:
            raise UnknownGroup(f"there is no group {group!r}")
        case Missing.OFFSETS:
            raise NothingCommitted(f"group {group!r} has committed nothing in {topic}")
        case _:
            raise Unavailable(f"the broker lacks {missing!r}, whatever that is")


def _check_topic(topic_id: bytes, partition_count: int) -> None:
    if len(topic_id) != TOPIC_ID_BYTES or not 0 < partition_count <= PARTITIONS_MAX:
        raise Unavailable("the answer about a topic makes no sense")
