"""`lakelog sql`: a query over topics, table and tail together, without a broker in between."""

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from lakelog.cli.http_pages import http_option
from lakelog.cli.settings import file_option
from lakelog.cli.sql_output import FORMATS, print_rows
from lakelog.server.options import Address


@click.command()
@click.argument("statement", required=False)
@click.option(
    "--file",
    "-f",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Where the statement is.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print the result.",
)
@click.option("--num", "-n", type=click.IntRange(min=0), help="Print no more rows than this.")
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of Spark's Kafka source, for all topics: failOnDataLoss=false.",
)
@http_option
@file_option
@click.pass_context
def sql(  # noqa: PLR0913 - one parameter for each option of the command
    context: click.Context,
    *,
    statement: str | None,
    source: Path | None,
    form: str,
    num: int | None,
    options: tuple[str, ...],
    http: Address,
    file: Path | None,
) -> None:
    """Run a SQL query over topics, up to the newest record; `-` reads it from standard input.

    Every topic is a table with the columns key, value, topic, partition, "offset", timestamp,
    timestampType and headers. Keys and values are bytes: decode(value) is their text. Write names
    that are no plain words in double quotes.

    \b
      lakelog sql 'SHOW TABLES'
      lakelog sql 'SELECT partition, count(*) FROM greetings GROUP BY ALL'
      lakelog sql 'SELECT decode(value) FROM greetings ORDER BY "offset" DESC LIMIT 5'
      lakelog sql "SELECT decode(value)->>'name' FROM \\"my-topic\\"" --format csv
    """
    from lakelog.lake.sql.sql_query import open_query  # noqa: PLC0415 - a start must be quick

    text = _statement(statement, source)
    # A configuration file leads to brokers by itself; an address that was given wins.
    is_given = context.get_parameter_source("http") is not ParameterSource.DEFAULT
    reader = open_query(
        text,
        server=None if file is not None and not is_given else f"http://{http}",
        config=None if file is None else str(file),
        options=dict(map(_pair, options)),
    )
    with reader:
        print_rows(reader, form, rows_max=num)


def _statement(statement: str | None, source: Path | None) -> str:
    if (statement is None) == (source is None):
        raise click.UsageError("Give one statement: as an argument, as -, or with --file.")
    if source is not None:
        written = source.read_bytes()
    elif statement == "-":
        written = sys.stdin.buffer.read()
    else:
        return str(statement)
    try:
        return written.decode()
    except UnicodeDecodeError as reason:
        raise click.UsageError(f"The statement is no UTF-8 text: {reason}") from None


def _pair(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals:
        raise click.UsageError(f"--option takes NAME=VALUE, not {option!r}.")
    return name, value
