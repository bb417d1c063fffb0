"""What is garbage, by values: each look protects what it names, and what it could not see."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.pipeline.saga.task_values import CREATED, LEASE, SEGMENT, at

from lakelog.catalog.port import TableName
from lakelog.pipeline.maintenance.gc_rules import (
    EXAMPLES_MAX,
    Garbage,
    GarbageCandidate,
    KeySample,
    ObjectListing,
    SeenTable,
    SeenTables,
    is_due,
    is_fenced,
    judge,
    marks,
    merged_marks,
    suspects_after,
    unmarked,
    unrecorded,
)
from lakelog.pipeline.saga.task_record import TaskState, claim, output_key
from lakelog.streams.table import Int64s

TOPIC_ID = "0123456789abcdef" * 2
OTHER_ID = "f" * 32
NAME = TableName("lake", "t")
UUID = "0189f7a0-0000-4000-8000-00000000000a"
DATA = output_key(CREATED, attempt="a")
KFS = output_key(SEGMENT, attempt="a")
METADATA = f"tables/lake/t/{TOPIC_ID}/metadata/00003-{UUID}.metadata.json"
MANIFEST_LIST = f"tables/lake/t/{TOPIC_ID}/metadata/snap-77-0-{UUID}.avro"
MANIFEST = f"tables/lake/t/{TOPIC_ID}/metadata/{UUID}-m12.avro"
OURS = [METADATA, MANIFEST_LIST, MANIFEST]
SEEN = SeenTable(NAME, TOPIC_ID, "token-1")
NOTHING = marks(())


def listed(*keys: str) -> ObjectListing:
    listing = ObjectListing()
    for key in keys:
        listing.add(key)
    return listing


def seen(*tables: SeenTable, named: Int64s = NOTHING) -> SeenTables:
    return SeenTables({one.name: one for one in tables}, named)


def judged(
    keys: list[str], tables: SeenTables, *, live: frozenset[str] = frozenset(), index: str = ""
) -> Garbage:
    listing = listed(*keys)
    return judge(listing, listing.data, tables, live_topics=live, named_files=frozenset([index]))


def test_a_listing_tells_whose_each_object_is() -> None:
    listing = listed(DATA, KFS, *OURS)
    assert listing.data == [DATA, KFS]
    ((home, keys),) = listing.homes.items()
    assert (home.name, home.topic_id) == (NAME, TOPIC_ID)
    assert (keys.ours, keys.others) == (OURS, [])
    assert listing.count == 5
    assert listing.unknown.count == 0


@pytest.mark.parametrize(
    "key",
    [
        "compaction/v1/notes.txt",
        "compaction/v1/topic=t/partition=03/7-1-1-a.parquet",
        "tables/lake/t/metadata/00000-x.metadata.json",
        f"tables/lake/t/deep/{TOPIC_ID}/metadata/00000-{UUID}.metadata.json",
        f"tables/lake/t/{TOPIC_ID.upper()}/metadata/00000-{UUID}.metadata.json",
    ],
)
def test_what_nobody_of_us_writes_is_reported_and_never_garbage(key: str) -> None:
    found = judged([key], seen())
    assert (found.certain, found.metadata) == ([], {})
    assert found.unknown == KeySample(1, [key])


@pytest.mark.parametrize(
    "rest", ["data/part-0.parquet", "metadata/stats.puffin", f"metadata/x/{UUID}-m0.avro", "notes"]
)
def test_a_stranger_in_the_home_of_a_table_is_left_alone(rest: str) -> None:
    key = f"tables/lake/t/{TOPIC_ID}/{rest}"
    found = judged([key, METADATA], seen(SEEN))
    assert found.metadata == {NAME: [METADATA]}
    assert found.unknown.examples == [key]
    assert judged([key], seen(SEEN, named=marks([key]))).unknown.count == 0


def test_only_some_examples_of_what_is_unknown_are_kept() -> None:
    sample = listed(*(f"compaction/v1/{number}" for number in range(100))).unknown
    assert sample.count == 100
    assert len(sample.examples) == EXAMPLES_MAX


def test_a_file_that_record_table_and_index_do_not_name_is_garbage() -> None:
    assert judged([DATA], seen(SEEN)).certain == [DATA]
    assert judged([DATA], seen(SEEN, named=marks([DATA]))).certain == []
    assert judged([DATA], seen(SEEN), index=DATA).certain == []


def test_a_record_keeps_what_it_names_or_may_come_to_name() -> None:
    kept = {7: CREATED}
    assert unrecorded([DATA], kept, unreadable=()) == []
    assert unrecorded([DATA], {7: claim(CREATED, LEASE)}, unreadable=()) == [DATA]
    assert unrecorded([DATA], {7: at(TaskState.ABORTED)}, unreadable=()) == []
    assert unrecorded([DATA], {7: at(TaskState.CLOSED)}, unreadable=()) == [DATA]
    assert unrecorded([DATA], {}, unreadable=()) == [DATA]


def test_a_record_that_cannot_be_read_keeps_all_files_of_its_stream() -> None:
    other = output_key(structs.replace(CREATED, stream=8), attempt="a")
    assert unrecorded([DATA, other], {}, unreadable={7}) == [other]


def test_a_table_that_cannot_be_read_keeps_the_files_of_its_topic_and_its_home() -> None:
    blind = replace(seen(), blind_tables=frozenset([NAME]))
    other = output_key(structs.replace(CREATED, topic="u"), attempt="a")
    found = judged([DATA, other, KFS, *OURS], blind)
    assert found.certain == [other, KFS]  # segments are in no table
    assert found.metadata == {}


def test_a_namespace_that_cannot_be_listed_keeps_every_data_file_and_its_homes() -> None:
    blind = replace(seen(), blind_spaces=frozenset(["lake"]))
    elsewhere = METADATA.replace("tables/lake", "tables/sea")
    found = judged([DATA, KFS, *OURS, elsewhere], blind)
    assert found.certain == [KFS, elsewhere]


def test_metadata_that_a_table_does_not_name_is_garbage_but_not_for_certain() -> None:
    found = judged(OURS, seen(SEEN, named=marks([METADATA])))
    assert found.certain == []
    assert found.metadata == {NAME: [MANIFEST_LIST, MANIFEST]}


def test_the_home_of_a_topic_that_is_gone_is_garbage_as_a_whole() -> None:
    stranger = f"tables/lake/t/{TOPIC_ID}/data/x.parquet"
    made_again = replace(SEEN, topic_id=OTHER_ID)
    for tables in (seen(), seen(made_again)):
        assert judged([*OURS, stranger], tables).certain == [*OURS, stranger]
    assert judged(OURS, seen(named=marks(OURS))).certain == []


def test_the_home_of_a_live_topic_without_a_table_is_kept() -> None:
    found = judged(OURS, seen(), live=frozenset([TOPIC_ID]))
    assert (found.certain, found.metadata) == ([], {})


def test_a_home_whose_table_has_another_name_by_now_is_kept() -> None:
    moved = replace(SEEN, name=TableName("sea", "t"))
    assert judged(OURS, seen(moved)).certain == []


def suspects(
    before: dict[str, GarbageCandidate],
    found: Garbage,
    *,
    token: str = "token-1",
    now_s: float = 5.0,
) -> dict[str, GarbageCandidate]:
    return suspects_after(
        before, found, tokens={NAME: token}, once_named={NAME: marks([MANIFEST])}, now_s=now_s
    )


def test_a_suspect_remembers_since_when_and_at_which_token() -> None:
    found = judged([DATA, *OURS], seen(SEEN))
    first = suspects({}, found)
    assert first[DATA] == GarbageCandidate(5.0, None)
    assert first[METADATA] == GarbageCandidate(5.0, "token-1")
    assert first[MANIFEST] == GarbageCandidate(
        5.0, None
    )  # it was named once: its commit has landed
    assert suspects(first, found, token="token-2", now_s=9.0) == first


def test_what_is_named_again_or_not_seen_is_no_suspect_any_more() -> None:
    first = suspects({}, judged([DATA, *OURS], seen(SEEN)))
    again = suspects(first, judged(OURS, seen(SEEN, named=marks([METADATA]))))
    assert sorted(again) == sorted([MANIFEST_LIST, MANIFEST])


def test_a_table_that_went_makes_its_metadata_certain_and_keeps_the_time() -> None:
    first = suspects({}, judged(OURS, seen(SEEN)))
    assert suspects(first, judged(OURS, seen()), now_s=9.0)[METADATA] == GarbageCandidate(5.0, None)


def test_a_suspect_is_due_a_grace_after_it_was_seen_first() -> None:
    assert not is_due(GarbageCandidate(5.0), now_s=14.9, grace_s=10.0)
    assert is_due(GarbageCandidate(5.0), now_s=15.0, grace_s=10.0)


def test_metadata_is_fenced_once_the_table_has_another_token() -> None:
    assert is_fenced(GarbageCandidate(5.0, None), "token-1")
    assert is_fenced(GarbageCandidate(5.0, "token-1"), "token-2")
    assert not is_fenced(GarbageCandidate(5.0, "token-1"), "token-1")


KEYS = st.text("abc/", max_size=4)


@given(st.lists(KEYS), st.lists(st.sets(KEYS), max_size=3))
def test_marks_find_exactly_the_keys_that_they_were_made_of(
    keys: list[str], parts: list[set[str]]
) -> None:
    named = set().union(*parts)
    found = merged_marks([marks(part) for part in parts])
    assert unmarked(keys, found) == [key for key in keys if key not in named]
    assert np.all(found[1:] > found[:-1])
