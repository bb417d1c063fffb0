"""What `apply` makes of single records; the model test covers their combinations."""

import numpy as np
import pytest
from tests.domain.build import (
    B,
    Domain,
    commit_of,
    create_of,
    idempotent,
    outcome_rows,
    trim_of,
    wal_id,
)
from tests.domain.dump import dump_state

from lakelog.domain import judge as judge_module
from lakelog.domain import state as state_module
from lakelog.domain.envelope import DomainRecord, Stamp, encode_record
from lakelog.domain.events import (
    Barrier,
    Drop,
    ExpireProducers,
    Genesis,
    Hello,
    Horizon,
    Swap,
    Upgrade,
)
from lakelog.domain.machine import apply
from lakelog.domain.state import LEVEL_MAX, DomainState, Done, Ignored, Swapped, Trimmed, Verdict
from lakelog.model.failures import Corrupt
from lakelog.streams.objects import FileKind, FileName, WalName, digest

SEQUENCE_LAST = 2**31 - 1


def verdicts(rows: list[tuple[int, int, int]]) -> list[Verdict]:
    return [Verdict(row[0]) for row in rows]


def head(domain: Domain, stream: int) -> int:
    facts = domain.state.streams.facts(stream)
    assert facts is not None
    return facts.head


def entries(domain: Domain, stream: int) -> list[tuple[int, int]]:
    row = domain.state.streams.row_of[stream]
    rows = domain.state.index.rows(domain.state.streams, row).tolist()
    found = [domain.state.index.entry(entry) for entry in rows]
    return [(entry.start, entry.end) for entry in found]


# The log: genesis, stamps, levels


def test_a_log_that_does_not_begin_with_genesis_is_refused() -> None:
    state = DomainState()
    with pytest.raises(Corrupt):
        apply(state, encode_record(DomainRecord("a", Stamp(1, 1), 1, (Hello(1),))))
    assert state.position == 0


def test_the_genesis_of_another_cluster_stops_the_domain() -> None:
    domain = Domain()
    before = dump_state(domain.state)
    with pytest.raises(Corrupt):
        domain.add(Genesis("stranger", 0, 1))
    with pytest.raises(Corrupt):
        domain.add(Barrier(), Genesis("cluster", 9, 1))
    assert dump_state(domain.state) == before


def test_a_second_genesis_of_the_same_cluster_changes_nothing() -> None:
    domain = Domain(1)
    domain.commit(B(1, 3))
    before = dump_state(domain.state)
    domain.add(Genesis("cluster", 0, 0), Hello(1), writer="b")
    after = dump_state(domain.state)
    assert after["streams"] == before["streams"]
    assert after["level"] == before["level"]


def test_a_stamp_that_is_not_newer_has_no_effect_but_takes_a_position() -> None:
    domain = Domain(1)
    record = encode_record(DomainRecord("a", Stamp(1, 9), 1, (commit_of([B(1, 3)]),)))
    assert head_after(domain, record) == 3
    assert apply(domain.state, record).outcomes == (Ignored(),)
    older = encode_record(DomainRecord("a", Stamp(1, 8), 1, (commit_of([B(1, 3)]),)))
    assert apply(domain.state, older).outcomes == (Ignored(),)
    assert head(domain, 1) == 3
    assert domain.state.position == 5


def head_after(domain: Domain, record: bytes) -> int:
    apply(domain.state, record)
    return head(domain, 1)


def test_a_new_incarnation_fences_every_record_of_the_older_one() -> None:
    domain = Domain(1)
    domain.add(Hello(1), incarnation=2)
    zombie = DomainRecord("a", Stamp(1, 1_000), 1, (commit_of([B(1)]),))
    assert apply(domain.state, encode_record(zombie)).outcomes == (Ignored(),)
    assert head(domain, 1) == 0


def test_a_new_incarnation_is_not_heard_before_its_hello() -> None:
    domain = Domain(1)
    assert domain.add(commit_of([B(1)]), incarnation=2).outcomes == (Ignored(),)
    assert domain.add(commit_of([B(1)]), writer="stranger").outcomes == (Ignored(),)
    assert domain.commit(B(1)) == [(Verdict.ACCEPTED, 0, -1)]


def test_a_level_above_ours_stops_the_domain_before_anything_changes() -> None:
    domain = Domain(1)
    before = dump_state(domain.state)
    with pytest.raises(Corrupt):
        domain.add(commit_of([B(1)]), Upgrade(LEVEL_MAX + 1))
    record = DomainRecord("a", Stamp(1, 90), LEVEL_MAX + 1, (Barrier(),))
    with pytest.raises(Corrupt):
        apply(domain.state, encode_record(record))
    assert dump_state(domain.state) == before


# Commits


def test_one_commit_gives_every_stream_its_own_offsets() -> None:
    domain = Domain(1, 2)
    assert domain.commit(B(2, 5), B(1, 3), B(2, 1)) == [
        (Verdict.ACCEPTED, 0, -1),
        (Verdict.ACCEPTED, 0, -1),
        (Verdict.ACCEPTED, 5, -1),
    ]
    assert domain.commit(B(1, 1)) == [(Verdict.ACCEPTED, 3, -1)]
    assert entries(domain, 2) == [(0, 6)]


def test_a_commit_to_an_unknown_stream_is_refused_and_creates_nothing() -> None:
    domain = Domain(1)
    assert verdicts(domain.commit(B(1), B(5))) == [Verdict.ACCEPTED, Verdict.UNKNOWN_STREAM]
    assert domain.state.streams.facts(5) is None


def test_a_retry_is_answered_with_the_original_offset_and_timestamp() -> None:
    domain = Domain(1)
    first = B(1, 2, 7, 0, 0, timestamp_ms=77)
    domain.commit(first)
    domain.commit(B(1, 4))
    assert domain.commit(first) == [(Verdict.DUPLICATE, 0, 77)]
    assert head(domain, 1) == 6


def test_a_retry_in_the_same_record_is_a_duplicate() -> None:
    """B4: judged against the state before the record, both would be accepted."""
    domain = Domain(1)
    rows = domain.commit(idempotent(1, 0), idempotent(1, 0), idempotent(1, 1), idempotent(1, 0))
    assert rows == [
        (Verdict.ACCEPTED, 0, -1),
        (Verdict.DUPLICATE, 0, 1_000),
        (Verdict.ACCEPTED, 1, -1),
        (Verdict.DUPLICATE, 0, 1_000),
    ]
    assert entries(domain, 1) == [(0, 1), (1, 2)]


def test_the_fifth_batch_back_is_a_duplicate_and_the_sixth_is_out_of_sequence() -> None:
    domain = Domain(1)
    for sequence in range(6):
        domain.commit(idempotent(1, sequence))
    assert verdicts(domain.commit(idempotent(1, 1))) == [Verdict.DUPLICATE]
    assert verdicts(domain.commit(idempotent(1, 0))) == [Verdict.OUT_OF_SEQUENCE]


def test_a_gap_an_old_epoch_and_a_new_epoch_have_their_verdicts() -> None:
    domain = Domain(1)
    domain.commit(idempotent(1, 0, epoch=3))
    assert verdicts(domain.commit(idempotent(1, 2, epoch=3))) == [Verdict.OUT_OF_SEQUENCE]
    assert verdicts(domain.commit(idempotent(1, 1, epoch=2))) == [Verdict.STALE_EPOCH]
    assert verdicts(domain.commit(idempotent(1, 1, epoch=4))) == [Verdict.OUT_OF_SEQUENCE]
    assert verdicts(domain.commit(idempotent(1, 0, epoch=4))) == [Verdict.ACCEPTED]
    assert verdicts(domain.commit(idempotent(1, 0, epoch=3))) == [Verdict.STALE_EPOCH]


def test_sequences_wrap_to_zero_after_the_greatest_int32() -> None:
    domain = Domain(1)
    domain.commit(idempotent(1, 0, count=SEQUENCE_LAST))
    rows = domain.commit(idempotent(1, SEQUENCE_LAST), idempotent(1, 0), idempotent(1, 1))
    assert verdicts(rows) == [Verdict.ACCEPTED] * 3
    domain.commit(idempotent(1, 2))
    assert domain.commit(idempotent(1, SEQUENCE_LAST))[0][:2] == (Verdict.DUPLICATE, SEQUENCE_LAST)


def test_a_batch_that_straddles_the_wrap_is_followed_by_its_remainder() -> None:
    domain = Domain(1)
    domain.commit(idempotent(1, 0, count=SEQUENCE_LAST - 1))
    rows = domain.commit(idempotent(1, SEQUENCE_LAST - 1, count=5), idempotent(1, 3))
    assert verdicts(rows) == [Verdict.ACCEPTED] * 2


@pytest.mark.parametrize("few", [0, 24])
def test_of_two_batches_that_fit_a_retry_the_oldest_answers(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """As Kafka's ProducerStateEntry.findDuplicateBatch, which takes the first of its deque."""
    monkeypatch.setattr(judge_module, "FEW_BATCHES", few)
    domain = Domain(1)
    turn = (idempotent(1, 0, count=SEQUENCE_LAST - 2), idempotent(1, SEQUENCE_LAST - 2, count=3))
    domain.commit(*turn, turn[0])  # the third is in sequence again, a whole turn later
    assert domain.commit(turn[0]) == [(Verdict.DUPLICATE, 0, 1_000)]


def test_an_unknown_producer_begins_at_zero_unless_it_may_have_expired() -> None:
    """B3: sequence 16 must not overtake sequence 0 that is still on its way."""
    domain = Domain(1, 2)
    assert verdicts(domain.commit(idempotent(1, 16, producer=5))) == [Verdict.OUT_OF_SEQUENCE]
    domain.commit(idempotent(1, 0, producer=5))
    domain.add(Horizon(2_000), ExpireProducers(2_000))
    rows = [idempotent(1, 16, producer=5), idempotent(2, 3, producer=4)]
    assert verdicts(domain.commit(*rows, time_ms=2_000)) == [Verdict.ACCEPTED] * 2
    late = domain.commit(idempotent(1, 16, producer=6), time_ms=2_000)
    assert verdicts(late) == [Verdict.OUT_OF_SEQUENCE]


def test_a_full_table_refuses_new_producers_and_serves_the_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_module, "PRODUCERS_MAX_BEFORE", 1)
    domain = Domain(1)
    domain.commit(idempotent(1, 0, producer=1))
    full = domain.commit(idempotent(1, 0, producer=2))
    assert verdicts(full) == [Verdict.PRODUCERS_FULL]
    assert verdicts(domain.commit(idempotent(1, 1, producer=1))) == [Verdict.ACCEPTED]


def test_from_level_3_on_there_is_room_for_more_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "PRODUCERS_MAX_BEFORE", 1)
    monkeypatch.setattr(state_module, "PRODUCERS_MAX", 2)
    domain = Domain(1)
    domain.add(Upgrade(2))
    sent = [idempotent(1, 0, producer=number) for number in range(3)]
    two_are_too_many = [Verdict.ACCEPTED, Verdict.PRODUCERS_FULL]
    assert verdicts(domain.commit(*sent[:2])) == two_are_too_many
    domain.add(Upgrade(3))
    assert verdicts(domain.commit(*sent[1:])) == two_are_too_many


def test_the_rooms_for_producers_are_those_of_their_levels_for_ever() -> None:
    assert (state_module.PRODUCERS_MAX_BEFORE, state_module.PRODUCERS_MAX) == (200_000, 8_000_000)


def test_many_batches_are_judged_like_few() -> None:
    """The array path: 60 streams in one record, all verdicts among them."""
    streams = range(1, 61)
    domain = Domain(*streams)
    domain.commit(*(idempotent(stream, 0, producer=stream) for stream in streams))
    batches = [idempotent(stream, 1, producer=stream) for stream in streams]
    batches[3] = idempotent(4, 0, producer=4)
    batches[5] = idempotent(6, 9, producer=6)
    batches[7] = B(8, 2)
    rows = domain.commit(*batches, B(99))
    expected = [Verdict.ACCEPTED] * 61
    expected[3], expected[5], expected[60] = (
        Verdict.DUPLICATE,
        Verdict.OUT_OF_SEQUENCE,
        Verdict.UNKNOWN_STREAM,
    )
    assert verdicts(rows) == expected
    assert [head(domain, stream) for stream in (4, 5, 6, 8)] == [1, 2, 1, 3]


# Horizon


def test_a_commit_older_than_the_horizon_is_void_as_a_whole() -> None:
    domain = Domain(1)
    domain.add(Horizon(5_000))
    assert verdicts(domain.commit(B(1), B(7), time_ms=4_999)) == [Verdict.VOID] * 2
    assert verdicts(domain.commit(B(1), time_ms=5_000)) == [Verdict.ACCEPTED]


def test_the_horizon_never_moves_back() -> None:
    domain = Domain(1)
    domain.add(Horizon(5_000))
    domain.add(Horizon(1_000))
    assert verdicts(domain.commit(B(1), time_ms=4_000)) == [Verdict.VOID]


def test_producers_younger_than_the_horizon_are_not_forgotten() -> None:
    domain = Domain(1)
    domain.commit(idempotent(1, 0), time_ms=1_000)
    domain.add(Horizon(1_000), ExpireProducers(9_000))
    assert verdicts(domain.commit(idempotent(1, 0), time_ms=2_000)) == [Verdict.DUPLICATE]


# Trim, drop, swap


def test_trim_moves_forward_only_and_never_beyond_the_head() -> None:
    domain = Domain(1, 2)
    domain.commit(B(1, 10))
    (moved,) = domain.add(trim_of({1: 4, 9: 1})).outcomes
    assert isinstance(moved, Trimmed)
    assert moved.log_starts.tolist() == [4, -1]
    assert entries(domain, 1) == [(0, 10)]
    (back,) = domain.add(trim_of({1: 2})).outcomes
    (beyond,) = domain.add(trim_of({1: 99})).outcomes
    assert isinstance(back, Trimmed)
    assert isinstance(beyond, Trimmed)
    assert (back.log_starts.tolist(), beyond.log_starts.tolist()) == ([4], [10])
    assert entries(domain, 1) == []
    assert domain.commit(B(1)) == [(Verdict.ACCEPTED, 10, -1)]


def test_a_dropped_stream_is_not_made_again_by_a_commit_in_flight() -> None:
    domain = Domain(1, 2)
    domain.commit(idempotent(1, 0), B(2))
    domain.add(Drop(np.array([1, 77, 1], dtype=np.int64)))
    rows = domain.commit(idempotent(1, 1), B(2))
    assert verdicts(rows) == [Verdict.UNKNOWN_STREAM, Verdict.ACCEPTED]
    assert len(domain.state.producers) == 0


def test_create_of_a_stream_that_exists_keeps_its_data() -> None:
    domain = Domain(1)
    domain.commit(B(1, 3))
    assert domain.add(create_of(1, 2)).outcomes == (Done(),)
    assert (head(domain, 1), head(domain, 2)) == (3, 0)


def swap_of(start: int, end: int, *objects: int) -> Swap:
    replaces = tuple(digest(WalName(wal_id(1_000, number), "")) for number in objects)
    return Swap(1, start, end, FileName(FileKind.PARQUET, "data/f"), 500, 9, replaces)


def three_entries() -> Domain:
    """Stream 1 with the entries [0, 2), [2, 4), [4, 6) of the objects 2, 3 and 4."""
    domain = Domain(1)
    for _ in range(3):
        domain.commit(B(1, 2))
    assert entries(domain, 1) == [(0, 2), (2, 4), (4, 6)]
    return domain


def test_a_swap_replaces_whole_entries_by_one_file() -> None:
    domain = three_entries()
    assert domain.add(swap_of(0, 4, 2, 3)).outcomes == (Swapped(True),)
    assert entries(domain, 1) == [(0, 4), (4, 6)]
    facts = domain.state.streams.facts(1)
    assert facts is not None
    assert facts.live_bytes == 600


@pytest.mark.parametrize(
    "swap",
    [
        swap_of(0, 3, 2, 3),
        swap_of(1, 4, 2, 3),
        swap_of(0, 4, 2),
        swap_of(0, 7, 2, 3, 4),
        swap_of(3, 6, 3, 4),
    ],
    ids=["half an end", "half a start", "an object it was not made of", "too far", "middle"],
)
def test_a_swap_that_does_not_fit_is_refused_and_changes_nothing(swap: Swap) -> None:
    domain = three_entries()
    (outcome,) = domain.add(swap).outcomes
    assert isinstance(outcome, Swapped)
    assert not outcome.accepted
    assert outcome.reason
    assert entries(domain, 1) == [(0, 2), (2, 4), (4, 6)]


def test_a_swap_covers_exactly_what_trimming_left() -> None:
    """T4: refusing it would make the planner commit the same rows to the table again."""
    domain = three_entries()
    domain.add(trim_of({1: 3}))
    assert domain.add(swap_of(0, 4, 2, 3)).outcomes == (Swapped(True),)
    assert entries(domain, 1) == [(2, 4), (4, 6)]


def test_a_swap_of_a_dropped_stream_is_refused() -> None:
    domain = three_entries()
    domain.add(Drop(np.array([1], dtype=np.int64)))
    (outcome,) = domain.add(swap_of(0, 4, 2, 3)).outcomes
    assert isinstance(outcome, Swapped)
    assert not outcome.accepted


def test_several_events_of_one_record_are_judged_in_order() -> None:
    domain = Domain()
    outcomes = domain.add(create_of(1), commit_of([B(1, 2)]), trim_of({1: 1})).outcomes
    assert outcome_rows(outcomes[1]) == [(Verdict.ACCEPTED, 0, -1)]
    assert isinstance(outcomes[2], Trimmed)
    assert outcomes[2].log_starts.tolist() == [1]
