"""Write `lakelog.wire.messages`: one file per Kafka API, from the field tables that kio carries.

Run `python -m scripts.generate_messages` after a new version of kio or of the API list below; the
files are checked in, and a test compares them with what this script writes.

What kio's tables lose is put back here: the `_ms` of durations and timestamps (they stay integers),
ids as 16 bytes, error codes as integers. Versions above Kafka 4.3's stable range are left out.
"""

import dataclasses
import datetime
import importlib
import re
import subprocess
import sys
import types
import typing
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import kio
import kio.schema

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "src" / "lakelog" / "wire" / "messages"
TABLES = Path(kio.schema.__file__).parent
KINDS = ("request", "response")

# Kafka 4.3's stable ranges, half-open, for the APIs that a broker of ours answers.
APIS: dict[str, range] = {
    "produce": range(3, 14),
    "fetch": range(4, 19),
    "list_offsets": range(1, 12),
    "metadata": range(14),
    "offset_commit": range(2, 11),
    "offset_fetch": range(1, 11),
    "find_coordinator": range(7),
    "join_group": range(10),
    "heartbeat": range(5),
    "leave_group": range(6),
    "sync_group": range(6),
    "describe_groups": range(7),
    "list_groups": range(6),
    "sasl_handshake": range(2),
    "api_versions": range(5),
    "create_topics": range(2, 8),
    "delete_topics": range(1, 7),
    "delete_records": range(3),
    "init_producer_id": range(6),
    "offset_for_leader_epoch": range(2, 5),
    "describe_acls": range(1, 4),
    "create_acls": range(1, 4),
    "delete_acls": range(1, 4),
    "describe_configs": range(1, 5),
    "alter_configs": range(3),
    "alter_replica_log_dirs": range(1, 3),
    "describe_log_dirs": range(1, 6),
    "sasl_authenticate": range(3),
    "create_partitions": range(4),
    "delete_groups": range(3),
    "elect_leaders": range(3),
    "incremental_alter_configs": range(2),
    "alter_partition_reassignments": range(2),
    "list_partition_reassignments": range(1),
    "offset_delete": range(1),
    "describe_client_quotas": range(2),
    "alter_client_quotas": range(2),
    "describe_user_scram_credentials": range(1),
    "alter_user_scram_credentials": range(1),
    "describe_quorum": range(3),
    "update_features": range(3),
    "describe_cluster": range(3),
    "describe_producers": range(1),
    "unregister_broker": range(1),
    "describe_transactions": range(1),
    "list_transactions": range(3),
    "consumer_group_heartbeat": range(2),
    "consumer_group_describe": range(2),
    "list_config_resources": range(2),
    "describe_topic_partitions": range(1),
}

# Names that other values of ours have already.
TAKEN = frozenset({"Node"})

WRAPPED = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64"}
WRAPPED |= {"datetime_i64": "int64"}
PYTHON_TYPES = {"string": "str", "bytes": "bytes", "bool": "bool", "uuid": "bytes"}
PYTHON_TYPES |= {"float64": "float"}
IMPLICIT_DEFAULTS = {"string": '""', "bytes": 'b""', "bool": "False", "uuid": "ZERO_UUID"}
IMPLICIT_DEFAULTS |= {"float64": "0.0"}


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of one struct in one version."""

    name: str
    kind: str  # a primitive, or the name of a struct
    is_struct: bool
    array: bool
    nullable: bool
    tag: int | None
    default: str  # as source


@dataclass(slots=True)
class MessageTable:
    """Every struct of one request or response, by version; a struct stands behind what it holds."""

    api: str
    kind: str
    key: int
    root: str
    versions: range
    flexible_from: int | None
    structs: dict[str, dict[int, list[FieldRow]]]


def words(api: str) -> str:
    return "".join(part.capitalize() for part in api.split("_"))


def without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        (inner,) = [part for part in typing.get_args(hint) if part is not type(None)]
        return inner, True
    return hint, False


def wire_name(field: dataclasses.Field[Any]) -> str:
    """Kafka's name: kio drops the unit of what it turns into a duration or a time."""
    wrapped = field.metadata.get("kafka_type", "")
    if wrapped.startswith(("timedelta", "datetime")) and not field.name.endswith("_ms"):
        return f"{field.name}_ms"
    return field.name


def default_source(field: dataclasses.Field[Any], row: FieldRow) -> str:
    given = field.default
    if given is dataclasses.MISSING or (given is None and not row.nullable):
        if row.array:
            return "()"
        if row.is_struct:
            return "None" if row.nullable else f"{row.kind}()"
        if field.metadata.get("kafka_type") == "datetime_i64" and given is None:
            return "-1"
        return IMPLICIT_DEFAULTS.get(row.kind, "0")
    if row.is_struct and given is not None and not row.array:
        return f"{row.kind}()"
    if isinstance(given, datetime.timedelta):
        return str(round(given.total_seconds() * 1000))
    if isinstance(given, str):
        return f'"{given}"'
    if isinstance(given, int) and not isinstance(given, bool):
        return str(int(given))
    return repr(given)


def field_row(field: dataclasses.Field[Any], table: "Reader") -> FieldRow:
    hint, nullable = without_none(field.type)
    array = typing.get_origin(hint) is tuple
    element = without_none(typing.get_args(hint)[0])[0] if array else hint
    is_struct = dataclasses.is_dataclass(element)
    if is_struct:
        table.add(element)
    wrapped = str(field.metadata.get("kafka_type"))
    kind = element.__name__ if is_struct else WRAPPED.get(wrapped, wrapped)
    if not array and wrapped in {"uuid", "datetime_i64"}:
        nullable = False  # zero and -1 are values on the wire, not nulls
    row = FieldRow(
        wire_name(field), kind, is_struct, array, nullable, field.metadata.get("tag"), ""
    )
    if kind == "records":
        default = "None" if table.kind == "request" else 'b""'
        return dataclasses.replace(row, default=default)
    return dataclasses.replace(row, default=default_source(field, row))


class Reader:
    """Collects the structs of one message over its versions."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.version = 0
        self.structs: dict[str, dict[int, list[FieldRow]]] = {}

    def add(self, struct: Any) -> None:
        found = self.structs.get(struct.__name__, {})
        if self.version in found:
            return
        rows = [field_row(field, self) for field in dataclasses.fields(struct)]
        self.structs.setdefault(struct.__name__, {})[self.version] = rows

    def nested_first(self, root: str) -> dict[str, dict[int, list[FieldRow]]]:
        """The structs in an order in which each stands behind all that it holds."""
        ordered: dict[str, dict[int, list[FieldRow]]] = {}
        for version in sorted(self.structs[root], reverse=True):
            for row in self.structs[root][version]:
                if row.is_struct:
                    ordered |= self.nested_first(row.kind)
        return ordered | {root: self.structs[root]}


def root_class(module: ModuleType) -> Any:
    found = [
        item
        for item in vars(module).values()
        if dataclasses.is_dataclass(item) and getattr(item, "__module__", "") == module.__name__
    ]
    return found[-1]


def read_table(api: str, kind: str, versions: range) -> MessageTable:
    reader = Reader(kind)
    flexible = []
    root = None
    for version in reversed(versions):
        reader.version = version
        root = root_class(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"))
        reader.add(root)
        if root.__flexible__:
            flexible.append(version)
    assert root is not None
    flexible_from = min(flexible) if flexible else None
    structs = reader.nested_first(root.__name__)
    key = int(root.__api_key__)
    return MessageTable(api, kind, key, root.__name__, versions, flexible_from, structs)


def kafka_struct_names() -> Counter[str]:
    """How many messages use each struct name, over everything Kafka defines."""
    counted: Counter[str] = Counter()
    for kind in KINDS:
        for folder in TABLES.iterdir():
            names = set()
            for path in folder.glob(f"v*/{kind}.py"):
                names |= set(re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE))
            counted.update(names)
    return counted


def joined(front: str, name: str) -> str:
    """`front` + `name`, with words that end the one and begin the other written once."""
    for length in range(min(len(front), len(name)), 0, -1):
        if front.endswith(name[:length]) and name[length : length + 1].isupper():
            return front + name[length:]
    return front + name


def struct_names(tables: list[MessageTable], counted: Counter[str]) -> dict[tuple[str, str], str]:
    """Our name for each (message kind, struct): Kafka's, after the API's where it is not unique."""
    kinds = Counter(name for table in tables for name in table.structs)
    names = {}
    for table in tables:
        for name in table.structs:
            ours = name
            if counted[name] > 1 or name in TAKEN:
                kind = table.kind.capitalize() if kinds[name] > 1 else ""
                ours = joined(words(table.api) + kind, name)
            names[table.kind, name] = ours
    return names


def merged_fields(by_version: dict[int, list[FieldRow]]) -> list[tuple[FieldRow, list[int]]]:
    """The newest row of every field with its versions: the newest shape first, then old fields."""
    found: dict[str, tuple[FieldRow, list[int]]] = {}
    for version in sorted(by_version, reverse=True):
        for row in by_version[version]:
            newest, versions = found.setdefault(row.name, (row, []))
            same = dataclasses.replace(row, nullable=newest.nullable)
            assert same == newest, ("a field changed more than its nullability", row, newest)
            versions.append(version)
    for _, versions in found.values():
        versions.reverse()
        assert versions == list(range(versions[0], versions[-1] + 1)), "a field came back"
    return list(found.values())


def follower(name: str, by_version: dict[int, list[FieldRow]]) -> str | None:
    """The field of the newest shape that stands behind an old field on the wire."""
    newest = {row.name for row in by_version[max(by_version)]}
    for version in sorted(by_version, reverse=True):
        order = [row.name for row in by_version[version]]
        if name in order:
            behind = order[order.index(name) + 1 :]
            return next((other for other in behind if other in newest), None)
    raise AssertionError(name)


def field_source(
    row: FieldRow, versions: list[int], by_version: dict[int, list[FieldRow]], ours: str
) -> str:
    nullable = [
        version
        for version in versions
        for other in by_version[version]
        if other.name == row.name and other.nullable
    ]
    assert nullable == [version for version in versions if nullable and version >= nullable[0]]
    facts = [ours if row.is_struct else f'"{row.kind}"']
    if row.array:
        facts.append("array=True")
    if versions[0] != min(by_version):
        facts.append(f"since={versions[0]}")
    if versions[-1] != max(by_version):
        facts.append(f"until={versions[-1] + 1}")
    if nullable:
        # 0 reads as "always", whatever the first version of the struct is.
        facts.append(f"nullable_from={0 if nullable[0] == versions[0] else nullable[0]}")
    if row.tag is not None:
        facts.append(f"tag={row.tag}")
    if versions[-1] != max(by_version) and (behind := follower(row.name, by_version)):
        facts.append(f'before="{behind}"')
    return f"Field({', '.join(facts)})"


def python_type(row: FieldRow, ours: str, kind: str) -> str:
    if row.kind == "records":
        return "memoryview" if kind == "request" else "Records"
    element = ours if row.is_struct else PYTHON_TYPES.get(row.kind, "int")
    return f"tuple[{element}, ...]" if row.array else element


def struct_source(table: MessageTable, name: str, names: dict[tuple[str, str], str]) -> str:
    by_version = table.structs[name]
    # A message is a tree and cannot hold itself: counting references is enough to free it.
    lines = [f"class {names[table.kind, name]}(Struct, frozen=True, gc=False):"]
    if name == table.root:
        flexible = table.flexible_from
        facts = f"first={table.versions.start}, end={table.versions.stop}"
        facts += "" if flexible is None else f", flexible_from={flexible}"
        lines.append(f"    versions: ClassVar[MessageVersions] = MessageVersions({facts})")
    for row, versions in merged_fields(by_version):
        ours = names[table.kind, row.kind] if row.is_struct else row.kind
        facts = field_source(row, versions, by_version, ours)
        python = python_type(row, ours, table.kind)
        python += " | None" if "nullable_from" in facts else ""
        default = row.default.replace(row.kind, ours) if row.is_struct else row.default
        lines.append(f"    {row.name}: Annotated[{python}, {facts}] = {default}")
    if len(lines) == 1:
        lines.append("    pass")
    return "\n".join(lines)


def module_source(tables: list[MessageTable], counted: Counter[str]) -> str:
    names = struct_names(tables, counted)
    first = tables[0]
    body = "\n\n\n".join(
        struct_source(table, name, names) for table in tables for name in table.structs
    )
    used = ["Field", "MessageVersions"]
    used += [name for name in ("Records", "ZERO_UUID") if re.search(rf"\b{name}\b", body)]
    versions = f"{first.versions.start} to {first.versions.stop - 1}"
    annotated = "Annotated, ClassVar" if "Annotated[" in body else "ClassVar"
    return (
        f'"""{words(first.api)} (API key {first.key}): request and response, versions {versions}.\n'
        f"\nGenerated by scripts/generate_messages.py from the field tables of kio; do not edit.\n"
        f'"""\n\nfrom typing import {annotated}\n\nfrom msgspec import Struct\n\n'
        f"from lakelog.wire.schema import {', '.join(sorted(used))}\n\n\n{body}\n"
    )


def generate(output: Path) -> None:
    """Write every file into `output`, in the house format."""
    counted = kafka_struct_names()
    for api, versions in APIS.items():
        tables = [read_table(api, kind, versions) for kind in KINDS]
        (output / f"{api}.py").write_text(module_source(tables, counted))
    ruff = [sys.executable, "-m", "ruff"]
    configuration = ["--config", str(ROOT / "pyproject.toml"), "--quiet", str(output)]
    subprocess.run([*ruff, "check", "--select", "I", "--fix", *configuration], check=True)
    subprocess.run([*ruff, "format", *configuration], check=True)


if __name__ == "__main__":
    generate(OUTPUT)
