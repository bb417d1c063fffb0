"""Write: take in the objects of an application's version, all of them or none, once. Pure.

Everything is looked at before anything changes (rule 10). Without producer ids a batch of a known
stream in an object that is not void is always accepted, so what was looked at is what happens.
"""

import numpy as np

from lakelog.domain.judge import commit, wal_time_ms
from lakelog.domain.outcomes import Done, WriteVerdict, Written
from lakelog.domain.state import APPLICATIONS_MAX, DomainState, LastWrite
from lakelog.domain.write_event import WRITES_LEVEL, ExpireWrites, Write
from lakelog.streams.table import NONE


def write(state: DomainState, event: Write) -> Written:
    """Judge the Write as a whole, and take it in if nothing speaks against it."""
    if state.level < WRITES_LEVEL:
        # Nobody appends one before the Upgrade; should it be there, it means nothing (rule 12).
        return Written(WriteVerdict.TOO_EARLY)
    last = state.writes.get(event.application)
    if last is not None and event.version <= last.version:
        return Written(WriteVerdict.ALREADY)  # X1: also when its objects are void by now
    if last is None and len(state.writes) >= APPLICATIONS_MAX:
        return Written(WriteVerdict.APPLICATIONS_FULL)
    times_ms = [wal_time_ms(one.wal_id) for one in event.commits]
    if min(times_ms) < state.horizon_ms:
        return Written(WriteVerdict.VOID)
    unknown = _unknown(state, event)
    if unknown:
        return Written(WriteVerdict.UNKNOWN_STREAM, unknown=unknown)
    state.writes[event.application] = LastWrite(event.version, max(times_ms))
    return Written(WriteVerdict.TAKEN, tuple(commit(state, one) for one in event.commits))


def expire_writes(state: DomainState, event: ExpireWrites) -> Done:
    """B9: nothing younger than the Horizon is forgotten, or a late repeat could land twice."""
    cutoff_ms = min(event.cutoff_ms, state.horizon_ms)
    old = [name for name, last in state.writes.items() if last.time_ms < cutoff_ms]
    for name in old:
        del state.writes[name]
    return Done()


def _unknown(state: DomainState, event: Write) -> tuple[int, ...]:
    streams = np.unique(np.concatenate([one.stream for one in event.commits]))
    missing = streams[state.streams.rows(streams) == NONE]
    return tuple(missing.tolist())
