"""Objects of others against their commits: what is read of them, and what is seen by it."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.placing import RULE, made
from tests.memory_cluster import batch
from tests.profiles import examples

from lakelog.domain.commit_event import Commit
from lakelog.log import placed
from lakelog.log.placed import BatchRule, check_batch, check_commit, check_index, key_of, spans
from lakelog.model.failures import Corrupt
from lakelog.model.ids import WalId
from lakelog.records.build import BatchOptions
from lakelog.records.header import restamp

NOW_MS = 1_700_000_000_000
BIG = bytes(100_000)


def whole(sealed: Any) -> bytearray:
    return bytearray(sealed.data)


def check(data: bytes | bytearray, commit: Commit, *, domain: int = 0, **rules: Any) -> None:
    """All that is checked of an object, from nothing but what the spans bring."""
    rule = replace(RULE, **rules)
    check_commit(commit)
    key_of(domain, commit)
    view = memoryview(bytes(data))
    for span in spans(commit):
        part = view[span.range.start : span.range.end]
        if len(part) != len(span.range):
            raise Corrupt("a range beyond the end")
        if span.range.start == 0:
            check_index(domain, commit, part)
        for at in range(span.first, span.end):
            rest = part[int(commit.byte_start[at]) - span.range.start :]
            check_batch(commit, at, rest, {int(stream): rule for stream in commit.stream})


def sample() -> Any:
    rows = [(2, batch(b"a", b"b")), (1, batch(b"c", BIG)), (2, batch(b"d")), (7, batch(BIG, BIG))]
    return made(rows, now_ms=NOW_MS)


def test_an_object_that_is_what_its_commit_says_is_good() -> None:
    sealed = sample()
    check(whole(sealed), sealed.commit)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 400)), min_size=1, max_size=30),
    st.integers(0, 500),
    st.integers(600, 2000),
)
def test_spans_hold_every_head_and_both_ends_in_order(
    rows: list[tuple[int, int]], whole_bytes: int, span_bytes: int
) -> None:
    sealed = made([(one, batch(bytes(size))) for one, size in rows], now_ms=NOW_MS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placed, "WHOLE_BYTES", whole_bytes)
        patch.setattr(placed, "SPAN_BYTES_MAX", span_bytes)
        found = list(spans(sealed.commit))
        check(whole(sealed), sealed.commit)
    assert found[0].range.start == 0
    assert found[-1].range.end == sealed.commit.size_bytes
    assert [at for span in found for at in range(span.first, span.end)] == list(range(len(rows)))
    for before, after in itertools.pairwise(found):
        assert before.range.end <= after.range.start
        assert len(before.range)


def test_of_large_batches_only_the_heads_are_read() -> None:
    sealed = made([(1, batch(bytes(300_000))) for _ in range(20)], now_ms=NOW_MS)
    read_bytes = sum(len(span.range) for span in spans(sealed.commit))
    assert read_bytes < 2_000 < 6_000_000 < sealed.commit.size_bytes


COLUMNS = ("stream", "byte_start", "byte_length", "offset_count", "max_timestamp")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("at", range(4))
def test_a_commit_that_says_something_else_is_seen(column: str, at: int) -> None:
    sealed = sample()
    values = getattr(sealed.commit, column).copy()
    values[at] += 1
    changes: dict[str, Any] = {column: values}
    with pytest.raises(Corrupt):
        check(whole(sealed), replace(sealed.commit, **changes))


@pytest.mark.parametrize("column", ["offset_count", "max_timestamp"])
def test_a_commit_that_mistakes_two_batches_of_a_stream_is_seen(column: str) -> None:
    """The index, which has one row a stream, is right about both together."""
    sealed = sample()
    assert sealed.commit.stream.tolist() == [1, 2, 2, 7]
    changes: dict[str, Any] = {column: getattr(sealed.commit, column)[[0, 2, 1, 3]]}
    with pytest.raises(Corrupt, match="batch 1 of stream 2"):
        check(whole(sealed), replace(sealed.commit, **changes))


@pytest.mark.parametrize(
    "change",
    [
        lambda commit: replace(commit, size_bytes=commit.size_bytes + 1),
        lambda commit: replace(commit, size_bytes=placed.OBJECT_BYTES_MAX + 1),
        lambda commit: replace(commit, wal_id=WalId(commit.wal_id[:15] + b"!")),
        lambda commit: replace(commit, wal_id=WalId(b"\xff" * 16)),
        lambda commit: replace(commit, wal_id=WalId(bytes(16))),
        lambda commit: replace(commit, zone="../up"),
        lambda commit: replace(commit, zone=""),
        lambda commit: replace(commit, stream=np.array([-1, 2, 2, 7], dtype=np.int64)),
        lambda commit: _part(commit, [0, 1, 2]),
        lambda commit: _part(commit, [1, 2, 3]),
    ],
    ids=[
        "longer",
        "huge",
        "another id",
        "a time that no key has",
        "not an id",
        "a zone that leaves the folder",
        "no zone",
        "no stream",
        "without its last stream",
        "without its first stream",
    ],
)
def test_a_commit_of_another_object_is_seen(change: Callable[[Commit], Commit]) -> None:
    sealed = sample()
    with pytest.raises(Corrupt):
        check(whole(sealed), change(sealed.commit))


def _part(commit: Commit, kept: list[int]) -> Commit:
    columns = (*COLUMNS, "producer", "epoch", "sequence")
    some: dict[str, Any] = {name: getattr(commit, name)[kept] for name in columns}
    return replace(commit, **some)


def test_an_object_of_another_domain_is_seen() -> None:
    sealed = sample()
    with pytest.raises(Corrupt, match="domain"):
        check(whole(sealed), sealed.commit, domain=1)


def test_an_object_that_was_cut_is_seen() -> None:
    sealed = sample()
    for size in (0, 10, 200, sealed.commit.size_bytes - 1):
        with pytest.raises(Corrupt):
            check(whole(sealed)[:size], sealed.commit)


def test_every_flipped_bit_of_what_was_read_is_seen_but_one_that_nobody_reads() -> None:
    """The leader epoch lies outside the CRC; the least timestamp of a stream is only told."""
    sealed = made([(1, batch(b"a", b"b")), (2, batch(b"c"))], now_ms=NOW_MS)
    good, commit = whole(sealed), sealed.commit
    starts = commit.byte_start.tolist()
    unread = {start + 4 + 12 + number for start in starts for number in range(4)}
    unread |= set(range(29, 37))  # when it was created
    unread |= {49 + 44 * at + 28 + number for at in range(2) for number in range(8)}
    unread |= set(range(commit.size_bytes - 4, commit.size_bytes))  # of all bytes together
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 1 << place % 8
        if place in unread:
            continue
        with pytest.raises(Corrupt):
            check(data, commit)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (BatchOptions(producer_id=5, producer_epoch=0, base_sequence=0), "producer"),
        (BatchOptions(transactional=True), "transaction"),
    ],
)
def test_batches_of_producers_and_transactions_are_refused(
    options: BatchOptions, says: str
) -> None:
    sealed = made([(1, batch(b"a", options=options))], now_ms=NOW_MS)
    with pytest.raises(Corrupt, match=says):
        check(whole(sealed), sealed.commit)


def test_a_batch_beyond_its_topics_limit_is_refused() -> None:
    sealed = sample()
    with pytest.raises(Corrupt, match=r"max\.message\.bytes is 1000"):
        check(whole(sealed), sealed.commit, message_bytes_max=1_000)


def test_the_type_of_a_topics_timestamps_is_kept() -> None:
    sealed = sample()
    with pytest.raises(Corrupt, match=r"message\.timestamp\.type"):
        check(whole(sealed), sealed.commit, is_log_append_time=True)
    plain = batch(b"a")
    stamped = restamp(plain.data, attributes=8, max_timestamp_ms=plain.max_timestamp_ms)
    appended = made([(1, type(plain)(stamped, *_fields(plain)[1:]))], now_ms=NOW_MS)
    check(whole(appended), appended.commit, is_log_append_time=True)
    with pytest.raises(Corrupt, match=r"message\.timestamp\.type"):
        check(whole(appended), appended.commit)


def _fields(one: Any) -> list[Any]:
    return [getattr(one, name) for name in one.__struct_fields__]


def test_a_rule_is_needed_for_every_stream() -> None:
    sealed = sample()
    with pytest.raises(KeyError):
        check_batch(sealed.commit, 0, memoryview(bytes(whole(sealed)))[181:], {9: RULE})
    assert BatchRule(1, is_log_append_time=True) != RULE
