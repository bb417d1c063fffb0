"""Commit: judge the batches of a WAL object, assign offsets, add entries. Pure.

Batches of one stream are judged one after another, each with the state that the one before left
(B4). A record all of whose batches have no producer id, or go on exactly where their stream's last
writer stopped, is taken in by one call (native/judge.c), which declines any other. Such a one, if
it has few batches, goes through `_commit_few`, batch by batch. In a record of many, the streams in
order are judged together, as arrays, and the others batch by batch. All ways leave the same state;
a test compares them with a model that knows only loops.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from lakelog.domain.commit_event import Commit
from lakelog.domain.state import Committed, DomainState, Verdict
from lakelog.model.ids import WalId
from lakelog.records import kernels
from lakelog.streams.index import EntryRow
from lakelog.streams.objects import WalName
from lakelog.streams.producers import BATCH_FIELDS, SEQUENCE_END, WINDOW_BATCHES, Batch
from lakelog.streams.table import NONE, Bools, Int64s

FEW_BATCHES: Final = 24
"""Up to here a loop is quicker than some sixty array operations (measured: about 0.2 ms)."""

_STREAM_COLUMNS: Final = ("head", "live_bytes", "entry", "producer", "changed")
_PRODUCER_COLUMNS: Final = ("producer", "epoch", "next", "newest", "time_ms")
"""As the kernel takes them; of the index it takes all columns, in their order."""


def wal_time_ms(wal_id: WalId) -> int:
    """The time in a WAL id: what the Horizon is compared with."""
    return int.from_bytes(wal_id[:6], "big")


def commit(state: DomainState, event: Commit) -> Committed:
    """Judge every batch and take in those that are accepted."""
    if wal_time_ms(event.wal_id) < state.horizon_ms:
        # G4: its object may be swept already. It is answered with a time-out and never rewritten.
        nothing = np.full(len(event.stream), -1, dtype=np.int64)
        void = np.full(len(event.stream), Verdict.VOID, dtype=np.int8)
        return Committed(void, nothing, nothing)
    judged = _Judged(len(event.stream))
    if not _commit_in_order(state, event, judged):
        judge_all = _commit_few if len(event.stream) <= FEW_BATCHES else _commit_many
        judge_all(state, event, judged)
    return Committed(judged.verdicts, judged.offsets, judged.timestamps)


def _commit_in_order(state: DomainState, event: Commit, judged: "_Judged") -> bool:
    """Take in a Commit that nothing speaks against, by the kernel; False: nothing was changed."""
    native = kernels.native
    if native is None:
        return False
    streams, producers = state.streams.columns.arrays, state.producers.columns.arrays
    first_entry = state.index.columns.reserve(len(event.stream))
    made = native.judge_in_order(
        event.columns,
        state.streams.sorted_rows(),
        tuple(streams[name] for name in _STREAM_COLUMNS),
        (
            *(producers[name] for name in _PRODUCER_COLUMNS),
            *(state.producers.windows.arrays[name] for name in BATCH_FIELDS),
        ),
        tuple(state.index.columns.arrays.values()),
        (state.position, wal_time_ms(event.wal_id), state.objects.columns.count, first_entry),
        judged.offsets,
    )
    if made < 0:
        return False
    state.objects.add(WalName(event.wal_id, event.zone), size_bytes=event.size_bytes)
    state.index.columns.extend(made)
    return True


def _commit_few(state: DomainState, event: Commit, judged: "_Judged") -> None:
    object_row = NONE
    streams = event.stream.tolist()
    for stream, places in groupby(range(len(streams)), key=streams.__getitem__):
        numbers = list(places)
        row = state.streams.row_of.get(stream)
        if row is None:
            judged.verdicts[numbers] = Verdict.UNKNOWN_STREAM
            continue
        columns = state.streams.columns.arrays
        columns["head"][row] = _judge_stream(state, event, row, numbers, judged)
        accepted = [at for at in numbers if judged.verdicts[at] == Verdict.ACCEPTED]
        for _, run in groupby(enumerate(accepted), key=lambda pair: pair[1] - pair[0]):
            if object_row == NONE:
                name = WalName(event.wal_id, event.zone)
                object_row = state.objects.add(name, size_bytes=event.size_bytes)
            entry = _entry(event, judged, [at for _, at in run], object_row)
            state.index.append_one(state.streams, row, entry)
            columns["live_bytes"][row] += entry.byte_length
        if accepted:
            columns["changed"][row] = state.position


def _entry(event: Commit, judged: "_Judged", run: list[int], object_row: int) -> EntryRow:
    """The entry of a run of accepted batches that adjoin."""
    first, last = run[0], run[-1]
    byte_start = int(event.byte_start[first])
    byte_end = int(event.byte_start[last]) + int(event.byte_length[last])
    return EntryRow(
        start=int(judged.offsets[first]),
        end=int(judged.offsets[last]) + int(event.offset_count[last]),
        object_row=object_row,
        byte_start=byte_start,
        byte_length=byte_end - byte_start,
        max_timestamp_ms=max(int(event.max_timestamp[at]) for at in run),
    )


def _commit_many(state: DomainState, event: Commit, judged: "_Judged") -> None:
    time_ms = wal_time_ms(event.wal_id)
    starts = np.flatnonzero(np.append(True, event.stream[1:] != event.stream[:-1]))
    groups = _Groups(state, event, starts)
    judged.verdicts[np.repeat(groups.rows == NONE, groups.sizes)] = Verdict.UNKNOWN_STREAM
    known = groups.rows != NONE
    plain = known & np.logical_and.reduceat(event.producer < 0, starts)
    in_sequence = known & ~plain & _continues(state, event, groups)
    for group in np.flatnonzero(known & ~plain & ~in_sequence).tolist():
        numbers = range(int(groups.starts[group]), int(groups.ends[group]))
        _judge_stream(state, event, int(groups.rows[group]), numbers, judged)
    _assign(state, event, groups, judged)
    _push_windows(state, event, groups, in_sequence, judged.offsets, time_ms)
    _add_entries(state, event, groups, judged)


class _Groups:
    """The batches of a Commit by stream: where each stream's run begins and ends."""

    __slots__ = ("ends", "rows", "sizes", "starts")

    def __init__(self, state: DomainState, event: Commit, starts: npt.NDArray[np.intp]) -> None:
        self.starts = starts
        self.ends = np.append(starts[1:], len(event.stream))
        self.sizes = self.ends - starts
        self.rows: Int64s = state.streams.rows(event.stream[starts])


class _Judged:
    """The verdicts as they come to be."""

    __slots__ = ("offsets", "timestamps", "verdicts")

    def __init__(self, count: int) -> None:
        self.verdicts: npt.NDArray[np.int8] = np.zeros(count, dtype=np.int8)
        self.offsets: Int64s = np.full(count, -1, dtype=np.int64)
        self.timestamps: Int64s = np.full(count, -1, dtype=np.int64)


def _continues(state: DomainState, event: Commit, groups: _Groups) -> Bools:
    """Which streams' batches all go on where the stream's last writer stopped."""
    starts = groups.starts
    rows = np.where(groups.rows == NONE, 0, groups.rows)
    writers = state.streams.columns.arrays["producer"][rows]
    has_writer = writers != NONE
    writers = np.where(has_writer, writers, 0)
    table = state.producers.columns.arrays
    first_producer, first_epoch = event.producer[starts], event.epoch[starts]
    same_writer = (
        has_writer
        & (table["producer"][writers] == first_producer)
        & (table["epoch"][writers] == first_epoch)
    )
    after = event.sequence.astype(np.int64) + event.offset_count
    expected = np.empty(len(after), dtype=np.int64)
    expected[1:] = after[:-1] % SEQUENCE_END
    expected[starts] = table["next"][writers]
    chained = (
        (event.producer == np.repeat(first_producer, groups.sizes))
        & (event.epoch == np.repeat(first_epoch, groups.sizes))
        & (event.sequence == expected)
    )
    continues: Bools = same_writer & np.logical_and.reduceat(chained, starts)
    return continues


def _judge_stream(
    state: DomainState, event: Commit, row: int, numbers: Sequence[int], judged: "_Judged"
) -> int:
    """Judge one stream's batches in order, remember them, and return the head they lead to."""
    head = int(state.streams.columns.arrays["head"][row])
    for at in numbers:
        if event.producer[at] >= 0 and not _admit(state, event, row, at, head, judged):
            continue
        judged.offsets[at] = head
        head += int(event.offset_count[at])
    return head


def _admit(
    state: DomainState, event: Commit, row: int, at: int, head: int, judged: "_Judged"
) -> bool:
    """Judge one batch of an idempotent producer; remember it if it is accepted."""
    producer, epoch = int(event.producer[at]), int(event.epoch[at])
    first, count = int(event.sequence[at]), int(event.offset_count[at])
    found = state.producers.row(row, producer)
    if found == NONE:
        verdict = _judge_unknown(state, producer, first)
    elif epoch != state.producers.epoch(found):
        verdict = _judge_epoch(epoch, state.producers.epoch(found), first)
    elif first == state.producers.expected(found):
        # Kafka looks for a duplicate first. That differs only when five batches hold all 2^31
        # sequences, and what is accepted from a client unpacks to 64 MiB at most.
        verdict = Verdict.ACCEPTED
    else:
        verdict = Verdict.OUT_OF_SEQUENCE
        for batch in state.producers.window(found):
            if batch.first == first and batch.count == count:
                verdict = Verdict.DUPLICATE
                judged.offsets[at] = batch.offset
                judged.timestamps[at] = batch.timestamp_ms
                break  # the oldest that fits, as Kafka's ProducerStateEntry looks for it
    judged.verdicts[at] = verdict
    if verdict is not Verdict.ACCEPTED:
        return False
    batch = Batch(first, count, head, int(event.max_timestamp[at]))
    time_ms = wal_time_ms(event.wal_id)
    stored = state.producers.accept(row, producer, epoch, batch, time_ms=time_ms)
    state.streams.columns.arrays["producer"][row] = stored
    return True


def _judge_unknown(state: DomainState, producer: int, first: int) -> Verdict:
    """Rule 22: an id that cannot have expired here begins at 0, or seq 16 could pass seq 0."""
    if len(state.producers) >= state.producers_max:
        return Verdict.PRODUCERS_FULL
    may_have_expired = producer <= state.producers.expired_max
    return Verdict.ACCEPTED if may_have_expired or first == 0 else Verdict.OUT_OF_SEQUENCE


def _judge_epoch(epoch: int, known: int, first: int) -> Verdict:
    """A producer of an older epoch is a zombie; a new epoch begins at 0."""
    if epoch < known:
        return Verdict.STALE_EPOCH
    return Verdict.ACCEPTED if first == 0 else Verdict.OUT_OF_SEQUENCE


def _assign(state: DomainState, event: Commit, groups: _Groups, judged: _Judged) -> None:
    """Offsets of the accepted batches, from their streams' heads on; moves the heads."""
    accepted = judged.verdicts == Verdict.ACCEPTED
    counts = np.where(accepted, event.offset_count, 0).astype(np.int64)
    before = np.cumsum(counts) - counts
    known = groups.rows != NONE
    heads = state.streams.columns.arrays["head"]
    bases = np.where(known, heads[np.where(known, groups.rows, 0)], 0)
    offsets = np.repeat(bases - before[groups.starts], groups.sizes) + before
    judged.offsets[accepted] = offsets[accepted]
    heads[groups.rows[known]] += np.add.reduceat(counts, groups.starts)[known]


def _push_windows(
    state: DomainState,
    event: Commit,
    groups: _Groups,
    chosen: Bools,
    offsets: Int64s,
    time_ms: int,
) -> None:
    """Remember the newest batches of the streams that went on in sequence."""
    if not chosen.any():
        return
    writers = state.streams.columns.arrays["producer"][groups.rows[chosen]]
    ends = groups.ends[chosen]
    depth = np.minimum(groups.sizes[chosen], WINDOW_BATCHES)
    columns: tuple[npt.NDArray[np.generic], ...] = (
        event.sequence,
        event.offset_count,
        offsets,
        event.max_timestamp,
    )
    for step in range(int(depth.max()), 0, -1):
        has = depth >= step
        at = ends[has] - step
        batches = {
            name: values[at].astype(np.int64)
            for name, values in zip(BATCH_FIELDS, columns, strict=True)
        }
        state.producers.push(writers[has], batches, time_ms=time_ms)


def _add_entries(state: DomainState, event: Commit, groups: _Groups, judged: _Judged) -> None:
    """One index entry for every run of accepted batches of a stream."""
    accepted = judged.verdicts == Verdict.ACCEPTED
    if not accepted.any():
        return
    group_begins = np.zeros(len(accepted), dtype=np.bool_)
    group_begins[groups.starts] = True
    follows = np.append(False, accepted[:-1])
    run_begins = accepted & (group_begins | ~follows)
    first = np.flatnonzero(run_begins)
    goes_on = np.append(accepted[1:] & ~group_begins[1:], False)
    last = np.flatnonzero(accepted & ~goes_on)
    rows = np.repeat(groups.rows, groups.sizes)[first]
    byte_start = event.byte_start[first].astype(np.int64)
    byte_end = event.byte_start[last].astype(np.int64) + event.byte_length[last]
    lowest = np.iinfo(np.int64).min
    timestamps = np.where(accepted, event.max_timestamp, lowest)
    name = WalName(event.wal_id, event.zone)
    entries: dict[str, Int64s] = {
        "stream": rows,
        "start": judged.offsets[first],
        "end": judged.offsets[last] + event.offset_count[last],
        "object": np.full(
            len(first), state.objects.add(name, size_bytes=event.size_bytes), dtype=np.int64
        ),
        "byte_start": byte_start,
        "byte_length": byte_end - byte_start,
        "max_timestamp": np.maximum.reduceat(timestamps, first),
    }
    heads = np.append(True, rows[1:] != rows[:-1])
    state.index.append(state.streams, entries, heads=heads)
    columns = state.streams.columns.arrays
    np.add.at(columns["live_bytes"], rows, entries["byte_length"])
    columns["changed"][rows] = state.position
