"""Byte-by-byte comparison of what a consumer saw with what a producer wrote."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.compat.corpus import Headers, Record

FINDINGS_MAX = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """One record as a consumer showed it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Window:
    """When the records were written, for clients that cannot set a timestamp: [start, end)."""

    start_ms: int
    end_ms: int


def compare(
    expected: Mapping[int, Sequence[Record]], seen: Iterable[Seen], window: Window
) -> list[str]:
    """Return the first findings; an empty list means that all bytes are the same."""
    findings: list[str] = []
    next_offsets = dict.fromkeys(expected, 0)
    for each in seen:
        if len(findings) >= FINDINGS_MAX:
            return findings
        place = f"partition {each.partition} offset {each.offset}"
        due = next_offsets.get(each.partition)
        if due is None or due >= len(expected[each.partition]):
            findings.append(f"{place}: a record that nobody wrote")
            continue
        if each.offset != due:
            findings.append(f"{place}: offset {due} was due")
        next_offsets[each.partition] = each.offset + 1
        if each.offset < len(expected[each.partition]):
            record = expected[each.partition][each.offset]
            findings += [f"{place}: {what}" for what in differences(record, each, window)]
    for partition, reached in next_offsets.items():
        if reached < len(expected[partition]):
            findings.append(
                f"partition {partition}: ends at {reached}, not {len(expected[partition])}"
            )
    return findings[:FINDINGS_MAX]


def differences(record: Record, seen: Seen, window: Window) -> list[str]:
    """Return how one record differs, field by field."""
    found = []
    pairs = (
        ("key", record.key, seen.key),
        ("value", record.value, seen.value),
        ("headers", record.headers, seen.headers),
    )
    for name, wanted, got in pairs:
        if wanted != got:
            found.append(f"{name} of record {record.index} is {show(got)}, not {show(wanted)}")
    if record.timestamp_ms is None:
        if not window.start_ms <= seen.timestamp_ms < window.end_ms:
            found.append(f"timestamp {seen.timestamp_ms} lies outside {window}")
    elif record.timestamp_ms != seen.timestamp_ms:
        found.append(f"timestamp is {seen.timestamp_ms}, not {record.timestamp_ms}")
    return found


def show(value: object) -> str:
    """Return a value short enough for a line."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}... ({len(text)} characters)"
