"""The `lakelog` command. Subcommands are imported when they are asked for: a start must be quick.

A user's mistake and a failure of the world end with one message that says what to do and an exit
code; a traceback is for bugs only. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from lakelog import __version__
from lakelog.model.failures import Failure

COMMANDS: Final = {
    "up": ("lakelog.cli.serve:up", "Start a broker on this machine, ready to use."),
    "serve": ("lakelog.cli.serve:serve", "Run a broker."),
    "demo": ("lakelog.cli.demo:demo", "Show the whole story in a minute, and check it."),
    "topics": ("lakelog.cli.topics:topics", "Create, list, describe, alter and delete topics."),
    "records": ("lakelog.cli.records:records", "Produce and consume records."),
    "groups": ("lakelog.cli.groups:groups", "List, describe, delete and move consumer groups."),
    "discover": ("lakelog.cli.discover:discover", "Join a group of nodes and watch who is there."),
    "sql": ("lakelog.cli.sql:sql", "Query topics in SQL, up to the newest record."),
    "tables": ("lakelog.cli.tables:tables", "List and describe the Iceberg tables of topics."),
    "pipeline": ("lakelog.cli.pipeline:pipeline", "Turn the log into tables, with Spark."),
    "admin": ("lakelog.cli.admin:admin", "Look inside a running broker."),
    "config": ("lakelog.cli.admin:config", "Check and show the configuration."),
    "api-versions": ("lakelog.cli.admin:api_versions", "List the Kafka APIs and versions."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which a newcomer needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may have been meant."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lakelog")
def cli() -> None:
    """A Kafka-compatible log whose only home is object storage.

    Begin with `lakelog up`, then in another terminal:

    \b
      echo hello | lakelog records produce greetings
      lakelog records consume greetings --offset :end
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        code = cli.main(args=list(arguments), prog_name="lakelog", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except Failure as failure:
        click.echo(f"Error: {failure}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # Who read our output has seen enough, as `head` does. Nothing more can be written to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command of this process."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
