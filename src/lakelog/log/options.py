"""Limits of the log, each with its unit and the reason for its default."""

from dataclasses import dataclass
from typing import Final

from lakelog.domain.commit_event import COMMIT_BATCH_BYTES, COMMIT_HEAD_BYTES_MAX
from lakelog.domain.event_queue import EVENT_BYTES_MAX
from lakelog.retry import Backoff

COMMIT_BATCHES_MAX: Final = (EVENT_BYTES_MAX - COMMIT_HEAD_BYTES_MAX) // COMMIT_BATCH_BYTES
"""The most batches of an object: its Commit is one event, and must fit into one record (B6)."""

BUFFER_BYTES_MAX: Final = 2 << 30
"""The most that may be accepted and not yet committed: all of it may come to lie in one object,
whose bytes have numbers of 32 bits."""

CLOCK_HINT: Final = "set the clock, or `lakelog admin clock --accept` if it is right"
"""What an operator does about a clock that is not believed (rule 20)."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How batches are gathered, written, cached and cleaned up."""

    linger_ms: int = 3
    """How long the first batch of a WAL object waits for company. A put to a cloud store costs
    money, so there 100 to 250 is usual; a local directory is cheap."""

    close_early: bool = True
    """Whether an object is closed before that, once all requests that clients had under way lately
    are in it: nobody could send more before it is answered. False makes fewer objects and slower
    acknowledgements, for stores whose puts cost money."""

    linger_busy_ms: int = 20
    """… and how long when so much comes that `busy_bytes` or `busy_batches` gathered in
    `linger_ms`, and more goes on coming: an object costs a millisecond or two of work however full
    it is."""

    busy_bytes: int = 96 << 10

    busy_batches: int = 128

    object_bytes_max: int = 8 << 20
    """A WAL object is closed when it holds this much."""

    object_batches_max: int = 20_000
    """… or so many batches: their packed table must fit into one log record (rule 25). It is
    never more than `COMMIT_BATCHES_MAX`; a request of more batches goes into several objects."""

    puts_max: int = 4
    """Objects that are written at the same time; beyond it batches gather, in as many objects as
    their number asks for."""

    buffer_bytes_max: int = 128 << 20
    """Accepted and not yet committed bytes; beyond it produce requests wait (B7)."""

    index_bytes_max: int = 1 << 30
    """What the offset index may take in memory, about 19 million entries; near it producers wait,
    at it they are refused (rule 25). A checkpoint copies the index, so twice this must be there."""

    index_throttle_ms_max: int = 1_000
    """How long a Produce request waits when hardly any of `index_bytes_max` is left."""

    put_retry_ms: int = 100
    """The first pause after a failed put; it doubles up to `put_retry_max_ms`."""

    put_retry_max_ms: int = 2_000

    put_give_up_ms: int = 120_000
    """A put that fails for so long is given up; its clients have given up long before."""

    tail_cache_bytes: int = 96 << 20
    """Recently written batches that consumers at the end of the log read from memory."""

    read_cache_bytes: int = 32 << 20
    """Batches read from the object store, for readers further back; apart from the tail's."""

    read_ahead_bytes: int = 2 << 20
    """How much more than asked for a read of the object store brings."""

    reads_max: int = 64
    """Reads of the object store at the same time."""

    segment_cache_bytes: int = 32 << 20
    """Batches read from segments, for readers of the past of topics that have no table."""

    segment_part_bytes: int = 1 << 20
    """The least that is read of a segment at once."""

    table_cache_bytes: int = 96 << 20
    """Batches rebuilt from data files, for readers of the far past; apart from both others."""

    table_group_bytes: int = 12 << 20
    """What a row group takes in that cache, at the most about: what room is judged by."""

    table_batch_bytes: int = 256 << 10
    """Uncompressed bytes of a batch rebuilt from rows, if the topic's `max.message.bytes` is not
    less: large enough to compress well, small enough for a consumer's smallest fetch."""

    table_threads: int = 2
    """Threads that rebuild batches; 0 does it in the loop, for simulations."""

    table_reads_max: int = 4
    """Row groups that are read and rebuilt at the same time."""

    orphan_ttl_ms: int = 15 * 60 * 1000
    """Objects without a commit for so long are void (C2); ids jump ahead of it."""

    grace_ms: int = 10 * 60 * 1000
    """An unreferenced object is deleted when it was so in two passes this far apart (C3)."""

    sweep_interval_ms: int = 5 * 60 * 1000
    """How often garbage is looked for."""

    retention_interval_ms: int = 5 * 60 * 1000
    """How often retention is applied: Kafka's `log.retention.check.interval.ms`."""

    producer_expiry_ms: int = 24 * 3600 * 1000
    """An idle producer is forgotten after so long: Kafka's `producer.id.expiration.ms`."""

    producer_bytes_max: int = 512 << 20
    """What a domain remembers of idempotent producers, at 400 bytes for each partition that each of
    them wrote to: 1.3 million, which is 100 producers on 2,000 partitions six times over. Nearly
    full, it forgets those that were idle the longest first; full, new ones are told to repeat."""

    producer_check_interval_ms: int = 5_000
    """How often that is looked at."""

    write_expiry_ms: int = 7 * 24 * 3600 * 1000
    """The last version of an application that wrote nothing for so long is forgotten (X1)."""

    clock_skew_max_ms: int = 60_000
    """Rule 20: records that delete by age come only from a clock this close to the store's."""

    def __post_init__(self) -> None:
        if not 0 < self.object_batches_max <= COMMIT_BATCHES_MAX:
            raise ValueError(f"object_batches_max must be from 1 to {COMMIT_BATCHES_MAX}")
        if not 0 < self.buffer_bytes_max <= BUFFER_BYTES_MAX:
            raise ValueError(f"buffer_bytes_max must be from 1 to {BUFFER_BYTES_MAX}")
        if self.index_bytes_max <= 0:
            raise ValueError("index_bytes_max must be greater than 0")
        if self.index_throttle_ms_max < 0:
            raise ValueError("index_throttle_ms_max must not be negative")

    @property
    def put_backoff(self) -> Backoff:
        """The pauses after failed puts of one object."""
        return Backoff(self.put_retry_ms, self.put_retry_max_ms)
