"""`apply` against the naive model: the same outcomes and the same state after every record (B4)."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.domain.build import create_of, outcome_rows
from tests.domain.dump import dump_model, dump_state
from tests.domain.model import Model
from tests.domain.scripts import Step, Upkeep, Write, record_of, scripts
from tests.profiles import examples
from tests.sides import side

from lakelog.domain import judge as judge_module
from lakelog.domain import machine as writes_module
from lakelog.domain import state as state_module
from lakelog.domain.envelope import DomainRecord, Stamp, encode_record
from lakelog.domain.events import Genesis, Hello
from lakelog.domain.machine import apply
from lakelog.domain.state import (
    Committed,
    DomainState,
    Done,
    GroupApplied,
    Ignored,
    Outcome,
    Swapped,
    Trimmed,
    Written,
)
from lakelog.streams import index as index_module
from lakelog.streams import table as columns_module


class Pair:
    """The machine and the model, fed the same records and compared after each."""

    def __init__(self, *, producers_max: int, applications_max: int = 100) -> None:
        self.state = DomainState()
        self.model = Model(producers_max=producers_max, applications_max=applications_max)
        self.written: list[DomainRecord] = []
        # Not in the order of their names: nothing may depend on who came first.
        self.feed(DomainRecord("b", Stamp(1, 1), 1, (Genesis("cluster", 0, 1), Hello(1))))
        self.feed(DomainRecord("a", Stamp(1, 1), 1, (Hello(1), create_of(3, 1, 2))))

    def feed(self, record: DomainRecord) -> None:
        self.written.append(record)
        outcomes = apply(self.state, encode_record(record)).outcomes
        assert [plain(outcome) for outcome in outcomes] == self.model.apply(record)
        self.compare()

    def step(self, step: Step) -> None:
        match step:
            case Write():
                self.feed(record_of(self.model, step))
            case Upkeep(what="pack"):
                self.state.pack()
                self.compare()
            case Upkeep(what="frozen"):
                older = self.state
                self.state = older.frozen()
                self.compare()
            case Upkeep(number=number):
                self.feed(self.written[1 + number % (len(self.written) - 1)])

    def compare(self) -> None:
        assert dump_state(self.state) == dump_model(self.model)
        names = [self.state.objects.name(row) for row in self.state.index.referenced().tolist()]
        assert set(names) == self.model.referenced()
        for number, stream in self.model.streams.items():
            row = self.state.streams.row_of[number]
            for entry in stream.entries:
                for offset in (entry.start, entry.end - 1):
                    found = self.state.index.find(self.state.streams, row, offset)
                    assert self.state.index.entry(found).end == entry.end
                    following = self.state.index.following(self.state.streams, row, found, 3)
                    assert following[0] == found
            assert self.state.index.find(self.state.streams, row, stream.head) == -1


def plain(outcome: Outcome) -> Any:
    match outcome:
        case Committed():
            return outcome_rows(outcome)
        case Written(verdict=verdict, commits=commits, unknown=unknown):
            rows: list[Any] = [outcome_rows(one) for one in commits]
            return int(verdict), rows or list(unknown)
        case Trimmed(log_starts=log_starts):
            return log_starts.tolist()
        case Swapped(accepted=accepted):
            return accepted
        case GroupApplied(outcome=judged):
            return judged
        case Ignored():
            return "ignored"
        case Done():
            return "done"


def run(
    script: Sequence[Step],
    *,
    producers_max: int = 100,
    applications_max: int = 100,
    few: int = 0,
    compiled: bool = False,
) -> Pair:
    with side(compiled), pytest.MonkeyPatch.context() as patch:
        # Small limits, so that short scripts reach packing, sorted views and a full table.
        patch.setattr(columns_module, "DEAD_ROWS_MIN", 3)
        patch.setattr(index_module, "TAIL_STEPS_MAX", 2)
        patch.setattr(judge_module, "FEW_BATCHES", few)
        patch.setattr(state_module, "PRODUCERS_MAX_BEFORE", producers_max)
        patch.setattr(state_module, "PRODUCERS_MAX", producers_max + 2)
        patch.setattr(writes_module, "APPLICATIONS_MAX", applications_max)
        pair = Pair(producers_max=producers_max, applications_max=applications_max)
        for step in script:
            note(repr(step))
            pair.step(step)
        return pair


@settings(max_examples=examples(250), deadline=None)
@given(scripts, st.sampled_from((0, 3, 24)))
def test_apply_does_what_the_naive_model_does(script: list[Step], few: int) -> None:
    run(script, few=few)


@settings(max_examples=examples(250), deadline=None)
@given(scripts)
def test_apply_does_so_with_the_kernel_too(script: list[Step]) -> None:
    run(script, compiled=True)


@settings(max_examples=examples(60), deadline=None)
@given(scripts)
def test_apply_does_what_the_naive_model_does_when_producers_are_full(script: list[Step]) -> None:
    run(script, producers_max=3)


@settings(max_examples=examples(60), deadline=None)
@given(scripts)
def test_apply_does_what_the_naive_model_does_when_applications_are_full(
    script: list[Step],
) -> None:
    run(script, applications_max=1)


@settings(max_examples=examples(60), deadline=None)
@given(scripts, scripts)
def test_a_frozen_copy_is_not_changed_by_later_records(
    before: list[Step], after: list[Step]
) -> None:
    pair = run(before)
    kept, expected = pair.state.frozen(), dump_state(pair.state)
    for step in after:
        pair.step(step)
    assert dump_state(kept) == expected
