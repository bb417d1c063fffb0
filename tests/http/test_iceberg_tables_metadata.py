"""Stored metadata in, parts of answers out."""

import json

import pytest

from lakelog.catalog.port import TableName
from lakelog.http.iceberg_tables import (
    MetadataCache,
    StoredTable,
    checked,
    commit_result,
    etag,
    facts_of,
    load_result,
    matches,
    only_referenced,
)
from lakelog.model.failures import Corrupt


def stored(metadata: object, location: str = "s3://b/m.json") -> StoredTable:
    content = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    return StoredTable(TableName("n", "t"), location, content)


def test_the_cache_keeps_what_was_used_last_within_its_bytes() -> None:
    cache = MetadataCache(bytes_max=10)
    cache.put("a", b"1234")
    cache.put("b", b"5678")
    assert cache.get("a") == b"1234"
    cache.put("c", b"90")
    assert cache.size_bytes == 10
    cache.put("d", b"x")
    assert cache.get("b") is None
    assert [cache.get(name) for name in "acd"] == [b"1234", b"90", b"x"]
    assert cache.size_bytes == 7
    cache.put("a", b"1234")
    assert cache.size_bytes == 7
    cache.put("large", b"12345678901")
    assert cache.get("large") is None
    assert cache.size_bytes == 7


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'"x"', b'{"a":1}x', b"\xff", b"\x1f\x8b"])
def test_what_is_no_object_of_json_is_corrupt(content: bytes) -> None:
    with pytest.raises(Corrupt, match="is no metadata"):
        checked("m.json", memoryview(content))


def test_numbers_and_texts_of_metadata_stay_as_they_are_written() -> None:
    metadata = b'{"snapshots":[{"snapshot-id":9007199254740993,"x":1.50}],"y":1e2,"refs":{}}'
    table = stored(metadata)
    assert json.loads(load_result(table, metadata, {"a": "b"}, credentials_below=())) == {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(metadata),
        "config": {"a": "b"},
    }
    assert metadata in commit_result(table, metadata)
    assert only_referenced(table) == b'{"snapshots":[],"y":1e2,"refs":{}}'
    named = {"refs": {"t": {"snapshot-id": 9007199254740993}}}
    kept = only_referenced(stored({**json.loads(metadata), **named}))
    assert json.loads(kept)["snapshots"] == [{"snapshot-id": 9007199254740993, "x": 1.5}]


def test_an_empty_table_has_no_snapshots_to_choose_from() -> None:
    assert json.loads(only_referenced(stored({"current-snapshot-id": None}))) == {
        "current-snapshot-id": None,
        "snapshots": [],
    }
    with pytest.raises(Corrupt):
        only_referenced(stored({"snapshots": [{}]}))


def test_a_change_is_judged_by_the_columns_of_the_current_schema() -> None:
    fields = [{"id": 2, "name": "offset"}, {"id": 9, "name": "mine"}]
    schemas = [{"schema-id": 0, "fields": []}, {"schema-id": 1, "fields": fields}]
    metadata = {"schemas": schemas, "current-schema-id": 1, "properties": {"a": "b"}}
    facts = facts_of(stored(metadata))
    assert facts.properties == {"a": "b"}
    assert facts.fields == ({"id": 2, "name": "offset"},)
    for broken in ({**metadata, "current-schema-id": 2}, {"schemas": 5}, {}):
        with pytest.raises(Corrupt):
            facts_of(stored(broken))


def test_a_tag_is_of_a_location_and_of_what_is_told() -> None:
    tags = {
        etag(stored({}), "all"),
        etag(stored({}), "refs"),
        etag(stored({}), "all", True),
        etag(stored({}, "s3://b/other.json"), "all"),
    }
    assert len(tags) == 4
    tag = etag(stored({}), "all")
    assert matches(f'"x" , W/{tag}', tag)
    assert not matches(f'"{tag}"', tag)
