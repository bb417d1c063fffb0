"""The options of a read: those of Spark's Kafka source, with its names, defaults and checks. Pure.

Names are case-insensitive. What a Kafka consumer needs and a reader of object storage does not
(`kafka.` options, poll timeouts) is accepted and noted, so that a job need not be changed; what
Spark's source refuses is refused here as well. An option that nobody knows is an error, because one
that is ignored in silence reads the wrong rows.

Values are numbers, durations and JSON of partitions. What is accepted is what Spark's Kafka source
accepts; every refusal names the option.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from lakelog.config.named_options import (
    BOOTSTRAP,
    CONFIG,
    INT32_END,
    INT64_END,
    SERVER,
    BadOption,
    NamedOptions,
    boolean,
    has_bootstrap,
    parse_cluster,
    positive,
    whole,
)
from lakelog.lake.read.read_request import (
    EARLIEST,
    LATEST,
    MAX_TRIGGER_DELAY_MS,
    Assigned,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Limit,
    Matching,
    PartitionName,
    ReadRequest,
    Subscribed,
    TimestampStrategy,
    Topics,
)

_DURATION: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.ASCII)
_UNITS_US: Final[Mapping[str, int]] = {
    "us": 1,
    "": 1_000,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""A number alone is milliseconds, as in Spark's own time strings."""

_Partition = Annotated[int, Meta(ge=0, le=INT32_END - 1)]
_Long = Annotated[int, Meta(ge=-INT64_END, le=INT64_END - 1)]


def duration_ms(option: str, text: str) -> int:
    """A time like `15m`, `10s` or `500ms`."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = None if match is None else _UNITS_US.get(match[2])
    if match is None or unit is None:
        units = ", ".join(name for name in _UNITS_US if name)
        raise BadOption(
            option, f"{option} is {text!r}, but must be a time like 15m; units are {units}"
        )
    return int(match[1]) * unit // 1_000


def assigned_partitions(option: str, text: str) -> tuple[PartitionName, ...]:
    """Partitions as `{"topicA":[0,1],"topicB":[2]}`, each once, in order."""
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    try:
        found = msgspec.json.decode(text, type=dict[str, list[_Partition]])
    except (msgspec.MsgspecError, UnicodeEncodeError) as reason:
        raise _not_json(option, text, example, reason) from reason
    return tuple(
        sorted(
            {PartitionName(topic, number) for topic, numbers in found.items() for number in numbers}
        )
    )


def partition_numbers(option: str, text: str, *, example: str) -> dict[PartitionName, int]:
    """A number for every partition as `{"topicA":{"0":23}}`."""
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[_Partition, _Long]])
    except (msgspec.MsgspecError, UnicodeEncodeError) as reason:
        raise _not_json(option, text, example, reason) from reason
    return {
        PartitionName(topic, partition): number
        for topic, numbers in sorted(found.items())
        for partition, number in sorted(numbers.items())
    }


def partition_offsets(option: str, text: str) -> dict[PartitionName, int]:
    """An offset for every partition; -2 is the earliest, -1 the latest."""
    found = partition_numbers(option, text, example='{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    for place, offset in found.items():
        if offset < EARLIEST:
            raise BadOption(
                option,
                f"{option} says {offset} for {place}, but an offset is at least 0,"
                " or -1 for the latest, -2 for the earliest",
            )
    return found


def _not_json(option: str, text: str, example: str, reason: Exception) -> BadOption:
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return BadOption(option, f"{option} must be e.g. {example}, but is {shown!r}: {reason}")


ValueT = TypeVar("ValueT")

ASSIGN: Final = "assign"
SUBSCRIBE: Final = "subscribe"
SUBSCRIBE_PATTERN: Final = "subscribePattern"
STARTING_OFFSETS: Final = "startingOffsets"
STARTING_TIMESTAMP: Final = "startingTimestamp"
STARTING_BY_TIMESTAMP: Final = "startingOffsetsByTimestamp"
STARTING_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
ENDING_OFFSETS: Final = "endingOffsets"
ENDING_TIMESTAMP: Final = "endingTimestamp"
ENDING_BY_TIMESTAMP: Final = "endingOffsetsByTimestamp"
MIN_PARTITIONS: Final = "minPartitions"
MAX_RECORDS: Final = "maxRecordsPerPartition"
MAX_OFFSETS: Final = "maxOffsetsPerTrigger"
MIN_OFFSETS: Final = "minOffsetsPerTrigger"
MAX_DELAY: Final = "maxTriggerDelay"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
INCLUDE_HEADERS: Final = "includeHeaders"

_WHICH: Final = (ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN)
_TRIGGERS: Final = (MAX_OFFSETS, MIN_OFFSETS, MAX_DELAY)

_IDLE: Final = {
    "groupIdPrefix": "no consumer group is used",
    "kafkaConsumer.pollTimeoutMs": "no consumer polls",
    "fetchOffset.numRetries": "offsets come with the index",
    "fetchOffset.retryIntervalMs": "offsets come with the index",
    "partition.metadata.cache.ttl.ms": "partitions are always looked up",
}
"""Options of Spark's source that have no meaning here, with the reason."""

_KNOWN: Final = (
    *_WHICH,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    STARTING_BY_TIMESTAMP,
    STARTING_STRATEGY,
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    ENDING_BY_TIMESTAMP,
    MIN_PARTITIONS,
    MAX_RECORDS,
    *_TRIGGERS,
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    SERVER,
    CONFIG,
    *_IDLE,
)
_NAMES: Final = NamedOptions(
    _KNOWN, {"topic": SUBSCRIBE, "topics": SUBSCRIBE, "bootstrap.servers": SERVER}
)

_REFUSED: Final = {
    "auto.offset.reset": f"set {STARTING_OFFSETS} to earliest or latest instead",
    "key.deserializer": "keys are binary: use DataFrame operations",
    "value.deserializer": "values are binary: use DataFrame operations",
    "enable.auto.commit": "the checkpoint of a query keeps its offsets",
    "interceptor.classes": "nothing stands between the log and its rows",
}
"""Options of a consumer that Spark's source refuses as well, with what to do instead."""


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadRequest:
    """The request that these options make; raises `BadOption`."""
    notes: list[str] = []
    given = _given(options, notes)
    is_kafka = has_bootstrap(options)
    connection = parse_cluster(given, has_bootstrap=is_kafka)
    notes += [f"{BOOTSTRAP} is ignored: rows come from the object store"] if is_kafka else []
    topics = _topics(given)
    starting = _limit(given, (STARTING_TIMESTAMP, STARTING_BY_TIMESTAMP, STARTING_OFFSETS))
    ending = _limit(given, (ENDING_TIMESTAMP, ENDING_BY_TIMESTAMP, ENDING_OFFSETS))
    if streaming:
        ending = _checked_stream(given, notes)
        starting = Edge.LATEST if starting is None else starting
    else:
        starting = Edge.EARLIEST if starting is None else starting
        ending = Edge.LATEST if ending is None else ending
        _check_batch(starting, ending)
        notes += (f"{name} is for streams" for name in _TRIGGERS if name in given)
    request = ReadRequest(
        topics=topics,
        starting=starting,
        ending=ending,
        is_stream=streaming,
        min_partitions=_number(given, MIN_PARTITIONS, end=INT32_END),
        max_records_per_partition=_number(given, MAX_RECORDS),
        max_offsets_per_trigger=_number(given, MAX_OFFSETS),
        min_offsets_per_trigger=_number(given, MIN_OFFSETS),
        max_trigger_delay_ms=_taken(given, MAX_DELAY, duration_ms, MAX_TRIGGER_DELAY_MS),
        fail_on_data_loss=_taken(given, FAIL_ON_DATA_LOSS, boolean, True),
        include_headers=_taken(given, INCLUDE_HEADERS, boolean, False),
        connection=connection,
        notes=tuple(notes),
    )
    _check_triggers(request)
    return request


def _given(options: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """The options by their own spelling; those without a meaning are noted."""
    ours = {}
    for name, text in options.items():
        if name.lower().startswith("kafka."):
            _note_kafka(name.lower(), notes)
        else:
            ours[name] = text
    given = _NAMES.spelled(ours)
    notes += (f"{name} is ignored: {_IDLE[name]}" for name in given if name in _IDLE)
    return given


def _note_kafka(name: str, notes: list[str]) -> None:
    setting = name.removeprefix("kafka.")
    if setting in _REFUSED:
        raise BadOption(name, f"{name} is not supported: {_REFUSED[setting]}")
    if name != BOOTSTRAP:
        notes.append(f"{name} is ignored: no Kafka consumer is used")


def _topics(given: Mapping[str, str]) -> Topics:
    named = [name for name in _WHICH if name in given]
    if len(named) != 1:
        listed = ", ".join(_WHICH)
        said = "one of" if not named else "only one of"
        raise BadOption(named[0] if named else SUBSCRIBE, f"give {said} the options {listed}")
    (name,) = named
    text = given[name].strip()
    if name == ASSIGN:
        places = assigned_partitions(ASSIGN, text)
        if not places:
            raise BadOption(ASSIGN, f"{ASSIGN} names no partition: {text!r}")
        return Assigned(places)
    if name == SUBSCRIBE:
        topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in text.split(",")))))
        if not topics:
            raise BadOption(SUBSCRIBE, f"{SUBSCRIBE} names no topic: {given[name]!r}")
        return Subscribed(topics)
    if not text:
        raise BadOption(SUBSCRIBE_PATTERN, f"{SUBSCRIBE_PATTERN} is empty")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as reason:
        raise BadOption(
            SUBSCRIBE_PATTERN, f"{SUBSCRIBE_PATTERN} is not a pattern: {text!r}: {reason}"
        ) from reason
    return Matching(text)


def _limit(given: Mapping[str, str], names: tuple[str, str, str]) -> Limit | None:
    """A limit by the first of these options that is given: one time, times, offsets."""
    one_time, times, offsets = names
    missing = _taken(given, STARTING_STRATEGY, _missing, TimestampStrategy.ERROR)
    if one_time in given:
        return AtTimestamp(whole(one_time, given[one_time]), missing)
    if times in given:
        example = '{"topicA":{"0":123456789,"1":123456789}}'
        return AtTimestamps(partition_numbers(times, given[times], example=example), missing)
    if offsets not in given:
        return None
    text = given[offsets].strip()
    edge = {edge.value: edge for edge in Edge}.get(text.lower())
    if edge is not None:
        return edge
    return AtOffsets(partition_offsets(offsets, text))


def _missing(option: str, text: str) -> TimestampStrategy:
    found = {strategy.value: strategy for strategy in TimestampStrategy}.get(text.strip().lower())
    if found is None:
        raise BadOption(option, f"{option} is {text!r}, but must be error or latest")
    return found


def _checked_stream(given: Mapping[str, str], notes: list[str]) -> Edge:
    for name in (ENDING_OFFSETS, ENDING_BY_TIMESTAMP):
        if name in given:
            raise BadOption(name, f"{name} is not for streams: a stream has no end")
    if ENDING_TIMESTAMP in given:
        notes.append(f"{ENDING_TIMESTAMP} is ignored: a stream has no end")
    return Edge.LATEST


def _check_batch(starting: Limit, ending: Limit) -> None:
    """What cannot be a batch: one that begins at the latest offset, or ends at the earliest."""
    if starting is Edge.LATEST:
        raise BadOption(STARTING_OFFSETS, f"{STARTING_OFFSETS} of a batch cannot be latest")
    if ending is Edge.EARLIEST:
        raise BadOption(ENDING_OFFSETS, f"{ENDING_OFFSETS} of a batch cannot be earliest")
    if isinstance(starting, AtOffsets):
        _check_absent(STARTING_OFFSETS, starting, LATEST, "latest (-1)")
    if isinstance(ending, AtOffsets):
        _check_absent(ENDING_OFFSETS, ending, EARLIEST, "earliest (-2)")
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        _check_order(ENDING_OFFSETS, starting.offsets, ending.offsets)
    if isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        _check_order(ENDING_BY_TIMESTAMP, starting.times_ms, ending.times_ms)


def _check_absent(option: str, limit: AtOffsets, offset: int, what: str) -> None:
    named = [str(place) for place, found in limit.offsets.items() if found == offset]
    if named:
        raise BadOption(option, f"{option} of a batch cannot be {what}, as for {named[0]}")


def _check_order(
    option: str, starts: Mapping[PartitionName, int], ends: Mapping[PartitionName, int]
) -> None:
    """Both name the same partitions, and none ends before it begins."""
    if starts.keys() != ends.keys():
        odd = sorted(map(str, starts.keys() ^ ends.keys()))
        raise BadOption(option, f"start and end do not name the same partitions: {', '.join(odd)}")
    for place, start in starts.items():
        if 0 <= ends[place] < start:
            raise BadOption(option, f"{option} ends {place} at {ends[place]}, before its {start}")


def _check_triggers(request: ReadRequest) -> None:
    least, most = request.min_offsets_per_trigger, request.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise BadOption(MIN_OFFSETS, f"{MIN_OFFSETS} is {least}, more than {MAX_OFFSETS}: {most}")


def _number(given: Mapping[str, str], name: str, *, end: int = INT64_END) -> int | None:
    return positive(name, given[name], end=end) if name in given else None


def _taken(
    given: Mapping[str, str], name: str, parse: Callable[[str, str], ValueT], default: ValueT
) -> ValueT:
    return parse(name, given[name]) if name in given else default
