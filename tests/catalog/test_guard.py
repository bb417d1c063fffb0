"""What strangers may change, as the REST protocol says it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.catalog.guard import EXTERNAL_WRITES_PROPERTY, refusal

OFFSET = {"id": 2, "name": "offset", "type": "long", "required": True}
FIELDS = [OFFSET]


def refused(*updates: dict[str, Any], **properties: str) -> str | None:
    return refusal(updates, properties=properties, fields=FIELDS)


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"action": "add-schema", "schema": {"type": "struct", "fields": list(fields)}}


NEW = {"id": 99, "name": "price", "type": "double", "required": False}
LIST = {"type": "list", "element-id": 100, "element": "string", "element-required": False}
MAP = {"type": "map", "key-id": 103, "key": "string", "value-id": 104, "value": "long"}
TAG = {"action": "set-snapshot-ref", "ref-name": "audit", "type": "tag", "snapshot-id": 1}


def nested(depth: int) -> Any:
    kind: Any = "int"
    for number in range(depth):
        kind = {"type": "list", "element-id": 1000 + number, "element": kind}
    return kind


NESTED = nested(5_000)


@pytest.mark.parametrize(
    "update",
    [
        {"action": "set-properties", "updates": {"comment": "orders", "owner": "me"}},
        {"action": "set-properties", "updates": {"write.metadata.metrics.default": "full"}},
        {"action": "remove-properties", "removals": ["comment"]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-snapshot-ref", "ref-name": "audit", "type": "tag", "snapshot-id": 1},
        {"action": "remove-snapshot-ref", "ref-name": "audit"},
        schema(OFFSET, NEW),
        schema({**OFFSET, "doc": "a comment"}, NEW),
        schema(OFFSET, {**NEW, "type": "decimal(38, 10)"}),
        schema(OFFSET, {**NEW, "type": "fixed[16]"}),
        schema(OFFSET, {**NEW, "type": {"type": "struct", "fields": [{**NEW, "id": 100}]}}),
        schema(OFFSET, {**NEW, "type": LIST}, {**NEW, "name": "map", "id": 102, "type": MAP}),
        {"action": "upgrade-format-version", "format-version": 2},
        {**TAG, "type": "branch", "max-snapshot-age-ms": 1, "min-snapshots-to-keep": 3},
        {**TAG, "max-ref-age-ms": 86_400_000},
    ],
)
def test_what_nothing_of_ours_depends_on_passes(update: dict[str, Any]) -> None:
    assert refused(update) is None


@pytest.mark.parametrize(
    "update",
    [
        {"action": "add-snapshot", "snapshot": {}},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "set-location", "location": "s3://elsewhere"},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-spec", "spec": {}},
        {"action": "set-default-spec", "spec-id": 1},
        {"action": "add-sort-order"},
        {"action": "set-statistics"},
        {"action": "assign-uuid", "uuid": "x"},
        {"action": "set-properties", "updates": {"lakelog.offsets": "{}"}},
        {"action": "set-properties", "updates": {EXTERNAL_WRITES_PROPERTY: "true"}},
        {"action": "set-properties", "updates": {"gc.enabled": "true"}},
        {"action": "set-properties", "updates": {"commit.retry.num-retries": "4"}},
        {"action": "set-properties", "updates": {"write.metadata.path": "file:///etc"}},
        {"action": "set-properties", "updates": {"write.py-location-provider.impl": "os.system"}},
        {"action": "remove-properties", "removals": ["gc.enabled"]},
        {"action": "remove-properties", "removals": ["comment", "lakelog.offsets"]},
        {"action": "something-new"},
        {"action": None},
        {},
        schema(NEW),
        schema({**OFFSET, "name": "position"}),
        schema({**OFFSET, "type": "int"}),
        schema({**OFFSET, "required": False}),
        schema(OFFSET, {**NEW, "required": True}),
        schema(OFFSET, {**OFFSET, "name": "position"}),
        schema(OFFSET, OFFSET),
        schema(OFFSET, {**NEW, "id": "2"}),
        schema(OFFSET, {**NEW, "id": True}),
        schema(OFFSET, {**NEW, "id": 0}),
        schema(OFFSET, {**NEW, "id": 2_147_483_447}),
        schema(OFFSET, {**NEW, "name": "Offset"}),
        schema(OFFSET, {**NEW, "name": ""}),
        schema(OFFSET, {**NEW, "name": "headers.element.key"}),
        schema(OFFSET, {**NEW, "name": "a\nb"}),
        schema(OFFSET, {**NEW, "type": "variant"}),
        schema(OFFSET, {**NEW, "type": "timestamp_ns"}),
        schema(OFFSET, {**NEW, "type": "decimal(39, 0)"}),
        schema(OFFSET, {**NEW, "type": "decimal(5, 6)"}),
        schema(OFFSET, {**NEW, "type": "fixed[0]"}),
        schema(OFFSET, {**NEW, "type": {"type": "list", "element-id": 2, "element": "int"}}),
        schema(OFFSET, {**NEW, "type": {"type": "struct", "fields": [OFFSET]}}),
        schema(OFFSET, {**NEW, "type": {"type": "struct"}}),
        schema(OFFSET, {**NEW, "initial-default": 1.5}),
        schema(OFFSET, *({**NEW, "id": n, "name": f"c{n}"} for n in range(3, 2_100))),
        schema(OFFSET, {**NEW, "type": NESTED}),
        {**TAG, "max-ref-age-ms": 0},
        {**TAG, "max-ref-age-ms": 1 << 63},
        {**TAG, "max-ref-age-ms": "5"},
        {**TAG, "min-snapshots-to-keep": 1},
        {**TAG, "max-snapshot-age-ms": 1},
        {**TAG, "type": "branch", "min-snapshots-to-keep": 1 << 31},
        {"action": "set-properties", "updates": {"s3.endpoint": "http://elsewhere"}},
        {"action": "set-properties", "updates": {"schema.name-mapping.default": "{"}},
        {"action": "set-properties", "updates": {"write.metadata.compression-codec": "gzip"}},
        {"action": "set-properties", "updates": {"token": "x"}},
        {"action": "add-schema"},
        {"action": "add-schema", "schema": {"fields": [None, 7, {"id": [], "name": 1}]}},
    ],
)
def test_what_the_log_owns_is_refused_with_a_reason(update: dict[str, Any]) -> None:
    fine = {"action": "set-properties", "updates": {"comment": "x"}}
    assert refused(fine, update)
    if update.get("action") not in ("add-snapshot", "remove-snapshots", "set-snapshot-ref"):
        assert refused(update, **{EXTERNAL_WRITES_PROPERTY: "true"})


def test_comments_within_a_column_do_not_count() -> None:
    inner = {"id": 14, "name": "key", "required": True, "type": "string"}
    headers = {
        "id": 6,
        "name": "headers",
        "required": True,
        "type": {
            "type": "list",
            "element-id": 13,
            "element": {"type": "struct", "fields": [inner]},
            "element-required": True,
        },
    }
    spoken = json.loads(json.dumps(headers))
    spoken["type"]["element"]["fields"][0]["doc"] = "a comment"
    assert refusal([schema(spoken)], properties={}, fields=[headers]) is None
    spoken["type"]["element"]["fields"][0]["required"] = False
    assert refusal([schema(spoken)], properties={}, fields=[headers])


def test_a_table_that_allows_it_takes_snapshots_from_outside() -> None:
    allowed = {EXTERNAL_WRITES_PROPERTY: "true"}
    for action in ("add-snapshot", "remove-snapshots"):
        assert refused({"action": action}, **allowed) is None
    ref = {"action": "set-snapshot-ref", "ref-name": "main"}
    assert refused(ref, **allowed) is None


WORDS = st.sampled_from(
    ["", "id", "fields", "name", "type", "offset", "gc.enabled", "\ud800", "x" * 999]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
ACTIONS = st.sampled_from(["add-schema", "set-properties", "remove-properties", "set-snapshot-ref"])


@given(ACTIONS, st.dictionaries(st.sampled_from(["schema", "updates", "removals"]), JSON))
def test_whatever_a_stranger_sends_is_answered(action: str, rest: dict[str, Any]) -> None:
    assert isinstance(refused({"action": action, **rest}), str | None)
