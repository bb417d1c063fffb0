"""From what users wrote to options: file first, then environment, then flags. All errors at once.

- A file is TOML with our sections; Kafka's names may stand in it as well (`num.partitions = 3`).
- `LAKELOG_SECTION__KEY` in the environment sets `section.key`.
- A flag, or `--set section.key=value`, wins over both.
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from lakelog.config import keys
from lakelog.config.keys import Raw, convert
from lakelog.config.options import Options
from lakelog.model.failures import Refused

ENVIRONMENT_PREFIX: Final = "LAKELOG_"
NOT_KEYS: Final = frozenset({"LAKELOG_CONFIG", "LAKELOG_BOOTSTRAP_SERVER"})
"""Variables of ours that are no keys: the command line reads them."""


class BadConfiguration(Refused):
    """Everything that is wrong with a configuration, each with its source and a remedy."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(
            f"the configuration has {count}:\n" + "\n".join(f"  - {each}" for each in problems)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """A value as it was written, and where."""

    name: str
    raw: Raw
    source: str


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Raw]) -> Options:
    """Read the options; raises BadConfiguration with everything that is wrong."""
    problems: list[str] = []
    settings = [
        *_from_file(file, problems),
        *_from_environment(environment),
        *(Setting(name, raw, "flag") for name, raw in flags.items()),
    ]
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for setting in settings:
        _accept(setting, values, sources, problems)
    options = _assemble(values, sources, problems)
    if problems or options is None:
        raise BadConfiguration(problems)
    return options


def _accept(
    setting: Setting, values: dict[str, object], sources: dict[str, str], problems: list[str]
) -> None:
    """Note a setting's value, or what is wrong with it."""
    found = keys.find(setting.name)
    if found is None:
        hint = keys.suggestion(setting.name, [*keys.known(), *keys.KAFKA_NAMES])
        problems.append(f"{setting.name} ({setting.source}) is not a key{hint}")
        return
    key, entry = found
    try:
        if entry:
            table = values.setdefault(key.name, {})
            assert isinstance(table, dict)
            table[entry] = convert(setting.raw, str, key=setting.name)
        else:
            values[key.name] = convert(setting.raw, key.kind, key=key.name)
    except ValueError as reason:
        problems.append(f"{setting.name} ({setting.source}) {reason}")
        return
    sources[f"{key.name}.{entry}" if entry else key.name] = setting.source


def _assemble(
    values: Mapping[str, object], sources: dict[str, str], problems: list[str]
) -> Options | None:
    """Make the options classes; what one of them refuses is one more problem."""
    made: dict[str, Any] = {}
    for section, kind in keys.sections().items():
        given = {
            name.partition(".")[2]: value
            for name, value in values.items()
            if name.partition(".")[0] == section
        }
        try:
            made[section] = kind(**given)
        except ValueError as reason:
            where = ", ".join(
                f"{name} from {sources[name]}"
                for name in sorted(sources)
                if name.partition(".")[0] == section
            )
            problems.append(f"[{section}] {reason} ({where})")
    return None if problems else Options(**made, sources=sources)


def _from_file(file: Path | None, problems: list[str]) -> list[Setting]:
    if file is None:
        return []
    try:
        with file.open("rb") as opened:
            tree = tomllib.load(opened)
    except OSError as reason:
        problems.append(f"{file} cannot be read: {reason.strerror}")
        return []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        problems.append(f"{file} is not TOML: {reason}")
        return []
    return [Setting(name, raw, str(file)) for name, raw in flat(tree)]


def flat(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Raw]]:
    """The leaves of nested tables by their dotted names."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", cast("Raw", value)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_KEYS:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        yield Setting(name, text, f"environment {variable}")
