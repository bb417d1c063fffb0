"""Writes: once by application and version (X1), whole or not at all (X2), kept in checkpoints."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.build import B, Domain, commit_of, create_of, outcome_rows
from tests.domain.dump import dump_state
from tests.domain.test_checkpoint_model import checkpoint_of, reloaded
from tests.profiles import examples

from lakelog.domain import machine as writes_module
from lakelog.domain.checkpoint import decode_manifest, encode_manifest
from lakelog.domain.commit_event import WRITES_LEVEL, Commit, ExpireWrites, Write
from lakelog.domain.events import Genesis, Horizon, Upgrade
from lakelog.domain.machine import apply_record
from lakelog.domain.state import (
    LEVEL_MAX,
    DomainState,
    Done,
    LastWrite,
    Verdict,
    WriteVerdict,
    Written,
)


class Writing(Domain):
    """A domain that takes writes."""

    def __init__(self, *streams: int, level: int = LEVEL_MAX) -> None:
        super().__init__(*streams)
        self.add(Upgrade(level))

    def write(self, application: str, version: int, *commits: Commit) -> Written:
        (outcome,) = self.add(Write(application, version, commits)).outcomes
        assert isinstance(outcome, Written)
        return outcome

    def heads(self) -> dict[int, int]:
        streams = self.state.streams
        return {stream: int(streams.columns["head"][row]) for stream, row in streams.row_of.items()}


def obj(number: int, *batches: B, time_ms: int = 1_000) -> Commit:
    return commit_of(batches, number=number, time_ms=time_ms, zone="z")


def test_all_objects_of_a_write_are_taken_in_their_order() -> None:
    domain = Writing(1, 2)
    domain.commit(B(1, 5))
    written = domain.write("job", 0, obj(1, B(1, 3), B(2, 4)), obj(2, B(1, 2)))
    assert written.verdict is WriteVerdict.TAKEN
    assert [outcome_rows(one) for one in written.commits] == [
        [(Verdict.ACCEPTED, 5, -1), (Verdict.ACCEPTED, 0, -1)],
        [(Verdict.ACCEPTED, 8, -1)],
    ]
    assert domain.heads() == {1: 10, 2: 4}


def test_x1_a_version_is_taken_in_once_whatever_objects_it_comes_with() -> None:
    domain = Writing(1)
    assert domain.write("job", 7, obj(1, B(1, 3))).verdict is WriteVerdict.TAKEN
    for version, number in ((7, 1), (7, 2), (6, 3), (0, 4)):
        assert domain.write("job", version, obj(number, B(1, 9))) == Written(WriteVerdict.ALREADY)
    assert domain.heads() == {1: 3}
    assert domain.write("job", 8, obj(5, B(1))).verdict is WriteVerdict.TAKEN
    assert domain.write("other", 0, obj(6, B(1))).verdict is WriteVerdict.TAKEN
    assert domain.heads() == {1: 5}


def test_x1_a_repeat_is_already_done_also_when_its_objects_are_void_or_its_topic_is_gone() -> None:
    domain = Writing(1)
    domain.write("job", 1, obj(1, B(1, 3)))
    domain.add(Horizon(5_000))
    assert domain.write("job", 1, obj(1, B(1, 3))).verdict is WriteVerdict.ALREADY
    assert domain.write("job", 1, obj(2, B(99), time_ms=9_000)).verdict is WriteVerdict.ALREADY


@pytest.mark.parametrize(
    ("bad", "verdict", "unknown"),
    [
        (obj(2, B(2), B(99)), WriteVerdict.UNKNOWN_STREAM, (99,)),
        (obj(2, B(2), time_ms=1_999), WriteVerdict.VOID, ()),
    ],
    ids=["a stream that is gone", "an object older than the Horizon"],
)
@pytest.mark.parametrize("last", [True, False])
def test_x2_one_bad_object_keeps_the_whole_write_out(
    bad: Commit, verdict: WriteVerdict, unknown: tuple[int, ...], last: bool
) -> None:
    domain = Writing(1, 2)
    domain.add(Horizon(2_000))
    before = dump_state(domain.state)
    if verdict is WriteVerdict.UNKNOWN_STREAM:
        bad = obj(2, B(2), B(99), time_ms=2_000)
    good = obj(1, B(1, 3), time_ms=2_000)
    written = domain.write("job", 1, *((good, bad) if last else (bad, good)))
    assert written == Written(verdict, unknown=unknown)
    after = dump_state(domain.state)
    assert {**after, "position": 0, "writers": {}} == {**before, "position": 0, "writers": {}}
    # The version was not used up: the batch may come again with other objects.
    assert domain.write("job", 1, good).verdict is WriteVerdict.TAKEN


def test_a_write_before_the_upgrade_means_nothing() -> None:
    domain = Writing(1, level=WRITES_LEVEL - 1)
    assert domain.write("job", 1, obj(1, B(1))) == Written(WriteVerdict.TOO_EARLY)
    assert (domain.heads(), domain.state.writes) == ({1: 0}, {})
    domain.add(Upgrade(WRITES_LEVEL))
    assert domain.write("job", 1, obj(1, B(1))).verdict is WriteVerdict.TAKEN


def test_a_log_that_was_founded_at_level_2_takes_writes_at_once() -> None:
    domain = Domain()
    state = DomainState()
    founding = domain.add(Genesis("cluster", 0, WRITES_LEVEL), create_of(1)).record
    apply_record(state, founding)
    write = domain.add(Write("job", 0, (obj(1, B(1, 2)),)))
    assert apply_record(state, write.record).outcomes[0] == write.outcomes[0]
    assert isinstance(write.outcomes[0], Written)
    assert write.outcomes[0].verdict is WriteVerdict.TAKEN


def test_the_number_of_applications_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes_module, "APPLICATIONS_MAX", 2)
    domain = Writing(1)
    for name in ("a", "b"):
        assert domain.write(name, 0, obj(ord(name), B(1))).verdict is WriteVerdict.TAKEN
    assert domain.write("c", 0, obj(1, B(1))) == Written(WriteVerdict.APPLICATIONS_FULL)
    assert domain.write("a", 1, obj(2, B(1))).verdict is WriteVerdict.TAKEN  # it is known
    domain.add(Horizon(5_000), ExpireWrites(5_000))
    assert domain.write("c", 0, obj(3, B(1), time_ms=5_000)).verdict is WriteVerdict.TAKEN


def test_an_application_is_remembered_with_the_newest_time_of_its_last_write() -> None:
    domain = Writing(1)
    domain.write("job", 3, obj(1, B(1), time_ms=3_000), obj(2, B(1), time_ms=2_000))
    assert domain.state.writes == {"job": LastWrite(3, 3_000)}
    domain.write("job", 4, obj(3, B(1), time_ms=2_500))
    assert domain.state.writes == {"job": LastWrite(4, 2_500)}


def test_b9_an_application_younger_than_the_horizon_is_never_forgotten() -> None:
    domain = Writing(1)
    domain.write("old", 0, obj(1, B(1), time_ms=1_000))
    domain.write("new", 0, obj(2, B(1), time_ms=3_000))
    assert domain.add(ExpireWrites(10_000)).outcomes == (Done(),)
    assert set(domain.state.writes) == {"old", "new"}
    domain.add(Horizon(3_000), ExpireWrites(10_000))
    assert set(domain.state.writes) == {"new"}
    domain.add(Horizon(9_000), ExpireWrites(3_000))
    assert set(domain.state.writes) == {"new"}


def test_a_checkpoint_without_writes_has_the_bytes_that_it_had_before_there_were_any() -> None:
    domain = Domain(1)
    data, _, _ = checkpoint_of(domain.state)
    assert b"writes" not in data
    assert decode_manifest(data).writes == ()


applications = st.dictionaries(
    st.text(min_size=1, max_size=20),
    st.builds(LastWrite, st.integers(0, 2**63 - 1), st.integers(0, 2**48 - 1)),
)


@settings(max_examples=examples(50), deadline=None)
@given(applications, st.randoms(use_true_random=False))
def test_rule_13_writes_are_canonical_in_a_checkpoint(
    found: dict[str, LastWrite], chance: random.Random
) -> None:
    one, other = Writing(1).state, Writing(1).state
    one.writes = dict(found)
    shuffled = list(found.items())
    chance.shuffle(shuffled)
    other.writes = dict(shuffled)
    checkpoint = checkpoint_of(one)
    assert checkpoint_of(other) == checkpoint
    again = reloaded(checkpoint)
    assert again.writes == found
    assert encode_manifest(decode_manifest(checkpoint[0])) == checkpoint[0]
