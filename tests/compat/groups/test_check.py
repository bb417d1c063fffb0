"""The check of groups finds each planted fault by name, and stays silent on a good history."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.compat.groups.check import Fault, check, handed_over, longest_gap_ms
from tests.compat.groups.notes import (
    Acked,
    Asked,
    Assigned,
    Event,
    Failed,
    Left,
    Life,
    Read,
    Released,
    Trouble,
    parse_notes,
    show_numbers,
    show_offsets,
)

ENDS = {0: 100, 1: 50}
COMMITTED = {0: 100, 1: 50}


def first() -> Life:
    """Reads partition 0 up to 60 and all of partition 1, commits, and leaves partition 0."""
    events: list[Event] = [
        Assigned(1000, 1, (0, 1)),
        Read(1010, 0, 0, 60),
        Read(1011, 1, 0, 50),
        Asked(1020, 1, {0: 60, 1: 50}),
        Acked(1030, 1, {0: 60, 1: 50}),
        Released(1040, (0,), lost=False),
        Left(2000),
    ]
    return Life("first", events)


def second() -> Life:
    """Takes partition 0 over, and is killed after its last commit."""
    events: list[Event] = [
        Assigned(1100, 2, (0,)),
        Read(1110, 0, 60, 100),
        Asked(1120, 1, {0: 100}),
        Acked(1130, 1, {0: 100}),
    ]
    return Life("second", events, killed_ms=1500)


def with_event(life: Life, at: int, event: Event) -> Life:
    events = list(life.events)
    events[at] = event
    return replace(life, events=events)


def inserted(life: Life, at: int, *events: Event) -> Life:
    return replace(life, events=[*life.events[:at], *events, *life.events[at:]])


def faults(*lives: Life, committed: dict[int, int] | None = None) -> set[Fault]:
    found = check(lives, ENDS, COMMITTED if committed is None else committed)
    return {finding.fault for finding in found}


def test_a_good_history_has_no_findings() -> None:
    assert check([first(), second()], ENDS, COMMITTED) == []
    assert handed_over([first(), second()]) == 150


def test_a_record_that_nobody_got_is_skipped() -> None:
    assert Fault.SKIPPED in faults(first(), with_event(second(), 1, Read(1110, 0, 61, 100)))
    assert Fault.SKIPPED in faults(first(), with_event(second(), 1, Read(1110, 0, 60, 99)))


def test_a_record_that_nobody_wrote_is_beyond_the_end() -> None:
    assert faults(first(), with_event(second(), 1, Read(1110, 0, 60, 101))) == {Fault.BEYOND}


def test_a_member_that_begins_behind_the_commit_resumed_early() -> None:
    assert faults(first(), with_event(second(), 1, Read(1110, 0, 59, 100))) == {Fault.RESUMED_EARLY}


def test_a_member_that_begins_beyond_the_commit_resumed_late() -> None:
    reads_more = with_event(first(), 1, Read(1010, 0, 0, 70))
    assert faults(reads_more, with_event(second(), 1, Read(1110, 0, 70, 100))) == {
        Fault.RESUMED_LATE
    }


def test_an_invented_offset_0_is_found() -> None:
    assert faults(first(), with_event(second(), 1, Read(1110, 0, 0, 100))) == {Fault.RESUMED_EARLY}


def test_a_commit_of_a_killed_member_may_have_taken_effect_without_an_answer() -> None:
    unanswered = replace(first(), events=first().events[:4], killed_ms=1040)
    for begin in (0, 60):
        resumed = with_event(second(), 1, Read(1110, 0, begin, 100))
        assert faults(unanswered, resumed) == set()


def test_a_refused_commit_must_not_take_effect() -> None:
    refused = with_event(first(), 4, Failed(1030, 1, "22", certain=True))
    assert Fault.RESUMED_LATE in faults(refused, second())


def test_a_commit_that_is_gone_in_the_end_is_lost() -> None:
    lost = faults(first(), second(), committed={0: 60, 1: 50})
    assert lost == {Fault.COMMIT_LOST, Fault.NOT_AT_END}
    assert Fault.COMMIT_LOST in faults(first(), second(), committed={0: 100})


def test_a_group_that_stops_short_is_not_at_the_end() -> None:
    short = replace(second(), events=second().events[:2])
    assert faults(first(), short, committed={0: 60, 1: 50}) == {Fault.NOT_AT_END}


def test_a_partition_with_two_members_at_once_has_two_owners() -> None:
    early = with_event(second(), 0, Assigned(1035, 2, (0,)))
    assert Fault.TWO_OWNERS in faults(first(), early)


def test_a_member_that_lost_its_partitions_may_learn_it_late_unless_it_is_one_generation() -> None:
    lost = with_event(first(), 5, Released(1200, (0,), lost=True))
    assert faults(lost, second()) == set()
    same = with_event(second(), 0, Assigned(1100, 1, (0,)))
    assert faults(lost, same) == {Fault.TWO_OWNERS}


def test_a_pause_excuses_an_overlap_of_two_generations_only() -> None:
    late = with_event(first(), 5, Released(1200, (0,), lost=False))
    assert check([late, second()], ENDS, COMMITTED, fenced=True) == []
    assert faults(late, second()) == {Fault.TWO_OWNERS}


def test_a_commit_for_a_partition_that_went_to_another_is_stale() -> None:
    stale = inserted(first(), 6, Asked(1140, 2, {0: 60}), Acked(1150, 2, {0: 60}))
    assert Fault.STALE_COMMIT in faults(stale, second())
    refused = inserted(first(), 6, Asked(1140, 2, {0: 60}), Failed(1150, 2, "25", certain=True))
    assert faults(refused, second()) == set()


def test_the_newest_owner_may_commit_while_an_older_one_does_not_know_yet() -> None:
    late = with_event(first(), 5, Released(1900, (0,), lost=True))
    assert faults(late, second()) == set()


def test_commits_in_the_background_may_be_anywhere_up_to_what_was_read() -> None:
    background = Life(
        "first",
        [event for event in first().events if not isinstance(event, Asked | Acked)],
        automatic=True,
    )
    partly = [Acked(1030, None, {0: 20, 1: 50})]
    told = inserted(background, 3, *partly)
    for begin in (20, 35, 60):
        assert faults(told, with_event(second(), 1, Read(1110, 0, begin, 100))) == set()
    for begin in (0, 19):
        resumed = with_event(second(), 1, Read(1110, 0, begin, 100))
        assert faults(told, resumed) == {Fault.RESUMED_EARLY}


def test_a_member_that_gets_its_partition_back_may_go_on_where_it_was() -> None:
    again = inserted(
        with_event(first(), 1, Read(1010, 0, 0, 80)),
        6,
        Assigned(1060, 2, (0,)),
        Read(1070, 0, 80, 100),
        Asked(1080, 2, {0: 100}),
        Acked(1090, 2, {0: 100}),
    )
    assert faults(again) == set()


def test_what_a_member_complains_about_is_a_finding() -> None:
    assert faults(inserted(first(), 6, Trouble(1, "odd")), second()) == {Fault.TROUBLE}


def test_the_longest_time_without_a_record_counts_the_edges() -> None:
    assert longest_gap_ms(first(), 1000, 1500) == 489
    assert longest_gap_ms(first(), 900, 1012) == 110
    assert longest_gap_ms(first(), 5000, 6000) == 1000


def test_notes_are_read_as_they_are_written() -> None:
    text = (
        "1 assigned - 1,2\n2 assigned 7 -\n3 read 1 5 9\n4 asked 1 1:9\n5 acked 1 1:9\n"
        "6 acked - 2:3\n7 refused 2 ILLEGAL GENERATION\n8 unknown 3 time-out\n9 revoked 1,2\n"
        "10 lost 3\n11 fault who knows\n12 left\n13 rea"
    )
    assert parse_notes(text) == [
        Assigned(1, None, (1, 2)),
        Assigned(2, 7, ()),
        Read(3, 1, 5, 9),
        Asked(4, 1, {1: 9}),
        Acked(5, 1, {1: 9}),
        Acked(6, None, {2: 3}),
        Failed(7, 2, "ILLEGAL GENERATION", certain=True),
        Failed(8, 3, "time-out", certain=False),
        Released(9, (1, 2), lost=False),
        Released(10, (3,), lost=True),
        Trouble(11, "who knows"),
        Left(12),
    ]


def test_a_note_that_makes_no_sense_is_trouble() -> None:
    assert isinstance(parse_notes("1 gibberish x y\n")[0], Trouble)


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 1 << 40)))
def test_offsets_and_numbers_round_trip(offsets: dict[int, int]) -> None:
    line = f"1 acked 1 {show_offsets(offsets)}\n2 revoked {show_numbers(offsets)}\n"
    acked, released = parse_notes(line)
    assert isinstance(acked, Acked)
    assert acked.offsets == offsets
    assert isinstance(released, Released)
    assert released.partitions == tuple(sorted(offsets))
