"""Topics as the kernel finds them: every one that was added, and no other."""

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.data_stage import DataStage

from lakelog.broker.produce_topics import SLOTS_MIN, TopicTable, hash_of


def test_the_hash_is_fnv_1a() -> None:
    """The kernel computes the same; these are the published values."""
    assert hash_of(b"") == 0xCBF29CE484222325
    assert hash_of(b"a") == 0xAF63DC4C8601EC8C
    assert hash_of(b"foobar") == 0x85944171F73967E8


def found(table: TopicTable, key: bytes) -> int | None:
    """The number of a topic, looked up as the kernel does."""
    slots, keys, numbers, _, _ = table.kernel_table()
    mask = len(slots) - 1
    slot = hash_of(key) & mask
    while (number := slots[slot]) >= 0:
        start, length = numbers[number * 9], numbers[number * 9 + 1]
        if bytes(keys[start : start + length]) == key:
            return number
        slot = (slot + 1) & mask
    return None


@given(st.lists(st.binary(min_size=1, max_size=30), unique=True, max_size=3 * SLOTS_MIN))
def test_what_was_added_is_found_and_nothing_else(keys: list[bytes]) -> None:
    topic = DataStage().topic("t", 2)
    table = TopicTable()
    for number, key in enumerate(keys):
        assert found(table, key) is None
        table.add(key, topic)
        assert found(table, key) == number
    assert [found(table, key) for key in keys] == list(range(len(keys)))
    table.clear()
    assert not any(found(table, key) is not None for key in keys)
    assert len(table) == 0


def test_a_topic_brings_its_streams_and_limits() -> None:
    stage = DataStage()
    stage.topic("other", 3)
    limits = {"max.message.bytes": "500", "message.timestamp.type": "LogAppendTime"}
    topic = stage.topic("t", 2, configs={**limits, "cleanup.policy": "compact"})
    table = TopicTable()
    table.add(b"other", stage.topics.by_name["other"])
    table.add(b"t", topic)
    _, keys, numbers, streams, marks = table.kernel_table()
    assert bytes(keys) == b"othert"
    assert list(streams) == [1, 2, 3, 4, 5]
    assert len(marks) == len(streams)
    assert list(numbers[9:14]) == [5, 1, 3, 2, 500]
    assert list(numbers[16:18]) == [1, 1]
    assert table.topic(b"t") is topic
