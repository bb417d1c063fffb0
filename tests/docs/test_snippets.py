"""The examples of README and docs: they run where they can, and their commands exist.

Marks behind the opening backticks: `python test` runs as a program, `python pytest` as a test file,
`sh test` in bash, each with a broker of its own in the place of 127.0.0.1:9092; `python table` runs
with a catalog that has the table it names, `python read` with a broker that has the topic. In every
`sh` block the commands of `lakelog` and `make` are looked up, with their flags.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.docs.pages import ROOT, Fence, all_fences
from tests.http.duck import EXTENSIONS, extension_file
from tests.http.iceberg_kit import served
from tests.lake.running import running_broker

from lakelog.cli.main import cli
from lakelog.kafka_client.settings import ClientSettings, librdkafka_names, parse_properties
from lakelog.testing.broker import EmbeddedBroker

ADDRESS = "127.0.0.1:9092"
CATALOG = "http://127.0.0.1:8080/iceberg"
DOWNLOADS = "INSTALL iceberg; LOAD iceberg"
"""What fetches DuckDB's extensions; the tests have them from packages."""
TIMEOUT_S = 60.0
FOREIGN = ("kcat",)
"""Programs that a machine may lack; an example that needs one is skipped there."""


def place(fence: Fence) -> str:
    return fence.place


def run(command: list[str], broker: EmbeddedBroker, directory: Path) -> str:
    environment = {
        **os.environ,
        "LAKELOG_BOOTSTRAP_SERVER": broker.bootstrap,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("fence", all_fences("python", "test"), ids=place)
def test_a_python_example_runs_and_prints_what_it_wrote(
    fence: Fence, lakelog_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    program = fence.text.replace(ADDRESS, lakelog_broker.bootstrap)
    assert "hello" in run([sys.executable, "-c", program], lakelog_broker, tmp_path)


@pytest.mark.parametrize("fence", all_fences("python", "pytest"), ids=place)
def test_a_pytest_example_passes(
    fence: Fence, lakelog_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    (tmp_path / "test_example.py").write_text(fence.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"]
    assert "1 passed" in run(command, lakelog_broker, tmp_path)


@pytest.mark.parametrize("fence", all_fences("sh", "test"), ids=place)
def test_a_shell_example_runs(fence: Fence, lakelog_broker: EmbeddedBroker, tmp_path: Path) -> None:
    programs = {words[0] for words in commands(fence)}
    for program in sorted(programs & set(FOREIGN)):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    script = fence.text.replace(ADDRESS, lakelog_broker.bootstrap)
    assert run(["bash", "-euo", "pipefail", "-c", script], lakelog_broker, tmp_path)


@pytest.mark.parametrize("fence", all_fences("python", "table"), ids=place)
def test_an_example_with_a_table_runs(fence: Fence, tmp_path: Path) -> None:
    loads = "; ".join(f"LOAD '{extension_file(name)}'" for name in EXTENSIONS)
    with served(tmp_path) as catalog:
        program = fence.text.replace(CATALOG, catalog.uri).replace(DOWNLOADS, loads)
        program = program.replace("greetings", "orders")
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert re.match(r"[1-9][0-9]* rows", done.stdout), done.stdout


@pytest.mark.parametrize("fence", all_fences("python", "read"), ids=place)
def test_an_example_that_reads_objects_runs(fence: Fence, tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker:
        broker.create("greetings")
        broker.produce("greetings", [b"hello"])
        program = fence.text.replace("http://127.0.0.1:8080", broker.server)
        program = program.replace(ADDRESS, str(broker.running.address))
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 rows ['key', 'value', "), done.stdout


@pytest.mark.parametrize("fence", all_fences("properties"), ids=place)
def test_a_properties_example_is_what_the_client_understands(fence: Fence) -> None:
    config, ignored = librdkafka_names(parse_properties(fence.text))
    assert ClientSettings.parse(config).ignored == ignored == ()


def commands(fence: Fence) -> Iterator[list[str]]:
    """The commands of a shell block as words, each part of a pipe by itself."""
    for line in fence.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "|" in words:
            end = words.index("|")
            yield words[:end]
            words = words[end + 1 :]
        if words:
            yield words


@pytest.mark.parametrize("fence", all_fences("sh"), ids=place)
def test_the_commands_of_a_shell_example_exist_with_their_flags(fence: Fence) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, *arguments in commands(fence):
        if program == "make":
            assert set(arguments) <= targets, f"{fence.place}: make {arguments}"
        elif program == "lakelog":
            parse(arguments)


def parse(arguments: list[str]) -> None:
    """Let click read the arguments, without running anything."""
    command: click.Command = cli
    # With the group's own settings: click keeps what it makes of them with each command.
    context = click.Context(cli, info_name="lakelog", **cli.context_settings)
    while isinstance(command, click.Group):
        name, *arguments = arguments
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(context.info_name, arguments, parent=context.parent)


@pytest.mark.parametrize(
    "wrong", [["records", "consume", "t", "--no-such"], ["topics", "create"], ["records", "up"]]
)
def test_a_command_that_does_not_exist_is_noticed(wrong: list[str]) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse(wrong)


def test_the_readme_has_an_example_for_every_client_it_names() -> None:
    kinds = [fence.words for fence in all_fences() if fence.place.startswith("README.md")]
    assert kinds.count(("python", "test")) == 3
    assert kinds.count(("python", "pytest")) == 1
    assert kinds.count(("sh", "test")) == 4
