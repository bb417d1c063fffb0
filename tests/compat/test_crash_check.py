"""The crash checker finds each planted fault by name, and stays silent on a good history."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.compat.crash_check import (
    Ack,
    Fault,
    History,
    Logged,
    Stamp,
    check,
    encode_payload,
    parse_payload,
)

SOLID, PLAIN = "solid", "plain"


def good_log(count: int = 20) -> list[Logged]:
    """Two producers in turn on two partitions."""
    log = []
    for partition in range(2):
        for offset in range(count):
            producer = SOLID if offset % 2 else PLAIN
            log.append(Logged(partition, offset, Stamp(producer, partition, offset // 2)))
    return log


def told(log: list[Logged]) -> History:
    acks = [Ack(record.stamp, record.offset) for record in log if record.stamp is not None]
    return History(acks, frozenset(), frozenset({SOLID}))


def renumbered(log: list[Logged]) -> list[Logged]:
    """Give each partition contiguous offsets again."""
    ends: dict[int, int] = {}
    result = []
    for record in log:
        result.append(replace(record, offset=ends.get(record.partition, 0)))
        ends[record.partition] = result[-1].offset + 1
    return result


def faults(history: History, log: list[Logged]) -> set[Fault]:
    return {finding.fault for finding in check(history, log)}


LOG = good_log()


def test_a_good_history_has_no_findings() -> None:
    assert check(told(LOG), LOG) == []


def test_an_acknowledged_record_that_is_gone_is_lost() -> None:
    assert faults(told(LOG), LOG[:-1]) == {Fault.LOST}
    cut = renumbered([*LOG[:4], *LOG[5:]])
    assert Fault.LOST in faults(told(LOG), cut)


def test_an_acknowledged_record_at_another_offset_is_misplaced() -> None:
    moved = renumbered([Logged(0, 0, Stamp(PLAIN, 0, 99)), *LOG])
    assert Fault.MISPLACED in faults(told(LOG), moved)


def test_a_repeated_record_of_an_idempotent_producer_is_a_duplicate() -> None:
    repeated = [*LOG[:20], replace(LOG[1], offset=20), *LOG[20:]]
    assert faults(told(LOG), repeated) == {Fault.DUPLICATE}


def test_a_plain_producer_may_repeat_itself() -> None:
    repeated = [*LOG[:20], replace(LOG[0], offset=20), *LOG[20:]]
    assert check(told(LOG), repeated) == []


def test_records_out_of_order_are_found_even_if_nothing_was_acknowledged() -> None:
    swapped = renumbered([*LOG[:1], LOG[3], LOG[2], LOG[1], *LOG[4:]])
    silent = replace(told(LOG), acks=())
    assert Fault.REORDERED in faults(silent, swapped)


def test_a_hole_in_the_offsets_is_a_gap() -> None:
    holed = [record for record in LOG if (record.partition, record.offset) != (1, 4)]
    history = replace(told(LOG), acks=())
    assert faults(history, holed) == {Fault.GAP}
    assert faults(history, [replace(each, offset=each.offset + 1) for each in LOG]) == {Fault.GAP}
    assert faults(history, [*LOG[:3], LOG[2], *LOG[3:]]) == {Fault.GAP}


def test_a_missing_record_between_others_is_a_hole_unless_the_client_was_told() -> None:
    missing = LOG[3].stamp
    assert missing is not None
    holed = renumbered([*LOG[:3], *LOG[4:]])
    silent = replace(told(LOG), acks=())
    assert faults(silent, holed) == {Fault.HOLE}
    assert check(replace(silent, failed=frozenset({missing})), holed) == []


def test_a_record_of_another_partition_or_topic_is_foreign() -> None:
    assert faults(told([]), [Logged(0, 0, Stamp(PLAIN, 1, 0))]) == {Fault.FOREIGN}
    assert faults(told([]), [Logged(0, 0, None)]) == {Fault.FOREIGN}


@given(st.integers(0, 9), st.integers(0, 10**9), st.integers(0, 100))
def test_a_payload_says_where_it_belongs(partition: int, sequence: int, padding: int) -> None:
    stamp = Stamp(SOLID, partition, sequence)
    assert parse_payload("t", encode_payload("t", stamp, padding)) == stamp
    assert parse_payload("other", encode_payload("t", stamp, padding)) is None


@given(st.one_of(st.none(), st.binary()))
def test_a_strange_payload_is_nobodys(payload: bytes | None) -> None:
    assert parse_payload("t", payload) is None


@given(st.data())
def test_any_single_removal_from_the_log_is_found(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(LOG) - 1))
    assert check(told(LOG), renumbered([*LOG[:at], *LOG[at + 1 :]]))
