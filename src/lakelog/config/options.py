"""All options of a broker process, section by section, with where each value came from.

A section's class belongs to the module that uses it, or stands here when only a composition root
does. A field's name is its key; its type and default say what it takes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lakelog.coordinator.options import GroupOptions
from lakelog.domain.options import DomainOptions
from lakelog.log.options import LogOptions
from lakelog.objects.local_clock import JUMP_MAX_MS
from lakelog.server.options import Address, ServerOptions
from lakelog.topics.cluster import DOMAINS_MAX
from lakelog.topics.failures import TopicFailure
from lakelog.topics.settings import TopicDefaults

DATA_DIRECTORY: Final = ".lakelog"
_ZONE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")
LISTEN: Final = Address("127.0.0.1", 9092)
HTTP_LISTEN: Final = Address("127.0.0.1", 8080)
REPLICAS_MAX: Final = 32_767
BUILTIN: Final = "builtin"
CATALOGS: Final = (BUILTIN, "rest", "sql", "glue")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
DRIVER_MEMORY_BYTES_MIN: Final = 512 << 20
"""Spark does not start with less than 450 MiB."""
FILE_BYTES_MIN: Final = 64 << 10
FILE_BYTES_MAX: Final = 1 << 30
"""A file gets twice as large at most, and an object that is put at once must not pass 5 GB."""
SMALL_FILES_MIN: Final = 2
"""Of two files one can be made; one file is never too many."""


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """Who this broker is and where it listens."""

    id: int = 1
    listen: Address = LISTEN
    advertised: Address | None = None  # unset: the address by which the client reached us
    zone: str = ""  # empty: none
    data: str = DATA_DIRECTORY  # where the embedded stores live

    def __post_init__(self) -> None:
        if self.zone and not _ZONE.fullmatch(self.zone):
            raise ValueError(f"zone is {self.zone!r}, but takes letters, digits, '.', '_' and '-'")
        if not 0 <= self.id < 1 << 31:
            raise ValueError("id must be a number from 0 to 2147483647")
        if self.advertised is not None and self.advertised.is_every_interface():
            raise ValueError(
                f"advertised must be an address that clients reach, not {self.advertised}"
            )


@dataclass(frozen=True, slots=True)
class HttpSection:
    """Health, metrics and administration over HTTP."""

    listen: Address | None = HTTP_LISTEN  # unset: no HTTP port


@dataclass(frozen=True, slots=True)
class MetadataSection:
    """The metadata store: `memory:`, or `sqlite:PATH`."""

    url: str = ""  # empty: sqlite in the data directory
    domains: int | None = None  # fixed when the cluster is made

    def __post_init__(self) -> None:
        if self.domains is not None and not 1 <= self.domains <= DOMAINS_MAX:
            raise ValueError(f"domains must be a number from 1 to {DOMAINS_MAX}")


@dataclass(frozen=True, slots=True)
class ObjectsSection:
    """The object store: `memory:`, `file:PATH` or `s3://BUCKET/PREFIX`."""

    url: str = ""  # empty: a directory in the data directory
    options: Mapping[str, str] = field(default_factory=dict)  # region, endpoint, keys, …
    clock_jump_max_ms: int = JUMP_MAX_MS  # in a directory: further, and what is old is kept

    def __post_init__(self) -> None:
        if self.clock_jump_max_ms <= 0:
            raise ValueError("clock_jump_max_ms must be greater than 0")


@dataclass(frozen=True, slots=True)
class TopicsSection:
    """What a topic gets where it does not say itself; unset is Kafka's default."""

    auto_create: bool = True  # asking for an unknown topic may make it
    num_partitions: int = 1
    default_replication_factor: int = 1
    cleanup_policy: str | None = None
    max_message_bytes: int | None = None
    message_timestamp_type: str | None = None
    retention_bytes: int | None = None
    retention_ms: int | None = None
    format: str | None = None  # parquet or kfs

    def __post_init__(self) -> None:
        if self.num_partitions < 1:
            raise ValueError("num_partitions must be greater than 0")
        if not 1 <= self.default_replication_factor <= REPLICAS_MAX:
            raise ValueError(f"default_replication_factor must be from 1 to {REPLICAS_MAX}")
        try:
            self.defaults().configs()
        except TopicFailure as reason:
            raise ValueError(str(reason)) from None

    def defaults(self) -> TopicDefaults:
        """What the topics are told."""
        return TopicDefaults(
            cleanup_policy=self.cleanup_policy,
            max_message_bytes=self.max_message_bytes,
            message_timestamp_type=self.message_timestamp_type,
            retention_bytes=self.retention_bytes,
            retention_ms=self.retention_ms,
            lakelog_format=self.format,
        )


@dataclass(frozen=True, slots=True)
class TablesSection:
    """Whether and where the tables of topics are kept."""

    enabled: bool = True  # false: topics have no tables, and the catalog is not served
    namespace: str = "lakelog"
    catalog: str = BUILTIN  # or one that PyIceberg speaks to: rest, sql, glue
    options: Mapping[str, str] = field(default_factory=dict)  # what such a catalog is told
    vend_credentials: bool = False  # engines that ask for it get the object store's keys

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ValueError(
                f"namespace is {self.namespace!r}, but takes letters, digits, '_' and '-'"
            )
        if self.catalog not in CATALOGS:
            raise ValueError(
                f"catalog is {self.catalog!r}, but must be one of: {', '.join(CATALOGS)}"
            )
        if self.options and self.catalog == BUILTIN:
            raise ValueError(f"options are for catalogs other than {BUILTIN!r}: set catalog too")

    def is_builtin(self) -> bool:
        """Whether brokers keep the tables themselves."""
        return self.enabled and self.catalog == BUILTIN


@dataclass(frozen=True, slots=True)
class PipelineSection:
    """The pipeline from log to tables, which runs on Spark."""

    master: str = "local[*]"
    remote: str = ""  # of Spark Connect, as sc://HOST; then there is no master
    server: str = ""  # a broker's HTTP port, as http://HOST:PORT; empty: one that is found
    interval_s: float = 1.0  # from the beginning of a round to that of the next
    tidy_s: float = 300.0  # how often old rows and files that nobody names are looked for
    grace_ms: int = 600_000  # how long a file that nobody names stays for those who read it
    driver_memory_bytes: int = 1 << 30
    settings: Mapping[str, str] = field(default_factory=dict)  # further ones of Spark

    def __post_init__(self) -> None:
        if not self.interval_s > 0:
            raise ValueError("interval_s must be greater than 0")
        if not self.tidy_s > 0:
            raise ValueError("tidy_s must be greater than 0")
        if self.grace_ms < 0:
            raise ValueError("grace_ms must not be negative")
        if self.driver_memory_bytes < DRIVER_MEMORY_BYTES_MIN:
            raise ValueError(f"driver_memory_bytes must be at least {DRIVER_MEMORY_BYTES_MIN}")


@dataclass(frozen=True, slots=True)
class CompactionSection:
    """When WAL objects become files of tables, and how large and how many those are."""

    interval_ms: int = 60_000  # how often a stream is compacted whose topic does not say it itself
    wal_max_age_ms: int = 600_000  # a WAL object this old is compacted, whatever its topics say
    target_file_size_bytes: int = 256 << 20
    parquet_max_files_per_partition: int = 100  # small ones; if there are more, some are merged

    def __post_init__(self) -> None:
        for name in ("interval_ms", "wal_max_age_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more")
        if not FILE_BYTES_MIN <= self.target_file_size_bytes <= FILE_BYTES_MAX:
            raise ValueError(
                f"target_file_size_bytes must be from {FILE_BYTES_MIN} to {FILE_BYTES_MAX}"
            )
        if self.parquet_max_files_per_partition < SMALL_FILES_MIN:
            raise ValueError(f"parquet_max_files_per_partition must be at least {SMALL_FILES_MIN}")


@dataclass(frozen=True, slots=True)
class FeaturesSection:
    """What can be switched off."""

    idempotence: bool = True  # idempotent producers (D1); false refuses them


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that a broker process is told."""

    broker: BrokerSection = BrokerSection()
    http: HttpSection = HttpSection()
    metadata: MetadataSection = MetadataSection()
    objects: ObjectsSection = ObjectsSection()
    features: FeaturesSection = FeaturesSection()
    topics: TopicsSection = field(default_factory=TopicsSection)
    groups: GroupOptions = field(default_factory=GroupOptions)
    tables: TablesSection = field(default_factory=TablesSection)
    pipeline: PipelineSection = field(default_factory=PipelineSection)
    compaction: CompactionSection = CompactionSection()
    log: LogOptions = field(default_factory=LogOptions)
    domain: DomainOptions = field(default_factory=DomainOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    sources: Mapping[str, str] = field(default_factory=dict)  # key -> where its value came from

    def topic_defaults(self) -> TopicDefaults:
        """What topics get where they do not say themselves."""
        freshness_ms = self.compaction.interval_ms
        return replace(self.topics.defaults(), lakelog_table_freshness_ms=freshness_ms)

    def metadata_url(self) -> str:
        """The metadata store's URL, with the default filled in."""
        return self.metadata.url or f"sqlite:{Path(self.broker.data) / 'metadata.db'}"

    def objects_url(self) -> str:
        """The object store's URL, with the default filled in."""
        return self.objects.url or f"file:{Path(self.broker.data) / 'objects'}"
