"""Offsets go when they are old and nobody reads them; those of topics that are gone go anyway."""

from msgspec.structs import replace

from lakelog.coordinator.offsets import RetentionCheck, expired
from lakelog.groups.state import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
)

DAY_MS = 24 * 3600 * 1000
OLD, NEW = b"o" * 16, b"n" * 16
GONE = b"g" * 16
MOMENT = RetentionCheck(
    now_ms=10 * DAY_MS, retention_ms=7 * DAY_MS, names={OLD: "old", NEW: "new"}, gone=frozenset()
)
OFFSETS = {
    (OLD, 0): CommittedOffset(1, -1, "", 2 * DAY_MS, 5),
    (NEW, 0): CommittedOffset(1, -1, "", 9 * DAY_MS, 6),
}
SUBSCRIBES_OLD = b"\0\0\0\0\0\1\0\3old\0\0\0\0"
MEMBER = ClassicMember("m", None, "c", "/h", 10_000, 60_000, (("range", SUBSCRIBES_OLD),), 1, 1)
CONSUMER = ConsumerMember("m", None, None, "c", "/h", 45_000, 60_000, ("old",), "", None, 1, 1)
LONG_MS = 8 * DAY_MS


def test_a_simple_group_loses_what_was_not_committed_for_the_retention() -> None:
    simple = ClassicGroup("g")
    assert expired(simple, OFFSETS, MOMENT, empty_for_ms=0) == ((OLD, "old", 0),)


def test_an_empty_group_keeps_all_until_it_was_empty_for_the_retention() -> None:
    empty = ClassicGroup("g", protocol_type="consumer", generation=4)
    assert expired(empty, OFFSETS, MOMENT, empty_for_ms=6 * DAY_MS) == ()
    assert expired(empty, OFFSETS, MOMENT, empty_for_ms=LONG_MS) == ((OLD, "old", 0),)
    assert expired(ConsumerGroup("g"), OFFSETS, MOMENT, empty_for_ms=0) == ()
    assert expired(ConsumerGroup("g"), OFFSETS, MOMENT, empty_for_ms=LONG_MS) != ()


def test_what_live_members_read_stays() -> None:
    live = ClassicGroup(
        "g",
        state=ClassicState.STABLE,
        protocol_type="consumer",
        protocol_name="range",
        members={"m": MEMBER},
    )
    assert expired(live, OFFSETS, MOMENT, empty_for_ms=0) == ()
    reads_other = replace(MEMBER, protocols=(("range", SUBSCRIBES_OLD.replace(b"old", b"new")),))
    other = replace(live, members={"m": reads_other})
    assert expired(other, OFFSETS, MOMENT, empty_for_ms=0) == ((OLD, "old", 0),)


def test_a_group_that_rebalances_or_says_nothing_of_topics_loses_nothing() -> None:
    live = ClassicGroup("g", protocol_type="connect", members={"m": MEMBER})
    for state in ClassicState:
        assert expired(replace(live, state=state), OFFSETS, MOMENT, empty_for_ms=0) == ()
    consumer = replace(live, protocol_type="consumer", state=ClassicState.PREPARING)
    assert expired(consumer, OFFSETS, MOMENT, empty_for_ms=0) == ()


def test_a_consumer_group_loses_what_it_does_not_read() -> None:
    reads_old = ConsumerGroup("g", members={"m": CONSUMER})
    reads_new = ConsumerGroup("g", members={"m": replace(CONSUMER, names=("new",))})
    assert expired(reads_old, OFFSETS, MOMENT, empty_for_ms=0) == ()
    assert expired(reads_new, OFFSETS, MOMENT, empty_for_ms=0) == ((OLD, "old", 0),)


def test_offsets_of_a_topic_that_is_surely_gone_go_at_once() -> None:
    offsets = {(GONE, 3): CommittedOffset(1, -1, "", 10 * DAY_MS, 9)}
    live = ConsumerGroup("g", members={"m": CONSUMER})
    assert expired(live, offsets, MOMENT, empty_for_ms=0) == ()
    sure = RetentionCheck(MOMENT.now_ms, MOMENT.retention_ms, MOMENT.names, gone=frozenset({GONE}))
    assert expired(live, offsets, sure, empty_for_ms=0) == ((GONE, "", 3),)
