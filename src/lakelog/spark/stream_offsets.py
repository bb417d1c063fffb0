"""Offsets of a stream: in Spark's checkpoint, what is lost, what a trigger takes. Pure.

`{"t": {"0": 23}, "lakelog:topic-ids": {"t": "6f9c…"}}` says where each partition goes on, and which
topic was meant by a name: one that was deleted and made again has another id. Without the last key
it is what Spark's Kafka source writes, so a checkpoint of that can be continued. Spark compares
offsets as text, so the same offsets always come in the same order.

Rules, those of Spark's Kafka source:

- A partition that the stream does not know begins at offset 0, that is at its earliest record.
- Records that are gone before they were read are a loss: those before the log's start, those of a
  topic or a partition that was deleted, also when there is another topic of that name since.
- What the options do not name any more is left out, and is no loss.
- What becomes of a loss is up to who asks. Without the lost records a partition goes on at its
  log's start, and a topic that was made again at its earliest record.
- `maxOffsetsPerTrigger` is shared by how much each partition has, and one offset at least of each
  that has any, so that none starves. So a trigger can take more than the limit, by fewer offsets
  than there are partitions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from lakelog.config.named_options import INT32_END, INT64_END
from lakelog.index.ports import Bounds, TopicStreams
from lakelog.lake.read.range_plan import PartitionStream, chosen_partitions
from lakelog.lake.read.read_options import ASSIGN, SUBSCRIBE
from lakelog.lake.read.read_request import Assigned, Matching, PartitionName, Subscribed, Topics
from lakelog.model.failures import Refused

TOPIC_IDS: Final = "lakelog:topic-ids"
"""Where the ids stand; no topic can have this name."""

Document: TypeAlias = Mapping[str, Mapping[str, int | str]]
"""Offsets as Spark hands them over and back."""

_TopicId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
_Offsets = dict[
    Annotated[int, Meta(ge=0, lt=INT32_END)], Annotated[int, Meta(ge=0, le=INT64_END - 1)]
]


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset of every partition, and the id of every topic as far as it is known."""

    offsets: Mapping[PartitionName, int]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


def parse_offsets(document: Document) -> StreamOffsets:
    """The offsets of a checkpoint; raises `Refused` when they are none."""
    try:
        given = {topic: some for topic, some in document.items() if topic != TOPIC_IDS}
        found = msgspec.convert(given, dict[str, _Offsets], str_keys=True)
        named = msgspec.convert(document.get(TOPIC_IDS, {}), dict[str, _TopicId])
        ids = {topic: bytes.fromhex(text) for topic, text in named.items()}
    except (AttributeError, ValueError) as reason:
        raise Refused(
            f"the checkpoint holds {_shown(document)}, which are not offsets of topics: {reason}"
        ) from reason
    offsets = {
        PartitionName(topic, one): at for topic, some in found.items() for one, at in some.items()
    }
    return StreamOffsets(offsets, ids)


def document_of(vector: StreamOffsets) -> Document:
    """The offsets for a checkpoint."""
    document: dict[str, dict[str, int | str]] = {}
    for place, offset in sorted(vector.offsets.items()):
        document.setdefault(place.topic, {})[str(place.partition)] = offset
    ids = sorted(vector.topic_ids.items())
    document[TOPIC_IDS] = {topic: one.hex() for topic, one in ids}
    return document


def _shown(document: object) -> str:
    text = repr(document)
    return text if len(text) <= 200 else f"{text[:200]}…"


def offset_count(begins: Mapping[PartitionName, int], ends: Mapping[PartitionName, int]) -> int:
    """How many offsets there are from the begins to the ends."""
    return sum(max(0, end - begins[place]) for place, end in ends.items())


def admitted(
    begins: Mapping[PartitionName, int], ends: Mapping[PartitionName, int], *, limit: int
) -> dict[PartitionName, int]:
    """Where a trigger ends that takes about so many offsets, for each partition in `ends`."""
    total = offset_count(begins, ends)
    if total <= limit:
        return dict(ends)
    taken = {}
    for place, end in ends.items():
        size = max(0, end - begins[place])
        share = max(1, limit * size // total)
        taken[place] = begins[place] + share if share < size else end
    return taken


def is_due(count: int, *, least: int, waited_s: float | None, delay_s: float) -> bool:
    """Whether a trigger has enough to take; what is there is taken when it has waited so long.

    Nobody has waited for the first trigger yet (None), and it takes what there is.
    """
    return count >= least or (count > 0 and (waited_s is None or waited_s >= delay_s))


@dataclass(frozen=True, slots=True)
class LivePartition:
    """A partition that is there, and what it has."""

    partition: PartitionStream
    bounds: Bounds


LivePartitions = Mapping[PartitionName, LivePartition]
"""What there is, by partition."""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """From where to where a stream can go on, and what it can not have."""

    begins: Mapping[PartitionName, int]
    heads: Mapping[PartitionName, int]
    topic_ids: Mapping[str, bytes]
    losses: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchRanges:
    """The ranges between two vectors: partitions with start and end; what is not there is lost."""

    partitions: tuple[PartitionStream, ...]
    starts: Mapping[PartitionName, int]
    ends: Mapping[PartitionName, int]
    losses: tuple[str, ...]


def wanted_now(wanted: Topics, topics: Sequence[TopicStreams]) -> tuple[PartitionStream, ...]:
    """The partitions that are wanted and there."""
    counts = {topic.name: len(topic.streams) for topic in topics}
    match wanted:
        case Subscribed(topics=names):
            wanted = Subscribed(tuple(name for name in names if name in counts))
        case Assigned(places=places):
            there = [one for one in places if one.partition < counts.get(one.topic, 0)]
            wanted = Assigned(tuple(there))
        case Matching():
            pass
    return chosen_partitions(wanted, topics)


def live_partitions(
    partitions: Iterable[PartitionStream], bounds: Mapping[int, Bounds]
) -> LivePartitions:
    """The partitions with their bounds; those without any are gone."""
    return {
        one.place: LivePartition(one, bounds[one.stream])
        for one in partitions
        if one.stream in bounds
    }


def offsets_of(live: LivePartitions) -> StreamOffsets:
    """The end of everything that is there."""
    heads = {place: present.bounds.head for place, present in live.items()}
    return StreamOffsets(heads, _ids(live))


def progress_from(start: StreamOffsets, live: LivePartitions, wanted: Topics) -> StreamProgress:
    """How the stream goes on from its start."""
    begins: dict[PartitionName, int] = {}
    losses: list[str] = []
    notes: list[str] = []
    for place, present in live.items():
        low, head = present.bounds.log_start, present.bounds.head
        begin, lost = 0, None
        if is_known(place, present, start):
            begin = start.offsets[place]
            lost = _lost(place, begin, present.bounds)
        elif place in start.offsets:
            lost = recreated(place, start.offsets[place])
        elif low > 0:
            lost = f"{place} is new and begins at offset {low}: [0, {low}) is gone"
        if lost:
            losses.append(lost)
        begins[place] = min(max(begin, low), head)
    for place in sorted(start.offsets.keys() - live.keys()):
        if is_wanted(wanted, place):
            losses.append(deleted(place, start.offsets[place]))
        else:
            notes.append(f"{place} is not read any more: the options do not name it")
    heads = {place: present.bounds.head for place, present in live.items()}
    return StreamProgress(begins, heads, _ids(live), tuple(losses), tuple(notes))


def batch_ranges(start: StreamOffsets, end: StreamOffsets, live: LivePartitions) -> BatchRanges:
    """What lies between the vectors; a partition that ends where it starts or before is left out.

    Spark asks for that when a query is started again that never got beyond its first offsets.
    """
    partitions: list[PartitionStream] = []
    starts: dict[PartitionName, int] = {}
    ends: dict[PartitionName, int] = {}
    losses: list[str] = []
    for place, after in sorted(end.offsets.items()):
        ids = [ids[place.topic] for ids in (start.topic_ids, end.topic_ids) if place.topic in ids]
        is_same = place in start.offsets and len(set(ids)) < 2
        first = start.offsets[place] if is_same else 0
        if place in start.offsets and not is_same:
            losses.append(recreated(place, start.offsets[place]))
        if first >= after:
            continue
        present = live.get(place)
        if present is None or (ids and present.partition.topic_id != ids[-1]):
            losses.append(f"{place} [{first}, {after}) cannot be read: its topic was deleted")
            continue
        partitions.append(present.partition)
        starts[place], ends[place] = first, after
    return BatchRanges(tuple(partitions), starts, ends, tuple(losses))


def is_known(place: PartitionName, present: LivePartition, vector: StreamOffsets) -> bool:
    """Whether the vector means this partition, and not one of an earlier topic of that name."""
    known = vector.topic_ids.get(place.topic, present.partition.topic_id)
    return place in vector.offsets and known == present.partition.topic_id


def is_wanted(wanted: Topics, place: PartitionName) -> bool:
    """Whether the options name this partition."""
    match wanted:
        case Subscribed(topics=names):
            return place.topic in names
        case Assigned(places=places):
            return place in places
        case Matching(pattern=pattern):
            return re.search(pattern, place.topic) is not None


def never_there(
    wanted: Topics, vector: StreamOffsets, live: LivePartitions
) -> tuple[str, str] | None:
    """The option that names what is not there, and was not when the vector was made; and that."""
    known = vector.offsets.keys() | live.keys()
    match wanted:
        case Subscribed(topics=names):
            topics = {place.topic for place in known}
            unknown = [name for name in names if name not in topics]
            return (SUBSCRIBE, unknown[0]) if unknown else None
        case Assigned(places=places):
            lacking = [str(place) for place in places if place not in known]
            return (ASSIGN, lacking[0]) if lacking else None
        case Matching():
            return None


def deleted(place: PartitionName, offset: int) -> str:
    """What is said of a partition that is gone."""
    return f"{place} was read up to offset {offset}, and was deleted since"


def recreated(place: PartitionName, offset: int) -> str:
    """What is said of a partition whose name means another one now."""
    return f"{place} was read up to offset {offset}, and its topic was deleted and made again since"


def _lost(place: PartitionName, offset: int, bounds: Bounds) -> str | None:
    low, head = bounds.log_start, bounds.head
    if offset < low:
        gone = f"[{offset}, {low}) is gone"
        return f"{place} was read up to offset {offset}, and begins at {low} by now: {gone}"
    if offset > head:
        return f"{place} was read up to offset {offset}, and ends at {head}"
    return None


def _ids(live: LivePartitions) -> dict[str, bytes]:
    return {place.topic: present.partition.topic_id for place, present in live.items()}
