"""What was dropped or forgotten leaves memory again, and nobody can see that it did (rule 13)."""

import numpy as np
import pytest
from tests.domain.build import Domain, commit_of, create_of, idempotent
from tests.domain.test_checkpoint_model import checkpoint_of, reloaded

from lakelog.domain.events import Drop, ExpireProducers, Horizon
from lakelog.streams import table as columns_module

STREAMS = 1_000
ROWS_MAX = 3 * STREAMS


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "DEAD_ROWS_MIN", STREAMS // 2)


def created(domain: Domain, turn: int) -> list[int]:
    streams = list(range(turn * STREAMS + 1, (turn + 1) * STREAMS + 1))
    domain.add(create_of(*streams))
    return streams


def dropped(domain: Domain, streams: list[int]) -> None:
    domain.add(Drop(np.array(streams, dtype=np.int64)))


def test_streams_that_come_and_go_leave_no_rows_behind() -> None:
    domain = Domain()
    domain.add(create_of(10**9))
    for turn in range(20):
        dropped(domain, created(domain, turn))
    table = domain.state.streams
    assert len(table) == 1
    assert table.columns.count < ROWS_MAX
    assert len(table.columns.arrays["id"]) < 2 * ROWS_MAX
    assert len(table.topics) == table.columns.count
    assert len(table.removed) < ROWS_MAX // 64


def test_producers_that_expire_leave_no_rows_behind() -> None:
    domain = Domain(1)
    sent = [idempotent(1, 0, producer=number) for number in range(STREAMS)]
    domain.add(commit_of(sent, time_ms=1_000))
    domain.add(Horizon(2_000), ExpireProducers(2_000))
    assert len(domain.state.producers) == 0
    assert domain.state.producers.columns.count == 0
    assert domain.state.producers.windows.count == 0
    assert domain.commit(idempotent(1, 5), time_ms=3_000)[0][0] == 0


def test_producers_of_dropped_streams_leave_no_rows_behind() -> None:
    domain = Domain(1)
    for turn in range(3):
        streams = created(domain, turn + 1)
        domain.add(commit_of([idempotent(stream, 0) for stream in streams], number=turn))
        dropped(domain, streams)
    assert domain.state.producers.columns.count < ROWS_MAX
    assert domain.state.index.columns.count < ROWS_MAX


def test_rule_13_a_replica_that_packed_and_one_that_did_not_make_the_same_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between them lies all that a table can have behind it: every record, or one checkpoint."""

    def lived(*, dead_rows_min: int) -> Domain:
        monkeypatch.setattr(columns_module, "DEAD_ROWS_MIN", dead_rows_min)
        domain = Domain(5, 70)
        for turn in range(3):
            streams = created(domain, turn + 1)
            kept = [idempotent(5, turn), idempotent(70, turn, producer=8)]
            sent = [idempotent(stream, 0) for stream in streams[:100]]
            domain.add(commit_of([*kept, *sent], number=turn))
            dropped(domain, streams[: STREAMS - turn])
        return domain

    never, often = lived(dead_rows_min=10**9), lived(dead_rows_min=10)
    assert never.state.streams.columns.count > 2 * often.state.streams.columns.count
    assert checkpoint_of(never.state) == checkpoint_of(often.state)
    assert checkpoint_of(reloaded(checkpoint_of(often.state))) == checkpoint_of(never.state)
