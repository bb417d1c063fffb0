"""Objects that others put, made visible over HTTP: topics, a place, and commits, below /write/v1/.

No token is asked for. The Kafka port takes records from everyone who can reach it, and so does this
one: it lets in nothing that a producer could not send, and whoever commits an object must have been
able to put it into the store, which has its own guard. An object that is committed is looked at
first, so a commit cannot point the log at nothing. A commit may be asked again by anyone, on any
broker: the application and the version in it make a repeat harmless (X1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.routing import BaseRoute

from lakelog.http.asking import Answer, Asking, question_in
from lakelog.http.reading import StorePlace
from lakelog.http.writing_messages import (
    PATH,
    QUESTION_BYTES_MAX,
    CommitAnswer,
    CommitQuestion,
    PlaceAnswer,
    Taken,
    Target,
    TargetsAnswer,
    TargetsQuestion,
)
from lakelog.log.writes import ObjectPlace, WrittenDomain
from lakelog.records.acceptance import TimestampType
from lakelog.topics.topic import Topic

COMPRESSION: Final = "producer"
"""Every topic keeps batches as they were compressed, whatever its `compression.type` says."""


class WritableLog(Protocol):
    """Where the records go. Raises `Refused`, `Unavailable` or `OutcomeUnknown`."""

    async def cluster_id(self) -> str:
        """The id of the cluster."""

    async def place(self) -> ObjectPlace:
        """What objects must be called now."""

    async def targets(self, names: Sequence[str]) -> Sequence[tuple[Topic, Sequence[int]]]:
        """Those of these topics that exist, each with the domains of its streams."""

    async def commit(
        self, application: str, version: int, placed: Mapping[int, Sequence[bytes]]
    ) -> Sequence[WrittenDomain]:
        """Make the objects visible, by domain; each is the bytes of a Commit."""


@dataclass(frozen=True, slots=True)
class WritePages:
    """Answers a writer's questions."""

    log: WritableLog
    store: StorePlace

    async def targets(self, body: bytes) -> TargetsAnswer:
        """What writers must know of topics."""
        names = question_in(body, TargetsQuestion).names
        return TargetsAnswer([_target(*found) for found in await self.log.targets(names)])

    async def place(self, _: bytes) -> PlaceAnswer:
        """Where objects are put."""
        found = await self.log.place()
        return PlaceAnswer(
            await self.log.cluster_id(),
            self.store.url,
            dict(self.store.options),
            found.zone,
            found.id_time_ms_min,
            found.object_ttl_ms,
        )

    async def commit(self, body: bytes) -> CommitAnswer:
        """Make objects visible."""
        question = question_in(body, CommitQuestion)
        placed: dict[int, list[bytes]] = {}
        for domain, commit in question.placed:
            placed.setdefault(domain, []).append(commit)
        written = await self.log.commit(question.application, question.version, placed)
        return CommitAnswer([Taken(one.domain, one.is_new, list(one.offsets)) for one in written])


def writing_routes(log: WritableLog, store: StorePlace) -> list[BaseRoute]:
    """The routes that take objects from writers."""
    pages = WritePages(log, store)
    answers: dict[str, Answer] = {
        "targets": pages.targets,
        "place": pages.place,
        "commit": pages.commit,
    }
    return Asking(PATH, QUESTION_BYTES_MAX).routes(answers)


def _target(topic: Topic, domains: Sequence[int]) -> Target:
    chosen = topic.settings
    return Target(
        topic.name,
        bytes(topic.id),
        topic.streams(),
        list(domains),
        chosen.message_bytes_max,
        COMPRESSION,
        chosen.timestamp_type is TimestampType.LOG_APPEND_TIME,
        chosen.compacted,
    )
