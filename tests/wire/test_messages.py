"""The checked-in message classes are what the generator writes, and what Kafka defines."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct
from scripts.generate_messages import OUTPUT, generate
from tests.wire.kafka_python import definitions

from lakelog.wire.apis import APIS
from lakelog.wire.compile import message_layout
from lakelog.wire.layout import FieldLayout, MessageLayout, annotated_fields
from lakelog.wire.schema import ZERO_UUID, Field

PYTHON_TYPES = {"string": str, "bytes": bytes, "bool": bool, "uuid": bytes, "float64": float}


def structs_of(kind: type[Struct]) -> Iterator[type[Struct]]:
    yield kind
    for _, field, _ in annotated_fields(kind):
        if not isinstance(field.kind, str):
            yield from structs_of(field.kind)


ALL_MESSAGES = [kind for api in APIS.values() for kind in (api.request, api.response)]
ALL_STRUCTS = {struct: None for kind in ALL_MESSAGES for struct in structs_of(kind)}


def test_the_checked_in_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    generate(tmp_path)
    written = {path.name: path.read_text() for path in tmp_path.glob("*.py")}
    checked_in = {path.name: path.read_text() for path in OUTPUT.glob("*.py")}
    assert checked_in.pop("__init__.py") == ""
    assert written == checked_in


def test_no_two_structs_have_the_same_name() -> None:
    counted = Counter(struct.__name__ for struct in ALL_STRUCTS)
    assert [name for name, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("struct", ALL_STRUCTS, ids=lambda struct: struct.__name__)
def test_python_types_agree_with_the_wire(struct: type[Struct]) -> None:
    hints = get_type_hints(struct, include_extras=True)
    for name, field, default in annotated_fields(struct):
        assert get_origin(hints[name]) is Annotated
        assert get_args(hints[name])[0] == expected_type(field, struct), name
        if not field.array and default is not None:
            assert isinstance(default, element_type(field)), name


def element_type(field: Field) -> Any:
    if not isinstance(field.kind, str):
        return field.kind
    return PYTHON_TYPES.get(field.kind, bytes if field.kind == "records" else int)


def expected_type(field: Field, struct: type[Struct]) -> Any:
    if field.kind == "records":
        records = get_type_hints(struct)["records"]
        assert memoryview in get_args(records)
        return records
    hint: Any = element_type(field)
    if field.array:
        hint = tuple.__class_getitem__((hint, ...))
    return hint | None if field.nullable_from is not None else hint


# kafka-python carries Kafka's JSON files: a second path to the same facts.
DEFINED = [kind for kind in ALL_MESSAGES if kind.__name__ in definitions()]


def test_only_what_a_client_has_no_use_for_is_missing_in_the_second_oracle() -> None:
    missing = {kind.__name__ for kind in ALL_MESSAGES} - {kind.__name__ for kind in DEFINED}
    assert {name.removesuffix("Request").removesuffix("Response") for name in missing} == {
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "UnregisterBroker",
    }


@pytest.mark.parametrize("kind", DEFINED, ids=lambda kind: kind.__name__)
def test_every_version_has_the_fields_that_kafka_defines(kind: type[Struct]) -> None:
    definition = definitions()[kind.__name__]
    shared = {item["name"]: item["fields"] for item in definition.get("commonStructs", [])}
    versions = kind.versions  # type: ignore[attr-defined] # - a whole message has them
    for version in range(versions.first, versions.end):
        layout = message_layout(kind, version)
        assert layout is not None
        assert layout.flexible == within(definition["flexibleVersions"], version)
        compare(layout, kind, definition["fields"], shared)


def compare(
    layout: MessageLayout,
    struct: type[Struct],
    defined: list[dict[str, Any]],
    shared: dict[str, list[dict[str, Any]]],
) -> None:
    present = [item for item in defined if within(item["versions"], layout.version)]
    ours = layout.of(struct)
    plain = [item for item in present if not within(item.get("taggedVersions", "none"), 99)]
    assert [field.name for field in ours.plain] == [snake(item["name"]) for item in plain]
    fields = {field.name: field for field in (*ours.plain, *ours.tagged)}
    assert set(fields) == {snake(item["name"]) for item in present}
    for item in present:
        field = fields[snake(item["name"])]
        kind = item["type"].removeprefix("[]")
        assert field.array == item["type"].startswith("[]")
        assert field.tag == item.get("tag")
        assert field.nullable == within(item.get("nullableVersions", "none"), layout.version)
        if field.struct is None:
            assert kind == field.primitive or FORMATS[kind] == field.format
            check_default(field, item, kind)
        else:
            compare(layout, field.struct, item.get("fields") or shared[kind], shared)


FORMATS = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
FORMATS |= {"float64": "d"}


def check_default(field: FieldLayout, item: dict[str, Any], kind: str) -> None:
    if field.array or kind == "records":
        return
    written = str(item.get("default", ""))
    if written == "null":
        assert field.default is None
    elif kind in {"string", "bytes"}:
        assert field.default in (written, written.encode())
    elif kind == "uuid":
        assert field.default == ZERO_UUID
    elif kind == "bool":
        assert field.default is (written == "true")
    else:
        assert field.default == int(written or "0", 0)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def within(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    first, separator, last = versions.removesuffix("+").partition("-")
    if versions.endswith("+"):
        return version >= int(first)
    return int(first) <= version <= int(last if separator else first)
