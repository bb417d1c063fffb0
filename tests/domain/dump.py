"""A domain's state as plain values, the same for `apply` and for the model.

The dump says everything that a record may depend on and nothing of row numbers, so two states with
equal dumps mean the same. Its SHA-256 is what golden logs fold to (rule 12).
"""

import hashlib
import json
from typing import Any

import msgspec
from tests.domain.model import Model, Stream

from lakelog.domain.state import DomainState
from lakelog.streams.objects import FileName, ObjectName, WalName
from lakelog.streams.producers import advanced


def name_text(name: ObjectName) -> str:
    match name:
        case WalName(wal_id=wal_id, zone=zone):
            return f"wal {wal_id.hex()} {zone}"
        case FileName(kind=kind, key=key):
            return f"{kind.name} {key}"


def dump_state(state: DomainState) -> dict[str, Any]:
    """The state's meaning; groups, writes and parts only where there are some."""
    groups = {"groups": _dump_groups(state)} if state.groups.groups else {}
    writes = {name: list(last) for name, last in state.writes.items()}
    return (
        groups
        | ({"writes": writes} if writes else {})
        | ({"parts": _dump_parts(state)} if state.parts else {})
        | {
            "cluster": state.cluster_id,
            "level": state.level,
            "position": state.position,
            "horizon": state.horizon_ms,
            "expired": state.producers.expired_max,
            "writers": {
                writer: [stamp.incarnation, stamp.number] for writer, stamp in state.writers.items()
            },
            "supported": dict(state.supported),
            "streams": {
                str(number): _dump_stream(state, number) for number in sorted(state.streams.row_of)
            },
        }
    )


def _dump_groups(state: DomainState) -> dict[str, Any]:
    table = state.groups
    return {
        group_id: {
            "group": msgspec.msgpack.encode(table.groups[group_id]).hex(),
            "offsets": {
                f"{topic.hex()} {partition}": msgspec.to_builtins(row)
                for (topic, partition), row in sorted(table.offsets.get(group_id, {}).items())
            },
        }
        for group_id in sorted(table.groups)
    }


def _dump_parts(state: DomainState) -> dict[str, Any]:
    return {
        writer: [pending.attempt, pending.of, [part.hex() for part in pending.data]]
        for writer, pending in state.parts.items()
    }


def _dump_stream(state: DomainState, number: int) -> dict[str, Any]:
    facts = state.streams.facts(number)
    assert facts is not None
    row = state.streams.row_of[number]
    entries = []
    for entry_row in state.index.rows(state.streams, row).tolist():
        one = state.index.entry(entry_row)
        name = name_text(state.objects.name(one.object_row))
        entries.append(
            [one.start, one.end, name, one.byte_start, one.byte_length, one.max_timestamp_ms]
        )
    producers = {}
    for producer_row in state.producers.of_stream(row).tolist():
        window = state.producers.window(producer_row)
        columns = state.producers.columns
        identity = str(int(columns["producer"][producer_row]))
        batches = [[b.first, b.count, b.offset, b.timestamp_ms] for b in window]
        expected = advanced(window[-1].first, window[-1].count)
        assert state.producers.expected(producer_row) == expected
        time_ms = int(columns["time_ms"][producer_row])
        producers[identity] = [state.producers.epoch(producer_row), time_ms, batches]
    return {
        "topic": facts.topic.hex(),
        "partition": facts.partition,
        "log_start": facts.log_start,
        "head": facts.head,
        "live_bytes": facts.live_bytes,
        "gone_bytes": int(state.streams.columns["gone_bytes"][row]),
        "entries": entries,
        "producers": producers,
    }


def dump_model(model: Model) -> dict[str, Any]:
    """The model's meaning, in the same shape."""
    writes = {name: list(last) for name, last in model.writes.items()}
    return ({"writes": writes} if writes else {}) | {
        "cluster": model.cluster_id,
        "level": model.level,
        "position": model.position,
        "horizon": model.horizon_ms,
        "expired": model.expired_max,
        "writers": {
            writer: [stamp.incarnation, stamp.number] for writer, stamp in model.writers.items()
        },
        "supported": dict(model.supported),
        "streams": {
            str(number): _dump_model_stream(model.streams[number])
            for number in sorted(model.streams)
        },
    }


def _dump_model_stream(stream: Stream) -> dict[str, Any]:
    return {
        "topic": stream.topic.hex(),
        "partition": stream.partition,
        "log_start": stream.log_start,
        "head": stream.head,
        "live_bytes": sum(entry.byte_length for entry in stream.entries),
        "gone_bytes": stream.gone_bytes,
        "entries": [
            [
                one.start,
                one.end,
                name_text(one.name),
                one.byte_start,
                one.byte_length,
                one.max_timestamp_ms,
            ]
            for one in stream.entries
        ],
        "producers": {
            str(identity): [
                one.epoch,
                one.time_ms,
                [[b.first, b.count, b.offset, b.timestamp_ms] for b in one.window],
            ]
            for identity, one in sorted(stream.producers.items())
        },
    }


def dump_hash(dump: dict[str, Any]) -> str:
    """SHA-256 of the dump as JSON with sorted keys."""
    text = json.dumps(dump, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
