"""The index of a running cluster, asked over HTTP: `ports.LogIndex` for the pipeline.

Brokers are found by the metadata store. All of them give the same answers, so one that does not
answer is followed by the next; when none does, they are looked for again. A swap is different: once
its first byte left, what became of it is unknown, and nobody else is asked to do it again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lakelog.clock import Clock, Entropy
from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.index import messages
from lakelog.index.entries import StreamIndex, unpacked_columns, unpacked_range
from lakelog.index.http_client import BrokerClient, CallLimits, FindBrokers, Repeat
from lakelog.index.messages import PIPELINE, STREAMS_PER_QUESTION
from lakelog.index.ports import IndexedTopic, StreamRange, StreamView
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Refused, Unavailable
from lakelog.topics.cluster import http_addresses, pipeline_token

VIEWS_PER_QUESTION: Final = 1_000


class RemoteIndex:
    """The topics and the index of a cluster, through whichever of its brokers answers."""

    def __init__(
        self, find: FindBrokers, token: str, clock: Clock, limits: CallLimits | None = None
    ) -> None:
        self._client = BrokerClient(find, PIPELINE.path, token=token, clock=clock, limits=limits)

    @classmethod
    async def open(
        cls,
        store: MetadataStore,
        clock: Clock,
        entropy: Entropy,
        limits: CallLimits | None = None,
    ) -> "RemoteIndex":
        """The index of the cluster whose metadata store this is."""

        async def find() -> Sequence[str]:
            return await http_addresses(store)

        return cls(find, await pipeline_token(store, entropy), clock, limits)

    async def close(self) -> None:
        """End the connections and threads."""
        await self._client.close()

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return (await self._client.ask("cluster", None, messages.ClusterAnswer)).cluster_id

    async def topics(self) -> Sequence[IndexedTopic]:
        """Every topic there is, by name."""
        return (await self._client.ask("topics", None, messages.IndexedTopicsAnswer)).topics

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """Those of these streams that have WAL entries, without what is long compacted."""
        return await self._indexes("backlog", streams)

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """All entries of these streams; streams that are gone are left out."""
        return await self._indexes("columns", streams)

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        """The entries of each range, in the order asked for; None for a stream that is gone."""
        views: list[StreamView | None] = []
        while len(views) < len(ranges):
            some = ranges[len(views) : len(views) + VIEWS_PER_QUESTION]
            question = messages.ranges_question(some)
            packed = (await self._client.ask("views", question, messages.RangesAnswer)).ranges
            _check(0 < len(packed) <= len(some), "views")
            try:
                views += [
                    None if one is None else StreamView.of(wanted.stream, unpacked_range(one))
                    for wanted, one in zip(some, packed, strict=False)
                ]
            except ValueError as reason:
                raise _nonsense("views", reason) from reason
        return views

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what `apply` made of it."""
        question = messages.swap_question(swap)
        size_bytes = len(msgspec.msgpack.encode(question))
        if size_bytes > PIPELINE.question_bytes_max:
            raise Refused(f"a swap of {size_bytes} bytes")
        answer = await self._client.ask("swap", question, messages.SwapAnswer, repeat=Repeat.NEVER)
        return Swapped(answer.accepted, answer.reason)

    async def named_files(self) -> frozenset[str]:
        """The keys of all segments and data files that any entry of any stream names."""
        return frozenset((await self._client.ask("named-files", None, messages.FilesAnswer)).keys)

    async def _indexes(self, name: str, streams: Sequence[int]) -> dict[int, StreamIndex]:
        found: dict[int, StreamIndex] = {}
        asked = 0
        while asked < len(streams):
            some = list(streams[asked : asked + STREAMS_PER_QUESTION])
            answer = await self._client.ask(
                name, messages.StreamsQuestion(some), messages.StreamsAnswer
            )
            _check(0 < answer.asked <= len(some), name)
            try:
                found |= {at: unpacked_columns(one) for at, one in answer.found.items()}
            except ValueError as reason:
                raise _nonsense(name, reason) from reason
            asked += answer.asked
        return found


def _check(holds: bool, name: str) -> None:
    if not holds:
        raise _nonsense(name, "it is not about what was asked")


def _nonsense(name: str, reason: object) -> Unavailable:
    return Unavailable(f"the answer to {name} cannot be used: {reason}")
