"""All scripts: importing this module fills the table."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from tests.golden.groups.recording import FOLDER
from tests.golden.groups.script import SCRIPTS, Script

MODULES = (
    *("classic_joins", "classic_rebalances", "classic_static", "offset_commits"),
    *("administration", "consumer_joins", "consumer_reconciliation"),
    *("consumer_offsets", "consumer_static", "conversions", "expiries", "earlier"),
)

for name in MODULES:
    import_module(f"tests.golden.groups.{name}")


def of(profile: str, names: Iterable[str] | None = None) -> list[Script]:
    """The scripts of a profile, all or those that are named, in the order of their names."""
    wanted = set(SCRIPTS if names is None else names)
    unknown = wanted - set(SCRIPTS)
    assert not unknown, f"no such scripts: {sorted(unknown)}"
    chosen = [one for one in SCRIPTS.values() if one.profile == profile and one.name in wanted]
    return sorted(chosen, key=lambda one: one.name)


def recording_path(profile: str) -> Path:
    """The file that holds the recordings of a profile."""
    return FOLDER / f"{profile}.jsonl"
