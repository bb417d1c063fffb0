"""What a consumer counts, as a frozen value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counters since the consumer was made; `held_*` and `paused_partitions` are as of now."""

    polls: int
    rows_received: int
    rows_released: int
    rows_held: int
    rows_late: int
    """Rows given out after a later one while priming: beyond `out_of_order_ms`, or squeezed."""
    bytes_received: int
    """Bytes of record batches as they came over the wire."""
    bytes_held: int
    fetches: int
    fetches_failed: int
    batches_refetched: int
    """Answers whose checksum was wrong at first."""
    squeezes: int
    """Releases that did not wait for late rows, because memory was over its bound."""
    partitions_paused: int
    partitions_resumed: int
    paused_partitions: int
    partitions_added: int
    topics_recreated: int
    offsets_reset: int
