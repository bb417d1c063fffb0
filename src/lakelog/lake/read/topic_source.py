"""Where rows come from: an index and an object store, opened from a request; plans and reads.

By `lakelog.server` brokers are asked for everything, also where the objects are; who may read them
is what the environment or the instance says, because a broker tells no secrets. By `lakelog.config`
the stores are those of that file, with its keys, and brokers are found in the metadata store.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.load import load
from lakelog.config.named_options import ClusterOptions
from lakelog.config.options import Options
from lakelog.config.stores import open_metadata, open_objects
from lakelog.index.entries import LocatedRange
from lakelog.index.ports import Bounds, PinnedRange, ReadIndex
from lakelog.index.remote_index import HttpIndex
from lakelog.lake.read.range_plan import (
    PartitionStream,
    Pinned,
    PlannedRange,
    chosen_partitions,
    names_wanted,
    pinned,
    pruned_entries,
    pruned_ranges,
    resolved,
    times_wanted,
)
from lakelog.lake.read.range_reader import RowOptions, placed, read_range
from lakelog.lake.read.read_request import EVERYTHING, Filters, Limit, PartitionName, ReadRequest
from lakelog.lake.read.shared_reads import SharedReads
from lakelog.lake.read.splits import PackOptions, Split, pack
from lakelog.model.failures import Refused, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.topics.cluster import http_addresses

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """A cluster as any process can reach it: small, and it travels."""

    brokers: tuple[str, ...]
    """The HTTP ports, as host:port."""
    objects_url: str
    objects_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a read gives: pinned to one offset vector, cut into splits."""

    splits: tuple[Split, ...]
    vector: Mapping[PartitionName, tuple[int, int]]
    notes: tuple[str, ...]


class TopicSource:
    """An index and an object store, for planning and reading."""

    def __init__(self, index: ReadIndex, objects: ObjectStore) -> None:
        self.index = index
        self.objects = objects

    async def partitions(self, request: ReadRequest) -> tuple[PartitionStream, ...]:
        """The partitions that the request means now; raises `BadOption`."""
        topics = await self.index.topics(names_wanted(request.topics))
        return chosen_partitions(request.topics, topics)

    async def offsets(
        self, limit: Limit, partitions: Sequence[PartitionStream], *, is_start: bool
    ) -> dict[PartitionName, int]:
        """An offset for every partition, `EARLIEST` and `LATEST` among them."""
        wanted = times_wanted(limit, partitions)
        by_time = await self.index.first_at(wanted) if wanted else {}
        return resolved(limit, partitions, by_time, is_start=is_start)

    async def bounds(self, partitions: Sequence[PartitionStream]) -> Mapping[int, Bounds]:
        """What the streams of the partitions have now, by stream; those gone are left out."""
        return await self.index.bounds([partition.stream for partition in partitions])

    async def pin(self, request: ReadRequest) -> Pinned:
        """The ranges that the request means now; raises `BadOption` and `DataLoss`."""
        partitions = await self.partitions(request)
        starts = await self.offsets(request.starting, partitions, is_start=True)
        ends = await self.offsets(request.ending, partitions, is_start=False)
        # Last, so that no offset that was found is beyond them.
        bounds = await self.bounds(partitions)
        fail = request.fail_on_data_loss
        return pinned(partitions, starts, ends, bounds, fail_on_data_loss=fail)

    async def plan(
        self, request: ReadRequest, *, filters: Filters = EVERYTHING, slots: int = 1
    ) -> ReadPlan:
        """The whole of a batch, ready to be given out to tasks."""
        return await self.planned(await self.pin(request), request, filters=filters, slots=slots)

    async def planned(
        self,
        pinned_ranges: Pinned,
        request: ReadRequest,
        *,
        filters: Filters = EVERYTHING,
        slots: int = 1,
    ) -> ReadPlan:
        """These ranges, where they lie now, cut into splits as the request says."""
        notes = [*request.notes, *pinned_ranges.notes]
        ranges = pruned_ranges(pinned_ranges.ranges, filters)
        options = RowOptions((), request.fail_on_data_loss, note=notes.append)
        hinted = await self.hinted(ranges, options)
        kept = [part for whole in hinted for part in pruned_entries(whole, filters)]
        packing = PackOptions(
            slots=slots,
            min_splits=request.min_partitions,
            max_records=request.max_records_per_partition,
        )
        return ReadPlan(pack(kept, packing), pinned_ranges.vector, tuple(notes))

    async def hinted(
        self, ranges: Sequence[PinnedRange], options: RowOptions
    ) -> list[PlannedRange]:
        """The ranges with the entries that hold them now; what was trimmed since is lost."""
        if not ranges:
            return []
        located = await self.index.located(ranges)
        hinted = [
            placed(pinned_range, at, options)
            for pinned_range, at in zip(ranges, located, strict=True)
        ]
        return [part for part in hinted if part.pinned.start < part.pinned.end]

    async def read(
        self, split: Split, options: RowOptions
    ) -> "AsyncGenerator[pa.RecordBatch, None]":
        """The rows of a split, range after range."""
        objects = SharedReads(self.objects, split)
        for hinted in split.ranges:
            rows = read_range(objects, hinted, self._locate, options)
            async with aclosing(rows):
                async for batch in rows:
                    yield batch

    async def close(self) -> None:
        """Let connections, files and threads go."""
        if isinstance(self.index, HttpIndex):
            await self.index.close()
        await self.objects.close()

    async def _locate(self, wanted: PinnedRange) -> LocatedRange | None:
        (found,) = await self.index.located([wanted])
        return found


async def find_cluster(
    connection: ClusterOptions, environment: Mapping[str, str]
) -> ClusterAddress:
    """Who is to be asked and where the objects are; raises `Refused` and `Unavailable`."""
    if connection.config:
        options = load(Path(connection.config), environment, {})
        settings = tuple(sorted(options.objects.options.items()))
        brokers = connection.servers or await _brokers(options)
        return ClusterAddress(brokers, options.objects_url(), settings)
    index = HttpIndex(connection.servers)
    try:
        place = await index.store()
    finally:
        await index.close()
    return ClusterAddress(connection.servers, place.url, tuple(sorted(place.options.items())))


def local_directory(objects_url: str) -> Path | None:
    """The directory that holds the objects, if one does."""
    if not objects_url.startswith("file:"):
        return None
    if "//" in objects_url:
        return Path(url2pathname(urlsplit(objects_url).path))
    return Path(objects_url.removeprefix("file:"))


async def open_source(reached: ClusterAddress) -> TopicSource:
    """The index and the objects, opened; raises `Refused`."""
    return TopicSource(HttpIndex(reached.brokers), await _opened(reached))


async def _brokers(options: Options) -> tuple[str, ...]:
    store = await open_metadata(options.metadata_url(), SystemClock())
    try:
        found = await http_addresses(store)
    finally:
        await store.close()
    if not found:
        raise Unavailable(
            "no broker that serves has an HTTP port: start one, or set lakelog.server"
        )
    return tuple(found)


async def _opened(reached: ClusterAddress) -> ObjectStore:
    url = reached.objects_url
    if url.partition(":")[0] == "memory":
        raise Refused(
            "the broker keeps its objects in its own memory, where nobody else can read them:"
            " start it with a data directory or an object store"
        )
    path = local_directory(url)
    if path is not None:
        if not path.is_dir():
            raise Refused(
                f"the objects are in the directory {path}, which is not on this machine:"
                " read there, or keep them in an object store"
            )
        url = f"file:{path}"
    return await open_objects(url, dict(reached.objects_options), SystemClock(), SystemEntropy())
