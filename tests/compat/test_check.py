"""The checker finds what was planted, and forgives nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.compat.check import Seen, Window, compare
from tests.compat.console import line as console_line
from tests.compat.console import parse as console_parse
from tests.compat.corpus import (
    CODECS,
    PARTITIONS,
    Ability,
    HeaderFreedom,
    Record,
    by_partition,
    corpus,
)
from tests.compat.kcat import END_OF_RECORD, render
from tests.compat.kcat import parse as kcat_parse

BASE_MS = 1_700_000_000_000
WINDOW = Window(BASE_MS, BASE_MS + 10_000)
RECORDS = corpus(2_000, Ability(), BASE_MS)


def as_seen(records: list[Record]) -> list[Seen]:
    return [
        Seen(
            record.partition,
            offset,
            record.key,
            record.value,
            record.headers,
            BASE_MS if record.timestamp_ms is None else record.timestamp_ms,
        )
        for mine in by_partition(records).values()
        for offset, record in enumerate(mine)
    ]


SEEN = as_seen(RECORDS)


def test_the_same_bytes_give_no_finding() -> None:
    assert compare(by_partition(RECORDS), SEEN, WINDOW) == []


def swap(seen: list[Seen]) -> list[Seen]:
    first, second = seen[7], seen[8]
    return [
        *seen[:7],
        replace(second, offset=first.offset),
        replace(first, offset=second.offset),
        *seen[9:],
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda seen: [*seen[:5], *seen[6:]], "offset 5 was due"),
        (lambda seen: seen[:-1], "ends at 499, not 500"),
        (lambda seen: [*seen, replace(seen[-1], offset=500)], "a record that nobody wrote"),
        (lambda seen: [*seen, replace(seen[0], partition=9)], "a record that nobody wrote"),
        (lambda seen: [seen[0], *seen], "offset 1 was due"),
        (swap, "value of record"),
        (lambda seen: [replace(seen[0], key=b"other"), *seen[1:]], "key of record 0"),
        (lambda seen: [replace(seen[0], value=b"other"), *seen[1:]], "value of record 0"),
        (lambda seen: [replace(seen[0], headers=(("x", None),)), *seen[1:]], "headers of record 0"),
        (lambda seen: [replace(seen[0], timestamp_ms=1), *seen[1:]], "timestamp is 1"),
    ],
)
def test_a_planted_difference_is_found(
    fault: Callable[[list[Seen]], list[Seen]], words: str
) -> None:
    findings = compare(by_partition(RECORDS), fault(SEEN), WINDOW)
    assert any(words in finding for finding in findings), findings


def test_null_and_empty_are_told_apart() -> None:
    at = next(place for place, seen in enumerate(SEEN) if seen.value is None)
    planted = [*SEEN[:at], replace(SEEN[at], value=b""), *SEEN[at + 1 :]]
    assert compare(by_partition(RECORDS), planted, WINDOW)


def test_a_timestamp_that_a_client_could_not_set_must_lie_in_the_window() -> None:
    records = corpus(10, Ability(timestamps=False), BASE_MS)
    seen = as_seen(records)
    assert compare(by_partition(records), seen, WINDOW) == []
    late = [replace(each, timestamp_ms=WINDOW.end_ms) for each in seen]
    assert len(compare(by_partition(records), late, WINDOW)) == 5


def test_the_corpus_holds_every_case_that_clients_get_wrong() -> None:
    assert {record.codec for record in RECORDS} == set(CODECS)
    assert {record.partition for record in RECORDS} == set(range(PARTITIONS))
    keys, values = {record.key for record in RECORDS}, {record.value for record in RECORDS}
    assert {None, b""} <= keys
    assert {None, b""} <= values
    assert any(key is not None and not key.isascii() for key in keys)
    assert max(len(value or b"") for value in values) > 10_000
    headers = [record.headers for record in RECORDS]
    assert (("null", None), ("empty", b""), ("null", None)) in headers
    assert any([name for name, _ in each] == ["a", "b", "a", "a"] for each in headers)
    assert any(key is None and value is None for key, value in pairs(RECORDS))


def pairs(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_the_corpus_is_the_same_on_every_run() -> None:
    assert corpus(500, Ability(), BASE_MS) == corpus(500, Ability(), BASE_MS)


@pytest.mark.parametrize(
    "ability",
    [
        Ability(binary=False, partitions=False, timestamps=False),
        Ability(headers=HeaderFreedom.PER_RUN, empty_beside_null=False),
        Ability(headers=HeaderFreedom.GROUPED, null_header_values=False),
        Ability(null_key_and_value=False, codecs=("none", "gzip")),
    ],
)
def test_a_projection_keeps_to_what_the_client_can_say(ability: Ability) -> None:
    for record in corpus(1_000, ability, BASE_MS):
        assert record.codec in ability.codecs
        values = [value for _, value in record.headers]
        assert ability.null_header_values or None not in values
        assert ability.null_key_and_value or (record.key, record.value) != (None, None)
        assert ability.empty_beside_null or (record.key, record.value) != (None, b"")
        raws = [raw for raw in (record.key, record.value) if raw is not None]
        assert ability.binary or all(raw.decode().isprintable() for raw in raws)


def test_what_the_console_consumer_prints_is_taken_apart_exactly() -> None:
    for offset, record in enumerate(corpus(500, Ability(partitions=False), BASE_MS)):
        fields = console_line(record)[:-1]
        if not record.headers:
            fields = fields.replace(b"<~null~>", b"NO_HEADERS", 1)
        head = f"CreateTime:{record.timestamp_ms}<~field~>Partition:0<~field~>Offset:{offset}"
        seen = console_parse(head.encode() + b"<~field~>" + fields)
        assert compare({0: [record]}, [replace(seen, offset=0)], WINDOW) == []


def test_what_kcat_prints_is_taken_apart_exactly() -> None:
    records = corpus(500, Ability(partitions=False), BASE_MS)
    printed = b"".join(
        f"{offset} {record.timestamp_ms} {size(record.key)} {size(record.value)} ".encode()
        + (record.key or b"")
        + (record.value or b"")
        + render(record.headers)
        + END_OF_RECORD
        for offset, record in enumerate(records)
    )
    assert compare({0: records}, kcat_parse(printed, 0, records), WINDOW) == []
    wrong = printed.replace(b"trace=", b"tracE=", 1)
    assert compare({0: records}, kcat_parse(wrong, 0, records), WINDOW)


def size(raw: bytes | None) -> int:
    return -1 if raw is None else len(raw)
