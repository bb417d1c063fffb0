"""The topics that plain Produce requests may name, as the kernel looks them up.

A topic is found by the bytes of its name, or of its id from Produce v13 on: one table for each. It
holds what the kernel needs to judge a batch: the streams of the partitions, and the topic's limits.
A partition's mark is the last request that named it, so that one which names it twice is noticed.
Topics come in when a request names them, and all go when any topic or setting changes: that is
rare, and what is wanted again comes in again.
"""

from array import array
from typing import TYPE_CHECKING, Final, TypeAlias

from lakelog.broker.produce_checks import FIRST_VERSION_BY_ID
from lakelog.model.ids import INTERNAL_TOPICS, TopicId
from lakelog.records.acceptance import TimestampType

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

FREE: Final = -1
SLOTS_MIN: Final = 64
"""A power of two, as every later number of slots."""

_FNV_BASIS: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_UINT64_MAX: Final = (1 << 64) - 1

TOPIC_COLUMNS: Final = (
    "key_start",  # its name, or its id, in the keys
    "key_length",
    "first_stream",  # of its partitions, in the streams
    "partitions",
    "bytes_max",  # of a batch
    "before_ms",  # how far timestamps may lie before and after now
    "after_ms",
    "keyed",  # whether every record needs a key
    "append_time",  # whether the broker's time replaces the records'
)
"""The numbers of a topic, in the order of native/topics.h."""

KernelTable: TypeAlias = "tuple[array[int], bytearray, array[int], array[int], array[int]]"
"""Slots, keys, topics, streams and marks, as `parse_produce` takes them."""


def hash_of(key: bytes) -> int:
    """FNV-1a, which the kernel computes too."""
    value = _FNV_BASIS
    for byte in key:
        value = ((value ^ byte) * _FNV_PRIME) & _UINT64_MAX
    return value


class TopicTable:
    """Topics by a key; each is some numbers in arrays (native/topics.h)."""

    def __init__(self) -> None:
        self.serial = 0
        """Of the last request that was marked; no two requests have the same."""
        self.clear()

    def __len__(self) -> int:
        return len(self._topics)

    def topic(self, key: bytes) -> "Topic":
        """A topic that is in the table."""
        return self._topics[key]

    def kernel_table(self) -> KernelTable:
        """What the kernel reads; the marks are its own.

        Nothing may be added while it reads: an array that is read cannot grow.
        """
        return self._slots, self._keys, self._numbers, self._streams, self._marks

    def clear(self) -> None:
        """Forget every topic."""
        self._topics: dict[bytes, Topic] = {}
        self._slots = array("q", [FREE]) * SLOTS_MIN
        self._keys = bytearray()
        self._numbers = array("q")
        self._streams = array("q")
        self._marks = array("q")

    def add(self, key: bytes, topic: "Topic") -> None:
        """One topic more, which is not in the table."""
        assert key not in self._topics, key
        settings = topic.settings
        streams = topic.streams()
        appends = settings.timestamp_type is TimestampType.LOG_APPEND_TIME
        numbers = {
            "key_start": len(self._keys),
            "key_length": len(key),
            "first_stream": len(self._streams),
            "partitions": len(streams),
            "bytes_max": settings.message_bytes_max,
            "before_ms": settings.timestamp_before_max_ms,
            "after_ms": settings.timestamp_after_max_ms,
            "keyed": int(settings.compacted),
            "append_time": int(appends),
        }
        self._numbers.extend(numbers[column] for column in TOPIC_COLUMNS)
        self._keys += key
        self._streams.extend(streams)
        self._marks.extend([0] * len(streams))
        self._topics[key] = topic
        if 2 * len(self._topics) > len(self._slots):
            self._slots = array("q", [FREE]) * (2 * len(self._slots))
            for number, known in enumerate(self._topics):
                self._take_slot(known, number)
        else:
            self._take_slot(key, len(self._topics) - 1)

    def _take_slot(self, key: bytes, number: int) -> None:
        mask = len(self._slots) - 1
        slot = hash_of(key) & mask
        while self._slots[slot] != FREE:
            slot = (slot + 1) & mask
        self._slots[slot] = number


class ProduceTopics:
    """The topics of a broker that plain requests have named since anything last changed."""

    def __init__(self, broker: "Broker") -> None:
        self._topics = broker.topics
        self._by_name = TopicTable()
        self._by_id = TopicTable()
        broker.topics.on_change(self._forget)
        broker.broker_configs.on_change(self._forget)

    def table(self, version: int) -> TopicTable:
        """Where requests of that version look their topics up."""
        return self._by_id if version >= FIRST_VERSION_BY_ID else self._by_name

    def learn(self, table: TopicTable, key: bytes) -> bool:
        """Put a topic into its table; whether it is known here, and open to everybody.

        Who may write to an internal topic is asked on the ordinary way.
        """
        if table is self._by_id:
            topic = self._topics.cached_id(TopicId(key))
        else:
            topic = self._topics.cached(key.decode(errors="replace"))
        if topic is None or topic.name in INTERNAL_TOPICS:
            return False
        table.add(key, topic)
        return True

    def _forget(self) -> None:
        self._by_name.clear()
        self._by_id.clear()
