"""What is written down of snapshots comes back as it was, in pages of bounded size."""

import random
import zlib
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.catalog.port import SnapshotView
from lakelog.catalog.snapshot_page import (
    PAGE_BYTES,
    PAGE_BYTES_FULL,
    Head,
    SnapshotFact,
    SnapshotPage,
    decode_head,
    decode_page,
    encode_head,
    encode_page,
    facts_of,
    kept_from,
    remembered,
    without,
)
from lakelog.model.failures import Corrupt, Refused

OFFSETS = st.integers(0, (1 << 63) - 1)
FACTS = st.builds(
    SnapshotFact,
    snapshot_id=st.integers(-(1 << 63), (1 << 63) - 1),
    sequence_number=OFFSETS,
    timestamp_ms=st.integers(-(1 << 63), (1 << 63) - 1),
    operation=st.text(max_size=64).filter(lambda text: text.isprintable()),
    vector=st.dictionaries(st.integers(0, (1 << 31) - 1), OFFSETS, max_size=4),
    expired_ms=OFFSETS,
)
PAGES = st.builds(
    SnapshotPage,
    facts=st.lists(FACTS, max_size=4).map(tuple),
    reached=st.integers(-1, (1 << 63) - 1),
)


def fact(number: int, *, partitions: int = 1, expired_ms: int = 1) -> SnapshotFact:
    """Ids are chance, as real ones are."""
    chance = random.Random(number)
    identity = chance.getrandbits(62)
    vector = {one: number * 2000 + chance.randrange(2000) for one in range(partitions)}
    return SnapshotFact(identity, number, 1_700_000_000_000 + number, "append", vector, expired_ms)


def grown(facts: Sequence[SnapshotFact]) -> tuple[list[bytes], Head]:
    """The pages that were sealed, and the head, after facts that came one by one."""
    head = Head()
    pages: list[bytes] = []
    for one in facts:
        sealed, head = remembered(head, [one])
        if sealed is not None:
            assert head.end == len(pages) + 1
            pages.append(sealed)
    return pages, head


@given(PAGES)
def test_a_page_comes_back_as_it_was(page: SnapshotPage) -> None:
    assert decode_page(encode_page(page)) == page


def test_the_format_is_what_it_was() -> None:
    value = bytes.fromhex(
        "789c6b5e96965f949b58c2b8bc283531392335856149517e79f1a4e9ac8ce7191818bbcf3fcd6058965850"
        "909a9702e567bf38d4c4c0ccce399d8d092a927f01a8b920273139152a50bce350230323009a242501"
    )
    first = SnapshotFact(5, 1, 1700000000000, "append", {0: 3, 7: 9}, 1700000001000)
    second = SnapshotFact(6, 2, 1700000002000, "replace", {0: 4, 7: 9}, 1700000003000)
    assert decode_page(value) == SnapshotPage((first, second), reached=0)


@given(PAGES, PAGES, st.integers(0, 1 << 40), st.integers(0, 1 << 20))
def test_a_head_comes_back_as_it_was(
    page: SnapshotPage, live: SnapshotPage, first: int, count: int
) -> None:
    head = Head(first, first + count, page, live.facts)
    assert decode_head(encode_head(head)) == head


@given(st.binary(max_size=60))
def test_what_is_no_page_is_corrupt(value: bytes) -> None:
    with pytest.raises((Corrupt, Refused)):
        decode_page(value)
    with pytest.raises((Corrupt, Refused)):
        decode_head(value)
    with pytest.raises((Corrupt, Refused)):
        decode_page(zlib.compress(value))


@given(PAGES.filter(lambda page: bool(page.facts)), st.data())
def test_a_damaged_page_is_corrupt_or_the_same(page: SnapshotPage, data: st.DataObject) -> None:
    value = bytearray(encode_page(page))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_page(bytes(value))
    except (Corrupt, Refused):
        return
    assert found == page  # a bit that zlib does not look at


def test_a_page_that_unpacks_to_too_much_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="another end"):
        decode_page(zlib.compress(bytes(65 << 20)))


def test_an_offset_that_no_log_has_is_corrupt() -> None:
    rows = [[1, 1, 1, "append", 1, True, {0: 5}], [2, 2, 2, "append", 1, False, {0: -6}]]
    page = {"format": 1, "reached": -1, "rows": rows}
    with pytest.raises(Corrupt, match="an offset"):
        decode_page(zlib.compress(msgspec.msgpack.encode(page)))


def test_a_newer_format_is_refused_by_its_number() -> None:
    with pytest.raises(Refused, match="format 2"):
        decode_page(zlib.compress(msgspec.msgpack.encode({"format": 2, "more": 1})))
    with pytest.raises(Refused, match="format 7"):
        decode_head(msgspec.msgpack.encode({"format": 7}))


def test_pages_that_end_before_they_begin_are_corrupt() -> None:
    empty = encode_page(SnapshotPage())
    head = {"format": 1, "first": 2, "end": 1, "page": empty, "live": empty}
    with pytest.raises(Corrupt, match="before they begin"):
        decode_head(msgspec.msgpack.encode(head))


@pytest.mark.parametrize(("partitions", "least"), [(1, 200), (1000, 16), (5000, 3)])
def test_full_pages_are_sealed_and_hold_every_fact_once(partitions: int, least: int) -> None:
    facts = [fact(number, partitions=partitions) for number in range(least * 3)]
    pages, head = grown(facts)
    assert pages
    assert max(map(len, pages)) <= (PAGE_BYTES if partitions == 1 else PAGE_BYTES_FULL)
    decoded = [decode_page(page) for page in pages]
    assert min(len(page.facts) for page in decoded) >= least
    assert [one for page in (*decoded, head.page) for one in page.facts] == facts
    for before, after in zip(decoded, [*decoded[1:], head.page], strict=True):
        assert after.reached == before.facts[-1].sequence_number


def test_a_vector_that_fills_a_page_alone_is_kept_all_the_same() -> None:
    facts = [fact(number, partitions=100_000) for number in range(2)]
    pages, head = grown(facts)
    assert [decode_page(page).facts for page in pages] == [(facts[0],)]
    assert head.page.facts == (facts[1],)


def test_a_repeat_is_left_out() -> None:
    _, head = remembered(Head(), [fact(1), fact(2)])
    assert remembered(head, [fact(1), fact(2)]) == (None, head)
    _, more = remembered(head, [fact(2), fact(3)])
    assert more.page.facts == (fact(1), fact(2), fact(3))


def test_a_page_remembers_how_new_the_pages_before_it_were() -> None:
    page = SnapshotPage((fact(9), fact(3)), reached=4)
    assert page.reached_after == 9
    assert SnapshotPage((fact(3),), reached=4).reached_after == 4
    assert SnapshotPage().reached_after == -1


def test_partitions_that_vanish_do_not_stay() -> None:
    odd = [
        SnapshotFact(1, 1, 1, "append", {0: 1, 1: 1}),
        SnapshotFact(2, 2, 2, "append", {1: 1}),
        SnapshotFact(3, 3, 3, "append", {}),
        SnapshotFact(4, 4, 4, "append", {0: 0}),
    ]
    assert decode_page(encode_page(SnapshotPage(tuple(odd)))).facts == tuple(odd)


def test_what_is_too_old_leaves_a_page() -> None:
    page = SnapshotPage((fact(1, expired_ms=10), fact(2, expired_ms=20)), reached=0)
    assert without(page, before_ms=11) == SnapshotPage((fact(2, expired_ms=20),), reached=0)
    assert without(page, before_ms=10) is page


@pytest.mark.parametrize(("history_ms", "expected"), [(-1, 0), (0, 1001), (1, 999), (1000, 0)])
def test_a_setting_says_from_when_on_snapshots_are_known(history_ms: int, expected: int) -> None:
    assert kept_from(history_ms, now_ms=1000) == expected


def test_nothing_is_remembered_of_snapshots_that_others_made() -> None:
    ours = SnapshotView(1, 2, 3, "append", {0: 4})
    theirs = SnapshotView(5, 6, 7, "append", None)
    found = facts_of([theirs, ours], expired_ms=8)
    assert found == [SnapshotFact(1, 2, 3, "append", {0: 4}, 8)]
