"""Random domain logs: small commands that make sense whatever the state is.

A command says what to do in relative words ("the next batch of producer 2 on stream 3", "a retry of
the one before the last"), so Hypothesis can drop commands from a failing script and the rest still
means something. `record_of` turns commands into one record, given the model's state.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from tests.domain.build import B, commit_of, create_of, trim_of
from tests.domain.model import SEQUENCES, Model

from lakelog.domain.commit_event import Commit, ExpireWrites
from lakelog.domain.commit_event import Write as WriteEvent
from lakelog.domain.envelope import DomainRecord, Stamp
from lakelog.domain.events import (
    Barrier,
    Drop,
    Event,
    ExpireProducers,
    Hello,
    Horizon,
    Swap,
    Upgrade,
)
from lakelog.streams.objects import FileKind, FileName, digest

STREAMS = 6
WRITERS = ("a", "b")
BASE_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Send:
    """One batch: `how` is what its producer does."""

    stream: int
    producer: int
    how: str
    amount: int


@dataclass(frozen=True, slots=True)
class Object:
    """A Commit of some batches, its WAL id that much younger than the Horizon."""

    sends: tuple[Send, ...]
    age_ms: int


@dataclass(frozen=True, slots=True)
class Other:
    """Any other event; what `a` and `b` mean depends on it."""

    what: str
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A Write of some objects; `step` is how far its version is from the application's last."""

    application: str
    step: int
    objects: tuple[Object, ...]


Command = Object | Batch | Other


@dataclass(frozen=True, slots=True)
class Write:
    """One record of some writer."""

    writer: str
    stamp: str
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Something that must not change the meaning: `pack`, `frozen`, or an old record again."""

    what: str
    number: int


Step = Write | Upkeep

OTHERS = (
    "create",
    "create",
    "trim",
    "trim",
    "drop",
    "swap",
    "swap",
    "horizon",
    "expire",
    "expire-writes",
    "upgrade",
    "upgrade",
)
HOWS = ("plain", "next", "next", "run", "run", "retry", "gap", "bump", "bump-gap", "stale", "giant")
sends = st.builds(
    Send,
    st.sampled_from((1, 1, 1, *range(2, STREAMS + 2))),  # the last one is never created
    st.sampled_from((1, 1, 2, 3)),
    st.sampled_from(HOWS),
    st.integers(1, 7),
)
objects = st.builds(Object, st.lists(sends, min_size=1, max_size=9).map(tuple), st.integers(-2, 40))
plain_sends = st.builds(
    Send,
    st.sampled_from((*range(1, STREAMS + 1), 1, 2, 3, 1, 2, 3, STREAMS + 1)),
    st.just(0),
    st.just("plain"),
    st.integers(1, 7),
)
plain_objects = st.builds(
    Object, st.lists(plain_sends, min_size=1, max_size=5).map(tuple), st.integers(-1, 40)
)
batches = st.builds(
    Batch,
    st.sampled_from(("one", "two", "zwölf")),
    st.sampled_from((1, 1, 1, 2, 0, -1)),
    st.lists(plain_objects, min_size=1, max_size=3).map(tuple),
)
others = st.builds(
    Other,
    st.sampled_from(OTHERS),
    st.integers(1, STREAMS),
    st.integers(0, 30),
)
writes = st.builds(
    Write,
    st.sampled_from(WRITERS),
    st.sampled_from(("next",) * 12 + ("skip", "reborn", "reborn", "mute", "zombie")),
    st.lists(objects | batches | others, min_size=1, max_size=3).map(tuple),
)
upkeeps = st.builds(Upkeep, st.sampled_from(("pack", "frozen", "again")), st.integers(0, 10))
scripts = st.lists(st.one_of(writes, writes, writes, upkeeps), min_size=1, max_size=25)


def record_of(model: Model, step: Write) -> DomainRecord:
    """The record that the step means after the model's records."""
    last = model.writers.get(step.writer, Stamp(0, 0))
    stamp = {
        "next": Stamp(last.incarnation, last.number + 1),
        "skip": Stamp(last.incarnation, last.number + 3),
        "reborn": Stamp(last.incarnation + 1, 1),
        "mute": Stamp(last.incarnation + 1, 1),  # a new incarnation that does not say Hello
        "zombie": Stamp(max(last.incarnation - 1, 0), last.number + 100),
    }[step.stamp]
    scratch = copy.deepcopy(model)
    events: list[Event] = [Hello(1)] if step.stamp == "reborn" else []
    for number, command in enumerate(step.commands):
        event = _event(scratch, command, tag=model.position * 8 + number)
        scratch.event(step.writer, event)
        events.append(event)
    return DomainRecord(step.writer, stamp, 2, tuple(events))


def _event(model: Model, command: Command, *, tag: int) -> Event:
    match command:
        case Object():
            return _commit(model, command, tag)
        case Batch():
            return _write(model, command, tag)
        case Other(what="create", a=stream, b=more):
            streams = list(range(stream, min(stream + more % 3, STREAMS) + 1))
            return create_of(*streams, first_partition=more)
        case Other(what="trim", a=stream, b=amount):
            return trim_of({stream: _somewhere(model, stream, amount), STREAMS + 1: amount})
        case Other(what="drop", a=stream):
            return Drop(np.array([stream, STREAMS + 1], dtype=np.int64))
        case Other(what="swap", a=stream, b=choice):
            return _swap(model, stream, choice, tag)
        case Other():
            return _note(model, command)


def _note(model: Model, command: Other) -> Event:
    match command:
        case Other(what="horizon", b=amount):
            return Horizon(max(model.horizon_ms, BASE_MS) + amount - 3)
        case Other(what="expire", b=amount):
            return ExpireProducers(model.horizon_ms + 10 - amount)
        case Other(what="expire-writes", b=amount):
            return ExpireWrites(model.horizon_ms + 10 - amount)
        case Other(what="upgrade", b=amount):
            return Upgrade(2 + amount % 2)
        case _:
            return Barrier()


def _somewhere(model: Model, number: int, amount: int) -> int:
    """An offset at, inside or beyond one of the stream's entries."""
    stream = model.streams.get(number)
    if stream is None or not stream.entries:
        return amount
    entry = stream.entries[amount % len(stream.entries)]
    return (entry.start, entry.end, (entry.start + entry.end) // 2, stream.head + 5)[amount % 4]


def _swap(model: Model, number: int, choice: int, tag: int) -> Swap:
    """A range of whole entries; every few choices something about it is wrong."""
    stream = model.streams.get(number)
    entries = stream.entries if stream else []
    file = FileName(FileKind.PARQUET, f"data/{tag}.parquet")
    if not entries:
        return Swap(number, 0, 5, file, 50, 7, ())
    first = choice % len(entries)
    old = entries[first : first + 1 + choice % 4]
    start, end = old[0].start, old[-1].end
    replaces = [digest(entry.name) for entry in old]
    match choice % 10:
        case 0:
            start = max(start - 1, 0)
        case 1:
            end += 1
        case 2:
            replaces = replaces[1:]
        case 3:
            start = 0
        case 4:
            start += 1
        case _:
            pass
    return Swap(number, start, max(end, start + 1), file, 50 + choice, 7, tuple(replaces))


def _commit(model: Model, command: Object, tag: int) -> Commit:
    """Batches built as if each one before were accepted, whatever really becomes of them."""
    known: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}
    for number, stream in model.streams.items():
        for identity, producer in stream.producers.items():
            window = [(one.first, one.count) for one in producer.window]
            known[number, identity] = producer.epoch, window
    batches = []
    for send in sorted(command.sends, key=lambda send: send.stream):
        batches.append(_batch(known, send))
        if send.how == "run":  # three in sequence, and a retry of one of them
            more = [replace(send, how="next"), replace(send, how="next")]
            batches += [_batch(known, one) for one in (*more, replace(send, how="retry"))]
    time_ms = max(model.horizon_ms, BASE_MS) + command.age_ms
    return commit_of(batches, time_ms=time_ms, number=tag, zone="z" * (tag % 2))


def _write(model: Model, command: Batch, tag: int) -> WriteEvent:
    last = model.writes.get(command.application, (-1, 0))[0]
    commits = [
        _commit(model, one, tag * 8 + number + (1 << 40))
        for number, one in enumerate(command.objects)
    ]
    return WriteEvent(command.application, max(0, last + command.step), tuple(commits))


def _batch(known: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]], send: Send) -> B:
    key = send.stream, send.producer
    timestamp_ms = 500 + send.amount * 11
    if send.how == "plain":
        return B(send.stream, send.amount, length=send.amount * 10, timestamp_ms=timestamp_ms)
    epoch, window = known.get(key, (0, []))
    count = send.amount
    next_sequence = sum(window[-1]) % SEQUENCES if window else 0
    match send.how:
        case "retry" if window:
            next_sequence, count = window[-min(send.amount, len(window))]
        case "gap":
            next_sequence = (next_sequence + send.amount) % SEQUENCES
        case "bump" | "bump-gap":
            epoch, window = epoch + 1, []
            next_sequence = send.amount if send.how == "bump-gap" else 0
        case "stale" if epoch:
            epoch -= 1
        case "giant" if not window:
            count = SEQUENCES - 3  # the sequence wraps a few records later
        case _:
            pass
    if send.how in ("next", "run", "bump", "giant"):
        known[key] = epoch, [*window, (next_sequence, count)]
    return B(
        send.stream,
        count,
        send.producer,
        epoch,
        next_sequence,
        length=send.amount * 10,
        timestamp_ms=timestamp_ms,
    )
