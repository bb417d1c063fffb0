"""Every key and object that is stored is on the pages of formats, and nothing else is."""

import inspect
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.docs.pages import DOCS, ROOT
from tests.lake.running import running_broker

from lakelog.meta import keys
from lakelog.objects.local_clock import FILE
from lakelog.objects.local_files import INCOMING
from lakelog.objects.port import is_key

PAGES = sorted(DOCS.glob("formats*.md"))
KEYS = re.compile(r"`(/lakelog/v1/[^`…]+)`")
OBJECTS = re.compile(r"^\| `([a-z][^`]*/[^`]+)`(?:, `[^`]+`)* \|", re.MULTILINE)

OWN = re.compile(r"`(~[a-z]+)`")
"""What a directory keeps for itself beside the objects."""

SHOWN_ONLY = {"streams"}
"""`lakelog admin index` names entries like keys, and no store has them."""


def written(pattern: re.Pattern[str]) -> set[str]:
    return {found for page in PAGES for found in pattern.findall(page.read_text())}


def shape(key: str) -> re.Pattern[str]:
    """What a key of the pages stands for: a word in capitals is any segment, or part of one."""
    parts = re.split(r"([A-Z]+(?:-[A-Z]+)*)", key)
    return re.compile(
        "".join("[^/]+" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    )


def unknown(found: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    shapes = [shape(one) for one in sorted(written(pattern))]
    return [key for key in sorted(found) if not any(one.fullmatch(key) for one in shapes)]


def made_keys() -> set[str]:
    """A key of every sort that `meta/keys.py` makes, but those that others begin with."""
    made = {
        value
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, str) and value.startswith(f"{keys.ROOT}/")
    }
    for name, function in inspect.getmembers(keys, inspect.isfunction):
        if function.__module__ == keys.__name__ and not name.startswith("_"):
            wanted = inspect.signature(function).parameters.values()
            made.add(function(*(7 if one.annotation is int else "x" for one in wanted)))
    return {
        key for key in made if not any(other.startswith(key) and other != key for other in made)
    }


def named_in_code() -> set[str]:
    """The first segment below the root of every key that any module makes."""
    found: set[str] = set()
    for path in sorted((ROOT / "src" / "lakelog").rglob("*.py")):
        text = path.read_text()
        if "meta.keys import ROOT" in text or path.name == "keys.py":
            found |= set(re.findall(r"\{ROOT\}/([a-z-]+)", text))
        found |= set(re.findall(r"/lakelog/v1/([a-z-]+)", text))
    return found - SHOWN_ONLY


def test_every_key_that_is_made_is_on_a_page() -> None:
    assert len(made_keys()) > 10
    assert unknown(made_keys(), KEYS) == []


def test_the_pages_name_the_keys_of_the_code_and_no_others() -> None:
    assert {key.split("/")[3] for key in written(KEYS)} == named_in_code()


def test_the_pages_name_the_sorts_of_objects_of_the_code_and_no_others() -> None:
    sources = [path.read_text() for path in sorted((ROOT / "src" / "lakelog").rglob("*.py"))]
    sorts = {found for text in sources for found in re.findall(r'"([a-z]+)/v1\b', text)}
    assert {key.partition("/")[0] for key in written(OBJECTS)} == sorts | {"tables", "probe"}


def test_what_a_directory_keeps_beside_objects_is_on_a_page() -> None:
    assert written(OWN) == {FILE, INCOMING}


def exercise(folder: Path) -> None:
    """A topic, a table, a segment, a group's configs, and what they leave behind."""
    with running_broker(folder) as broker:
        broker.create("orders", 1, lakelog_table_freshness_ms="0")
        broker.create("rows", 1, lakelog_format="kfs", lakelog_table_freshness_ms="0")
        for topic in ("orders", "rows"):
            broker.produce(topic, [b"a", b"b"])
        where = {"bootstrap.servers": str(broker.running.address)}
        entry = ConfigEntry(
            "consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET
        )
        own = ConfigResource(ResourceType.GROUP, "readers", incremental_configs=[entry])
        admin = AdminClient(where)
        for done in admin.incremental_alter_configs([own]).values():
            done.result(30)
        broker.compact()


def test_what_a_cluster_has_stored_is_on_the_pages(tmp_path: Path) -> None:
    exercise(tmp_path)
    below = tmp_path / "objects"
    objects = {path.relative_to(below).as_posix() for path in below.rglob("*") if path.is_file()}
    own = {key for key in objects if not is_key(key)}
    assert {key.partition("/")[0] for key in own} <= written(OWN)
    objects -= own
    sorts = {key.partition("/")[0] for key in objects}
    assert sorts >= {"wal", "compaction", "tables"}
    assert unknown(objects, OBJECTS) == []
    with sqlite3.connect(tmp_path / "metadata.db") as database:
        stored = {key for (key,) in database.execute("SELECT key FROM keys")}
        logs = {name for (name,) in database.execute("SELECT name FROM logs")}
    assert len(stored) > 8
    assert unknown(stored | logs, KEYS) == []
