"""The options and the columns of a write: those of Spark's Kafka sink, and a few of our own. Pure.

Names are case-insensitive. What a Kafka producer needs and a writer of WAL objects does not
(`kafka.` options but the compression, options of reads in a mapping that serves both) is accepted
and noted, so that a job need not be changed. An option that nobody knows is an error, because one
that is ignored in silence writes the wrong records.

Of the columns of a data frame `value` must be there; `key`, `headers`, `topic` and `partition` may
be. As in Kafka's sink all other columns are passed over, so that what was read from a topic can be
written to one; but a column that is nearly one of these, where that one is missing, is an error:
what was meant would be lost.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lakelog.config.named_options import (
    BOOTSTRAP,
    CONFIG,
    SERVER,
    BadOption,
    ClusterOptions,
    NamedOptions,
    boolean,
    has_bootstrap,
    parse_cluster,
    whole,
)
from lakelog.domain.commit_event import APPLICATION_BYTES_MAX
from lakelog.lake.write.commit_client import Transaction
from lakelog.model.failures import Failure
from lakelog.records.codecs import Codec

TOPIC: Final = "topic"
INCLUDE_HEADERS: Final = "includeHeaders"
TRANSACTION_APPLICATION: Final = "txnAppId"
TRANSACTION_VERSION: Final = "txnVersion"
COMPRESSION: Final = "kafka.compression.type"

CODECS: Final[Mapping[str, Codec]] = {codec.name.lower(): codec for codec in Codec}
"""The names of `compression.type` that Kafka's producers take."""

_SPARKS: Final = ("checkpointLocation", "path", "queryName", "outputMode")
"""What Spark itself reads, or hands over to every sink."""

_READS: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options of reads, which Spark's Kafka sink passes over as well."""

_NAMES: Final = NamedOptions(
    (
        TOPIC,
        INCLUDE_HEADERS,
        TRANSACTION_APPLICATION,
        TRANSACTION_VERSION,
        SERVER,
        CONFIG,
        *_SPARKS,
        *_READS,
    ),
    {
        "topics": TOPIC,
        "bootstrap.servers": SERVER,
        "compression": COMPRESSION,
        "compression.type": COMPRESSION,
    },
)

_REFUSED: Final = {
    "key.serializer": "keys are binary or strings: use DataFrame operations",
    "value.serializer": "values are binary or strings: use DataFrame operations",
    "transactional.id": f"a stream writes exactly once without it, a batch with"
    f" {TRANSACTION_APPLICATION} and {TRANSACTION_VERSION}",
}
"""Settings of a producer that cannot be followed and would be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """What the options of one write say."""

    topic: str | None = None
    """Where every row goes; without it the rows say so themselves."""
    codec: Codec | None = None
    """How batches are compressed on topics that leave it to the producer."""
    transaction: Transaction | None = None
    """Under which name and number a batch is written once, however often its job runs."""
    connection: ClusterOptions = field(default_factory=ClusterOptions)
    notes: tuple[str, ...] = ()
    """What was given and has no meaning here, each with the reason."""


def parse_write(options: Mapping[str, str], *, streaming: bool) -> WriteRequest:
    """The request that these options make; raises `BadOption`."""
    notes: list[str] = []
    ours: dict[str, str] = {}
    settings: dict[str, str] = {}
    for name, text in options.items():
        if name.lower().startswith("kafka."):
            settings[name.lower()] = text
        else:
            ours[name] = text
    given = _NAMES.spelled(ours)
    is_kafka = has_bootstrap(options)
    connection = parse_cluster(given, has_bootstrap=is_kafka)
    codec = _codec(settings, notes)
    _note_headers(given, notes)
    notes += (f"{name} is ignored: it is an option of reads" for name in _READS if name in given)
    return WriteRequest(
        topic=_topic(given),
        codec=codec,
        transaction=_transaction(given, streaming=streaming),
        connection=connection,
        notes=tuple(notes),
    )


def _codec(settings: Mapping[str, str], notes: list[str]) -> Codec | None:
    """The compression; all other settings of a producer are refused or noted."""
    for name in settings:
        setting = name.removeprefix("kafka.")
        if setting in _REFUSED:
            raise BadOption(name, f"{name} is not supported: {_REFUSED[setting]}")
        if name == BOOTSTRAP:
            notes.append(f"{BOOTSTRAP} is ignored: rows go to the object store")
        elif name != COMPRESSION:
            notes.append(f"{name} is ignored: no Kafka producer is used")
    if COMPRESSION not in settings:
        return None
    text = settings[COMPRESSION].strip().lower()
    codec = CODECS.get(text)
    if codec is None:
        known = ", ".join(CODECS)
        raise BadOption(
            COMPRESSION, f"{COMPRESSION} is {settings[COMPRESSION]!r}, but must be one of {known}"
        )
    return codec


def _topic(given: Mapping[str, str]) -> str | None:
    if TOPIC not in given:
        return None
    topic = given[TOPIC].strip()
    if not topic:
        raise BadOption(TOPIC, f"{TOPIC} is empty, but must name a topic")
    return topic


def _note_headers(given: Mapping[str, str], notes: list[str]) -> None:
    """Kafka's sink writes headers whenever there is a column of them, whatever the option says."""
    if INCLUDE_HEADERS in given and not boolean(INCLUDE_HEADERS, given[INCLUDE_HEADERS]):
        notes.append(f"{INCLUDE_HEADERS} is ignored: a column headers is always written")


def _transaction(given: Mapping[str, str], *, streaming: bool) -> Transaction | None:
    names = (TRANSACTION_APPLICATION, TRANSACTION_VERSION)
    present = [name for name in names if name in given]
    if not present:
        return None
    if streaming:
        raise BadOption(
            present[0],
            f"{present[0]} is for batches: a stream has its query's id and batch numbers",
        )
    if len(present) == 1:
        (missing,) = set(names) - set(present)
        raise BadOption(present[0], f"{present[0]} needs {missing}: together they name one write")
    application = given[TRANSACTION_APPLICATION]
    size = len(application.encode(errors="replace"))
    if not 0 < size <= APPLICATION_BYTES_MAX or not application.isprintable():
        raise BadOption(
            TRANSACTION_APPLICATION,
            f"{TRANSACTION_APPLICATION} has {size} bytes, but must be a name of 1 to"
            f" {APPLICATION_BYTES_MAX}",
        )
    version = whole(TRANSACTION_VERSION, given[TRANSACTION_VERSION])
    if version < 0:
        raise BadOption(
            TRANSACTION_VERSION,
            f"{TRANSACTION_VERSION} is {version}, but must be a number from 0 on that rises with"
            " every write",
        )
    return Transaction(application, version)


HEADERS: Final = "array<struct<key:string,value:binary>>"

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}
"""The columns of a record, with Spark's names of the types that they may have."""

OF_READS: Final = frozenset({"offset", "timestamp", "timestampType"})
"""RowColumns of a read that say nothing to a write."""

_NEARLY: Final = 0.8


class BadRow(Failure):
    """A row of which no record can be made; the text names its topic or column, and the reason."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """At which place of a row what stands; None where it is not given."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None


def checked_columns(columns: Iterable[tuple[str, str]], *, topic: str | None) -> RowColumns:
    """Where the columns, given as name and type, stand; raises `BadOption` with the name of one.

    With a `topic` for all rows a column of topics is not looked at.
    """
    listed = list(columns)
    places: dict[str, int] = {}
    for place, (name, kind) in enumerate(listed):
        wanted = TYPES.get(name)
        if wanted is None or name in places or (name == TOPIC and topic is not None):
            continue
        if kind not in wanted:
            raise BadOption(
                name, f"the column {name} has the type {kind}, but must be {' or '.join(wanted)}"
            )
        places[name] = place
    for name, _ in listed:
        _check_not_nearly(name, places, topic)
    if "value" not in places:
        raise BadOption("value", "there is no column value, which every record needs")
    if topic is None and TOPIC not in places:
        raise BadOption(
            TOPIC, f"there is no column {TOPIC}: set the option {TOPIC} to where all rows go"
        )
    return RowColumns(**places)


def _check_not_nearly(name: str, places: Mapping[str, int], topic: str | None) -> None:
    if name in TYPES or name in OF_READS:
        return
    missing = [one for one in TYPES if one not in places and (one != TOPIC or topic is None)]
    close = difflib.get_close_matches(name.lower(), missing, n=1, cutoff=_NEARLY)
    if close:
        raise BadOption(
            name,
            f"the column {name} would not be written: did you mean {close[0]}? If not, drop it",
        )
