"""Golden logs: what was written once folds to the same state for ever (rule 12)."""

from pathlib import Path
from typing import get_args

import pytest
from tests.domain.dump import dump_hash, dump_state
from tests.domain.test_checkpoint_model import checkpoint_of

from lakelog.domain.checkpoint import digest
from lakelog.domain.envelope import decode_record, encode_record
from lakelog.domain.events import GroupChange, Kind, encode_event
from lakelog.domain.machine import apply
from lakelog.domain.state import DomainState
from lakelog.groups.events import GroupEvent

GOLDEN = Path(__file__).parents[1] / "golden"
LOGS = {path.stem: path for path in sorted(GOLDEN.glob("domain-level-*.txt"))}
LEVEL = 3
"""The newest level that there is a golden log of."""


def lines(log: str, label: str) -> list[str]:
    text = LOGS[log].read_text()
    found = [line.split(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return [value for name, value in found if name == label]


@pytest.mark.parametrize("log", LOGS)
def test_a_golden_log_folds_to_the_same_state_for_ever(log: str) -> None:
    state = DomainState()
    for record in lines(log, "record"):
        apply(state, bytes.fromhex(record))
    assert [dump_hash(dump_state(state))] == lines(log, "meaning")


@pytest.mark.parametrize("log", LOGS)
def test_a_golden_log_makes_the_same_checkpoint_for_ever(log: str) -> None:
    state = DomainState()
    for record in lines(log, "record"):
        apply(state, bytes.fromhex(record))
    assert [digest(checkpoint_of(state)[0])] == lines(log, "checkpoint")


@pytest.mark.parametrize("log", LOGS)
def test_a_golden_record_is_encoded_to_the_same_bytes_for_ever(log: str) -> None:
    for record in lines(log, "record"):
        data = bytes.fromhex(record)
        assert encode_record(decode_record(data, level_max=LEVEL)) == data


def test_the_golden_log_holds_every_kind_of_event() -> None:
    kinds = {
        encode_event(event)[0]
        for log in LOGS
        for record in lines(log, "record")
        for event in decode_record(bytes.fromhex(record), level_max=LEVEL).events
    }
    assert kinds == set(Kind)


def test_the_golden_logs_hold_every_event_of_groups() -> None:
    events = {
        type(event.event)
        for log in LOGS
        for record in lines(log, "record")
        for event in decode_record(bytes.fromhex(record), level_max=LEVEL).events
        if isinstance(event, GroupChange)
    }
    assert events == set(get_args(GroupEvent))
