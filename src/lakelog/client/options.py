"""What a consumer is told beside its configuration and its topics, checked. Pure."""

from dataclasses import dataclass
from typing import Final

from lakelog.kafka_client.failures import BadConfig

BATCH_SIZE: Final = 10_000
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
HELD_MESSAGES_MIN: Final = 500_000
HELD_MESSAGES_PER_PARTITION: Final = 8_000
"""The default bound of rows is never less than these: an order needs rows of every partition."""

OUT_OF_ORDER_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The arguments of a ConsumerManager, all of them allowed ones."""

    cutoff_ms: int | None = None
    batch_size: int = BATCH_SIZE
    ordered: bool = True
    max_held_messages: int | None = None
    max_held_bytes: int = HELD_BYTES_MAX
    out_of_order_ms: int = OUT_OF_ORDER_MS
    max_idle_ms: int | None = None
    views: bool = False
    headers: bool = True

    def __post_init__(self) -> None:
        _check("cutoff_ms", self.cutoff_ms, least=0, may_be_none=True)
        _check("batch_size", self.batch_size, least=1)
        _check("max_held_messages", self.max_held_messages, least=1, may_be_none=True)
        _check("max_held_bytes", self.max_held_bytes, least=1)
        _check("out_of_order_ms", self.out_of_order_ms, least=0)
        _check("max_idle_ms", self.max_idle_ms, least=1, may_be_none=True)

    def rows_max(self, partitions: int) -> int:
        """How many rows of so many partitions may be held."""
        if self.max_held_messages is not None:
            return self.max_held_messages
        least = max(HELD_MESSAGES_MIN, HELD_MESSAGES_PER_PARTITION * partitions)
        return max(5 * self.batch_size, least)


def whole_number(name: str, value: object, *, least: int) -> int:
    """A value that is a whole number and not less than that; else BadConfig."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadConfig(name, f"{value!r} is no whole number")
    if value < least:
        raise BadConfig(name, f"{value} is less than {least}")
    return value


def _check(name: str, value: object, *, least: int, may_be_none: bool = False) -> None:
    if value is not None or not may_be_none:
        whole_number(name, value, least=least)
