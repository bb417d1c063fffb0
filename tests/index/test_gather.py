"""Entries as columns are the entries that the index has, one by one."""

import time
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from tests.domain.build import B, Domain, commit_of
from tests.domain.scripts import Step, Upkeep, Write, record_of, scripts
from tests.domain.test_machine_model import Pair
from tests.profiles import examples

from lakelog.domain.events import Swap
from lakelog.domain.state import DomainState
from lakelog.index.gather import (
    NO_TIME,
    entry_counts,
    file_keys,
    locate,
    oldest_wal_ms,
    stream_indexes,
)
from lakelog.index.ports import StreamRange
from lakelog.log.plan import Piece, piece_of
from lakelog.streams.objects import FileKind, FileName, WalName, digest
from lakelog.streams.table import Int64s
from lakelog.wal.layout import wal_id_time_ms

STREAMS = 20_000
OBJECTS = 50


def ids(*streams: int) -> Int64s:
    return np.array(streams, dtype=np.int64)


def pieces(state: DomainState, stream: int) -> list[Piece]:
    row = state.streams.row_of[stream]
    return [piece_of(state, int(entry)) for entry in state.index.rows(state.streams, row)]


def time_of(piece: Piece) -> int:
    return wal_id_time_ms(piece.name.wal_id) if isinstance(piece.name, WalName) else 0


def is_wal(piece: Piece) -> bool:
    return isinstance(piece.name, WalName)


def check(state: DomainState) -> None:
    """Everything that is computed at once is what one finds entry by entry."""
    known = sorted(state.streams.row_of)
    expected = {stream: pieces(state, stream) for stream in known}
    there = ids(*known)
    counts = entry_counts(state, ids(*known, 10**9), of_wal=False).tolist()
    assert counts == [*(len(found) for found in expected.values()), -1]
    counts = entry_counts(state, there, of_wal=True).tolist()
    assert counts == [sum(map(is_wal, found)) for found in expected.values()]
    for stream, index in stream_indexes(state, there, backlog_only=False).items():
        assert columns(index.columns) == [row(piece) for piece in expected.pop(stream)]
    assert not expected
    for stream, index in stream_indexes(state, there, backlog_only=True).items():
        found = pieces(state, stream)
        first = [is_wal(piece) for piece in found].index(True)
        assert columns(index.columns) == [row(piece) for piece in found[max(0, first - 1) :]]
        expected[stream] = found
    assert sorted(expected) == [one for one in known if any(map(is_wal, pieces(state, one)))]
    for stream, oldest in zip(known, oldest_wal_ms(state, there).tolist(), strict=True):
        times = [time_of(piece) for piece in pieces(state, stream) if is_wal(piece)]
        assert oldest == min(times, default=NO_TIME)
    every = [piece.name for stream in known for piece in pieces(state, stream)]
    assert set(file_keys(state)) == {name.key for name in every if isinstance(name, FileName)}
    whole = [StreamRange(stream, 0, 1 << 62) for stream in known]
    for stream, located in zip(known, locate(state, 3, whole, entries_max=None), strict=True):
        named = [(entry.start, entry.end, entry.name) for entry in located.entries]
        assert named == [(piece.start, piece.end, piece.name) for piece in pieces(state, stream)]


def row(piece: Piece) -> tuple[int, ...]:
    kind = 0 if isinstance(piece.name, WalName) else int(piece.name.kind)
    return piece.start, piece.end, kind, piece.byte_length, time_of(piece)


def columns(found: object) -> list[tuple[int, ...]]:
    names = ("starts", "ends", "kinds", "byte_lengths", "object_times_ms")
    lists = [getattr(found, name).tolist() for name in names]
    return list(zip(*lists, strict=True))


@settings(max_examples=examples(60), deadline=None)
@given(scripts)
def test_columns_are_the_entries_after_any_history(steps: Sequence[Step]) -> None:
    pair = Pair(producers_max=10**9)
    for step in steps:
        match step:
            case Write():
                pair.feed(record_of(pair.model, step))
            case Upkeep(what="pack"):
                pair.state.pack()
            case Upkeep():
                continue
        check(pair.state)


def test_a_backlog_is_found_behind_files_of_every_kind() -> None:
    domain = Domain(1, 2, 3)
    for time_ms in (100, 200, 300):
        domain.commit(B(1, 2), B(2, 1), time_ms=time_ms)
    for start, end, kind in ((0, 2, FileKind.SEGMENT), (2, 4, FileKind.PARQUET)):
        old = [piece for piece in pieces(domain.state, 1) if start <= piece.start < end]
        name = FileName(kind, f"f{start}")
        domain.add(Swap(1, start, end, name, 9, 9, tuple(digest(one.name) for one in old)))
    check(domain.state)
    found = stream_indexes(domain.state, ids(1, 2, 3), backlog_only=True)
    assert found[1].columns.kinds.tolist() == [2, 0]
    assert found[1].columns.object_times_ms.tolist()[1] == 300
    assert found[2].columns.starts.tolist() == [0, 1, 2]
    assert 3 not in found
    assert oldest_wal_ms(domain.state, ids(1, 2, 3, 4)).tolist() == [300, 100, NO_TIME, NO_TIME]


def test_a_million_entries_are_looked_through_within_the_time_of_a_slice() -> None:
    domain = Domain(*range(1, STREAMS + 1))
    batches = [B(stream) for stream in range(1, STREAMS + 1)]
    for number in range(OBJECTS):
        domain.add(commit_of(batches, time_ms=1_000 + number, number=number))
    assert domain.state.index.columns.count == STREAMS * OBJECTS
    some = ids(*range(1, 1_001))
    took_s = []
    for work in (
        lambda: entry_counts(domain.state, ids(*range(1, STREAMS)), of_wal=True),
        lambda: stream_indexes(domain.state, some, backlog_only=True),
        lambda: oldest_wal_ms(domain.state, some),
        lambda: file_keys(domain.state),
    ):
        best_s = 1e9
        for _ in range(3):
            began_s = time.perf_counter()
            work()
            best_s = min(best_s, time.perf_counter() - began_s)
        took_s.append(best_s)
    assert max(took_s) < 0.25, took_s  # R2; some 20 ms on a machine that does nothing else
