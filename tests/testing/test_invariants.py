"""Every check finds the violation it is for, planted here, and nothing in what is right."""

from dataclasses import replace

import pytest
from tests.domain.build import B, Domain, commit_of, idempotent, trim_of, wal_id

from lakelog.domain.envelope import DomainRecord, Stamp
from lakelog.domain.events import Barrier
from lakelog.domain.state import Applied, DomainState, Done, Ignored
from lakelog.model.ids import DomainId
from lakelog.testing.invariants import (
    HeardRead,
    History,
    OperationOutcome,
    Sent,
    check_acknowledged,
    check_deletion,
    check_exactly_once,
    check_fencing,
    check_forward,
    check_history,
    check_inventory,
    check_late_commit,
    check_leaks,
    check_marks,
    check_one_value,
    check_order,
    check_phantoms,
    check_read_your_writes,
    check_references,
    check_tiling,
    heads_of,
    named_objects,
)
from lakelog.wal.layout import TOKEN_BYTES, make_wal_id, object_key


def committed(*batches: B, number: int) -> Domain:
    domain = Domain(1, 2)
    event = commit_of(batches, number=number, zone="here")
    domain.add(event)
    return domain


def good() -> Domain:
    domain = committed(B(1, 5), B(2, 2), number=1)
    domain.add(commit_of([idempotent(1, 0), idempotent(1, 0), B(1, 3)], number=2, zone="here"))
    domain.add(trim_of({1: 2}))
    return domain


KEY = object_key("here", DomainId(0), wal_id(1_000, 1))


def test_a_good_state_passes_every_check() -> None:
    state = good().state
    inventory = named_objects(state)
    assert check_tiling(state) == []
    assert check_references(state) == []
    assert check_inventory(state, inventory) == []
    assert check_leaks(state, inventory, horizon_ms=5_000) == []
    assert check_deletion(state, ["wal/other"]) == []
    assert check_forward(heads_of(state), heads_of(state)) == []


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "letter"),
    [
        ("index", "end", 0, 4, "L4"),
        ("index", "start", 3, 1, "L4"),
        ("streams", "head", 0, 99, "L5"),
        ("streams", "log_start", 0, 7, "L4"),
        ("streams", "log_start", 1, -1, "L4"),
        ("streams", "live_bytes", 0, 1, "L4"),
    ],
)
def test_holes_and_overlaps_break_the_tiling(
    table: str, column: str, row: int, value: int, letter: str
) -> None:
    state = good().state
    columns = state.index.columns if table == "index" else state.streams.columns
    columns[column][row] = value
    assert any(said.startswith(letter) for said in check_tiling(state))


def test_an_entry_outside_its_object_breaks_the_references() -> None:
    state = good().state
    state.index.columns["byte_length"][0] = 10_000
    assert any(said.startswith("G3") for said in check_references(state))


def test_a_live_entry_of_no_stream_breaks_the_references() -> None:
    state = good().state
    state.index.columns["stream"][0] = 50
    state.index.columns["object"][0] = state.objects.add(state.objects.name(0), size_bytes=1)
    assert any(said.startswith("G3") for said in check_references(state))


def test_a_missing_or_short_object_is_found() -> None:
    state = good().state
    inventory = named_objects(state)
    assert check_inventory(state, inventory | {KEY: 1}) != []
    del inventory[KEY]
    assert check_inventory(state, inventory) != []


def test_an_object_without_a_name_is_a_leak_once_the_horizon_passed_it() -> None:
    state = DomainState()
    orphan = object_key("here", DomainId(0), make_wal_id(1_000, bytes(TOKEN_BYTES)))
    assert check_leaks(state, {orphan: 1}, horizon_ms=1_000) == []
    assert check_leaks(state, {orphan: 1}, horizon_ms=1_001) != []
    assert check_leaks(state, {"something/else": 1}, horizon_ms=1_001) == []


def test_deleting_a_named_object_is_found() -> None:
    assert check_deletion(good().state, [KEY]) != []


def test_marks_that_go_back_are_found() -> None:
    assert check_forward({1: (0, 5)}, {1: (0, 4)}) != []
    assert check_forward({1: (3, 5)}, {1: (2, 5)}) != []
    assert check_forward({1: (3, 5)}, {}) == []


def test_a_commit_of_a_deleted_object_is_found() -> None:
    domain = Domain(1)
    applied = domain.add(commit_of([B(1)], number=1, zone="here"))
    assert check_late_commit(domain.state, applied, {KEY}) != []
    assert check_late_commit(domain.state, applied, set()) == []


def test_an_effect_of_an_old_stamp_is_found() -> None:
    record = DomainRecord("a", Stamp(1, 5), 1, (Barrier(),))
    done, ignored = Applied(9, record, (Done(),)), Applied(9, record, (Ignored(),))
    assert check_fencing({"a": Stamp(1, 5)}, record, done) != []
    assert check_fencing({"a": Stamp(2, 1)}, record, done) != []
    assert check_fencing({"a": Stamp(2, 1)}, record, ignored) == []
    assert check_fencing({"a": Stamp(1, 4)}, record, done) == []


SENT = Sent("p", 1, 0, ("a", "b"), 0.0, 1.0, OperationOutcome.OK, 0)
LATER = Sent("p", 1, 1, ("c",), 0.5, 1.5, OperationOutcome.OK, 2)
SEEN = HeardRead("c", "one", 1, 0, ((0, "a"), (1, "b")), 0, 3, 2.0, 2.1, False)
EMPTY = HeardRead("c", "one", 1, 3, (), 0, 3, 3.0, 3.1, True)
FINAL = {1: ((0, "a"), (1, "b"), (2, "c"))}


def history(**changes: object) -> History:
    made = History([SENT, LATER], [SEEN, EMPTY], dict(FINAL), {1: 0})
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_a_good_history_passes_every_check() -> None:
    assert check_history(history()) == []


def test_what_was_trimmed_is_not_lost() -> None:
    trimmed = history(final={1: ((2, "c"),)}, log_starts={1: 2})
    assert check_acknowledged(trimmed) == []


@pytest.mark.parametrize(
    ("bad", "check"),
    [
        (history(final={1: ((0, "a"), (2, "c"))}), check_acknowledged),
        (history(final={1: ((0, "a"), (1, "c"), (2, "b"))}), check_acknowledged),
        (history(sent=[replace(SENT, ending=OperationOutcome.FAILED), LATER]), check_phantoms),
        (history(sent=[LATER]), check_phantoms),
        (history(sent=[replace(SENT, stream=2), LATER]), check_phantoms),
        (history(seen=[replace(SEEN, records=((0, "b"),))]), check_one_value),
        (history(sent=[SENT, replace(LATER, base_offset=1)]), check_one_value),
        (history(sent=[replace(SENT, base_offset=5), LATER]), check_order),
        (history(seen=[replace(EMPTY, head=2)]), check_read_your_writes),
        (history(seen=[SEEN, replace(EMPTY, head=2)]), check_marks),
        (history(seen=[replace(SEEN, log_start=1), EMPTY]), check_marks),
        (history(final={1: ((0, "a"), (1, "b"), (2, "c"), (3, "a"))}), check_exactly_once),
        (history(final={1: ((0, "a"), (1, "b"), (3, "c"))}), check_exactly_once),
    ],
    ids=[
        "L1 lost",
        "L1 moved",
        "L2 failed and there",
        "L2 nobody sent it",
        "L2 misrouted",
        "L3 two readers",
        "L3 reader and ack",
        "L6 order",
        "L7 emptiness",
        "L8 head",
        "L8 log start",
        "D1 twice",
        "D1 gap",
    ],
)
def test_a_planted_violation_is_found(bad: History, check: object) -> None:
    assert callable(check)
    assert check(bad) != []


def test_reads_that_prove_nothing_may_be_behind() -> None:
    behind = replace(SEEN, head=2)
    assert check_read_your_writes(history(seen=[behind])) == []
    other_connection = replace(SEEN, connection="two", head=2)
    assert check_marks(history(seen=[EMPTY, other_connection])) == []


def test_what_a_plain_producer_retried_may_stand_there_twice() -> None:
    twice = {1: ((0, "a"), (1, "b"), (2, "c"), (3, "a"))}
    plain = [replace(SENT, once=False), LATER]
    assert check_exactly_once(history(sent=plain, final=twice)) == []
