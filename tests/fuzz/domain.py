"""Mutated domain records: only `Corrupt` escapes, and a state that raised is as it was (rule 10).

Half of the inputs get a right checksum after the mutation, or nothing behind the checksum would
ever be reached.
"""

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from crc32c import crc32c
from tests.domain.build import B, Domain, commit_of, create_of, idempotent, trim_of, wal_id
from tests.domain.dump import dump_state

from lakelog.domain.commit_event import ExpireWrites, Write
from lakelog.domain.envelope import DomainRecord, Stamp, decode_record, encode_record
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
from lakelog.domain.machine import apply
from lakelog.domain.state import LEVEL_MAX, DomainState
from lakelog.model.failures import Corrupt
from lakelog.streams.objects import FileKind, FileName, WalName, digest

INTERESTING = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


@cache
def samples() -> tuple[bytes, ...]:
    """A record of every kind that the state of `started` takes."""
    old = digest(WalName(wal_id(1_000, 2), ""))
    events: tuple[tuple[Event, ...], ...] = (
        (Hello(1),),
        (create_of(5, 6, 7, first_partition=3),),
        (commit_of([B(1), B(1, 3), idempotent(2, 0), idempotent(2, 1)], number=9, zone="z"),),
        (commit_of([B(1), B(2), B(4)], number=8),),
        (Swap(1, 0, 2, FileName(FileKind.PARQUET, "data/x.parquet"), 77, 5, (old,)),),
        (trim_of({1: 1, 2: 0, 9: 4}),),
        (Drop(np.array([1, 2], dtype=np.int64)),),
        (Horizon(2_000), ExpireProducers(1_500), Upgrade(1), Barrier()),
        (Write("job", 3, (commit_of([B(1), B(2, 3)], number=8), commit_of([B(1)], number=9))),),
        (Write("new", 0, (commit_of([B(3)], number=8),)), ExpireWrites(1_500)),
    )
    return tuple(encode_record(DomainRecord("a", Stamp(1, 50), LEVEL_MAX, one)) for one in events)


@cache
def started() -> tuple[DomainState, dict[str, Any]]:
    """A state with streams, entries and producers, and its meaning; nobody changes it."""
    domain = Domain(1, 2, 3)
    domain.commit(B(1, 2), idempotent(3, 0))
    domain.commit(B(1, 2), idempotent(3, 1))
    domain.add(Upgrade(LEVEL_MAX), Write("job", 2, (commit_of([B(2)], number=7),)))
    return domain.state, dump_state(domain.state)


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The record with a few bytes changed, cut out or repeated."""
    body = bytearray(data[:-4])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body))
        match chance.randrange(5):
            case 0:
                body[at] ^= 1 << chance.randrange(8)
            case 1:
                body[at] = chance.choice(INTERESTING)
            case 2:
                body[at : at + 4] = chance.choice(INTERESTING).to_bytes(1, "big") * 4
            case 3:
                del body[at : at + chance.randint(1, 9)]
            case _:
                body[at:at] = body[at : at + chance.randint(1, 9)]
        if not body:
            break
    if chance.random() < 0.1:
        body = body[: chance.randrange(len(body) + 1)]
    checksum = crc32c(bytes(body)) if chance.random() < 0.9 else chance.getrandbits(32)
    return bytes(body) + checksum.to_bytes(4, "little")


def decode(chance: random.Random) -> None:
    """A decoded record encodes to bytes that decode to the same."""
    data = mutated(chance, chance.choice(samples()))
    try:
        record = decode_record(data, level_max=LEVEL_MAX)
    except Corrupt:
        return
    again = decode_record(encode_record(record), level_max=LEVEL_MAX)
    assert repr(again) == repr(record)


def fold(chance: random.Random) -> None:
    """A record that raises leaves the state as it was; one that does not leaves it readable."""
    data = mutated(chance, chance.choice(samples()))
    original, before = started()
    state = original.frozen()
    try:
        apply(state, data)
    except Corrupt:
        assert dump_state(state) == before
        return
    assert state.position == before["position"] + 1
    dump_state(state)
    state.pack()
    dump_state(state)


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "domain.decode": decode,
    "domain.fold": fold,
}
