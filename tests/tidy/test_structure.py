"""Files that are worth opening, and names that a search finds: the structure of the package.

Each list of exceptions may only shrink: a name on it that is no exception any more has to go.
"""

from collections import defaultdict
from statistics import median

from tests.tidy.modules import importers, modules

FILES_MAX = 450
MEDIAN_LINES_MIN = 170
FLOOR_LINES = 80
"""Below this a module is a fragment of another one."""

ALONE_LINES_MIN = 150
"""A module with one importer, next door, is a part of that one unless it is at least this long."""

ALONE_MAX = 75

SMALL = frozenset(
    {
        "lakelog.broker.api",  # imports every handler, so nothing else may stand in it
        "lakelog.cli.http_port",  # imported late, on a thread: its libraries take a while
        "lakelog.config.stores",  # loads little, for those who only open a store
        "lakelog.domain.options",
        "lakelog.log.values",
        "lakelog.model.failures",
        "lakelog.model.ids",
        "lakelog.spark.source",  # loads nothing before a reader or a writer is asked for
        "lakelog.testing.plugin",  # loaded by every run of pytest
    }
)
ALONE = frozenset(
    {
        "lakelog.cli.http_port",
        "lakelog.client.core",
        "lakelog.server.listener",
        "lakelog.spark.topic_poller",
        "lakelog.wire.compile",
    }
)


def is_port(name: str) -> bool:
    """Whether a module is what others implement: it is as small as it can be."""
    return name.rpartition(".")[2] in ("port", "ports")


def test_a_public_class_name_stands_once() -> None:
    places = defaultdict(list)
    for module in modules().values():
        for name in module.classes:
            if not name.startswith("_") and not module.is_generated:
                places[name].append(module.name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_module_is_worth_opening() -> None:
    small = {
        module.name
        for module in modules().values()
        if module.is_ordinary and module.line_count < FLOOR_LINES and not is_port(module.name)
    }
    assert small == SMALL


def test_a_module_with_one_importer_next_door_stands_by_itself() -> None:
    users = importers()
    alone = {
        module.name: module.line_count
        for module in modules().values()
        if module.is_ordinary
        and [name.rpartition(".")[0] for name in users[module.name]] == [module.package]
    }
    assert {name for name, lines in alone.items() if lines < ALONE_LINES_MIN} == ALONE
    assert len(alone) <= ALONE_MAX


def test_there_are_not_too_many_files_and_they_are_not_too_small() -> None:
    assert len(modules()) <= FILES_MAX
    ordinary = [module.line_count for module in modules().values() if module.is_ordinary]
    assert median(ordinary) >= MEDIAN_LINES_MIN
