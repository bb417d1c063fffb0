"""Golden logs: what was written once folds to the same state for ever (rule 12)."""

from pathlib import Path

import pytest
from tests.domain.dump import dump_hash, dump_state
from tests.domain.test_checkpoint_model import checkpoint_of

from lakelog.domain.checkpoint import digest
from lakelog.domain.envelope import decode_record, encode_record
from lakelog.domain.events import Kind, encode_event
from lakelog.domain.machine import apply
from lakelog.domain.state import DomainState

GOLDEN = Path(__file__).parents[1] / "golden"
LEVELS = (1,)


def lines(level: int, label: str) -> list[str]:
    text = (GOLDEN / f"domain-level-{level}.txt").read_text()
    found = [line.split(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return [value for name, value in found if name == label]


@pytest.mark.parametrize("level", LEVELS)
def test_a_golden_log_folds_to_the_same_state_for_ever(level: int) -> None:
    state = DomainState()
    for record in lines(level, "record"):
        apply(state, bytes.fromhex(record))
    assert [dump_hash(dump_state(state))] == lines(level, "meaning")


@pytest.mark.parametrize("level", LEVELS)
def test_a_golden_log_makes_the_same_checkpoint_for_ever(level: int) -> None:
    state = DomainState()
    for record in lines(level, "record"):
        apply(state, bytes.fromhex(record))
    assert [digest(checkpoint_of(state)[0])] == lines(level, "checkpoint")


@pytest.mark.parametrize("level", LEVELS)
def test_a_golden_record_is_encoded_to_the_same_bytes_for_ever(level: int) -> None:
    for record in lines(level, "record"):
        data = bytes.fromhex(record)
        assert encode_record(decode_record(data, level_max=level)) == data


def test_the_golden_log_holds_every_kind_of_event() -> None:
    kinds = {
        encode_event(event)[0]
        for record in lines(LEVELS[-1], "record")
        for event in decode_record(bytes.fromhex(record), level_max=LEVELS[-1]).events
    }
    assert kinds == set(Kind)
