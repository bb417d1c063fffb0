"""`lakelog config`: check a configuration and show where every value comes from."""

import os
from pathlib import Path
from typing import Final

import click

from lakelog.cli.conversation import json_option
from lakelog.cli.output import show, show_rows
from lakelog.config import keys
from lakelog.config.load import load
from lakelog.config.options import Options

SECRET_WORDS: Final = ("secret", "password", "token", "key_id", "access_key", "sas", "credential")
HIDDEN: Final = "********"

file_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="LAKELOG_CONFIG",
    show_envvar=True,
    help="A TOML file.",
)


@click.group()
def config() -> None:
    """Check and show the configuration."""


@config.command()
@file_option
def check(file: Path | None) -> None:
    """Say everything that is wrong with a configuration, at once."""
    _loaded(file)
    show("The configuration is right.")


@config.command(name="show")
@file_option
@json_option
def show_command(file: Path | None, as_json: bool) -> None:
    """List every key with its value and where the value comes from."""
    options = _loaded(file)
    rows: list[dict[str, object]] = []
    for key in keys.known().values():
        value = getattr(getattr(options, key.section), key.field)
        if key.is_table:
            rows += [_row(options, f"{key.name}.{entry}", value[entry]) for entry in sorted(value)]
        else:
            rows.append(_row(options, key.name, value))
    show_rows(("key", "value", "source"), rows, as_json=as_json)


def _row(options: Options, name: str, value: object) -> dict[str, object]:
    secret = any(word in name.lower() for word in SECRET_WORDS)
    shown = HIDDEN if secret else "" if value is None else str(value)
    return {"key": name, "value": shown, "source": options.sources.get(name, "default")}


def _loaded(file: Path | None) -> Options:
    environment = os.environ  # noqa: TID251 - the command line hands it to the configuration
    return load(file, environment, {})
