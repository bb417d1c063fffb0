"""What the services around the saga do with a request: index, table, metadata store."""

from msgspec import structs
from tests.pipeline.saga.saga_state import (
    LEASE,
    Append,
    Cas,
    Commit,
    Exchange,
    Index,
    Move,
    Put,
    Request,
    Rules,
    SagaState,
    Stored,
    Table,
    has_rows,
    key_of,
    stored,
)

from lakelog.domain.events import Swap


def trimmed(index: Index, offset: int) -> Index:
    kept = tuple(one for one in index.entries if one.end > offset)
    return index._replace(log_start=offset, entries=kept)


def swapped(rules: Rules, index: Index, swap: Swap) -> Index | None:
    """The index after the Swap, None when it is refused."""
    if not index.alive:
        return None
    places = rules.swap_fits(index.entries, swap)
    if places is None:
        return None
    made = Stored(swap.file, index.entries[places[0]].start, swap.end)
    entries = (*index.entries[: places[0]], made, *index.entries[places[-1] + 1 :])
    return index._replace(entries=entries)


def committed(rules: Rules, table: Table, request: Commit | Exchange) -> Table | None:
    """The table after the commit, None when it is refused."""
    fits = rules.commit_fits
    if not (fits(table, request) if fits else request.token == table.token):
        return None
    if isinstance(request, Exchange):
        return exchanged(table, request)
    files = (*table.files, stored(request.file))
    return Table(table.token + 1, request.after, files, table.ids | {request.id})


def exchanged(table: Table, exchange: Exchange) -> Table | None:
    """The table with a file in the place of others, None when it lacks one of them."""
    places = [at for at, one in enumerate(table.files) if key_of(one) in exchange.inputs]
    if len(places) != len(exchange.inputs):
        return None
    file = stored(exchange.file)
    added = (file,) if has_rows(file) else ()
    files = (*table.files[: places[0]], *added, *table.files[places[-1] + 1 :])
    return table._replace(token=table.token + 1, files=files)


def land(rules: Rules, state: SagaState, request: Request) -> tuple[SagaState, bool]:
    """What a request does when it reaches its service, and whether it was accepted."""
    match request:
        case Put(file=file):
            return state._replace(files=state.files | {stored(file)}), True
        case Cas(version=version, record=record):
            if rules.checks_versions and version != (state.version if state.record else 0):
                return state, False
            if record is not None and record.holder == LEASE.holder:
                record = structs.replace(record, holder=str(state.version + 1))  # a name of its own
            return state._replace(record=record, version=state.version + 1), True
        case Commit() | Exchange():
            table = committed(rules, state.table, request)
            return (state, False) if table is None else (state._replace(table=table), True)
        case Move(token=token):
            if token != state.table.token:
                return state, False
            return state._replace(table=state.table._replace(token=token + 1)), True
        case Append(swap=swap):
            index = swapped(rules, state.stream, swap)
            return (state, False) if index is None else (state._replace(stream=index), True)
