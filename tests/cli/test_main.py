"""The command as a whole: its help, its mistakes, its configuration."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Command

from lakelog.cli.command import table
from lakelog.cli.main import COMMANDS
from lakelog.cli.serve import banner, box, open_to_all

HELP = Path(__file__).parent / "help.txt"
PAGES = (
    (),
    *((name,) for name in COMMANDS),
    *(("topics", name) for name in ("create", "list", "describe", "delete", "alter")),
    *(("records", name) for name in ("produce", "consume")),
    *(("groups", name) for name in ("list", "describe", "delete", "seek")),
    *(("tables", name) for name in ("list", "describe", "snapshots", "offsets", "at")),
    ("admin", "index"),
    ("admin", "clock"),
    ("config", "check"),
    ("config", "show"),
)


def test_the_help_is_what_help_txt_says(command: Command) -> None:
    """After a change that is meant, write the new text to help.txt and read it once more."""
    pages = []
    for page in PAGES:
        ran = command(*page, "--help")
        assert ran.code == 0, page
        pages.append(f"$ lakelog {' '.join((*page, '--help'))}\n{ran.out}")
    assert "\n".join(pages) == HELP.read_text()


def test_a_command_that_is_almost_right_is_named(command: Command) -> None:
    ran = command("topic")
    assert ran.code == 2
    assert "Did you mean 'topics'?" in ran.err


def test_a_version_is_told(command: Command) -> None:
    assert command("--version").out.startswith("lakelog, version ")


def test_a_configuration_is_shown_with_its_sources_and_without_its_secrets(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "l.toml").write_text(
        'num.partitions = 3\n[objects]\nurl = "s3://b"\noptions.secret_access_key = "x"\n'
    )
    monkeypatch.setenv("LAKELOG_LOG__LINGER_MS", "20")
    ran = command("config", "show", "--config", "l.toml", "--json")
    rows = {row["key"]: (row["value"], row["source"]) for row in json.loads(ran.out)}
    assert rows["topics.num_partitions"] == ("3", "l.toml")
    assert rows["log.linger_ms"] == ("20", "environment LAKELOG_LOG__LINGER_MS")
    assert rows["broker.id"] == ("1", "default")
    assert rows["objects.options.secret_access_key"] == ("********", "l.toml")
    assert command("config", "check", "--config", "l.toml").out == "The configuration is right.\n"


def test_a_wrong_configuration_says_everything_at_once(command: Command, tmp_path: Path) -> None:
    (tmp_path / "l.toml").write_text("[brokr]\nid = 1\n[broker]\nid = -1\n")
    ran = command("config", "check", "--config", "l.toml")
    assert ran.code == 1
    assert "did you mean broker.id?" in ran.err


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_a_demo_runs_checks_and_tells(command: Command) -> None:
    ran = command("demo", "--records", "3000", "--json")
    assert ran.code == 0, ran.err
    figures = json.loads(ran.out)
    assert figures["records"] == figures["table"]["rows"] == 3000
    assert figures["table"]["files"] == 3


def test_a_demo_without_java_says_what_to_install_and_is_well(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    ran = command("demo", "--records", "300")
    assert ran.code == 0, ran.err
    assert "Java 17" in ran.out
    assert "All is well" in ran.out


def test_tables_and_boxes_line_up() -> None:
    assert table(["A", "LONG"], [["xyz", 1]]) == "A    LONG\nxyz  1"
    assert box(["a", "bcd"]) == "╭─────╮\n│ a   │\n│ bcd │\n╰─────╯"


def test_the_banner_names_every_address_and_lines_to_paste() -> None:
    text = banner(
        version="1",
        kafka="127.0.0.1:9999",
        http="127.0.0.1:8080",
        metadata="sqlite:m",
        objects="file:o",
        took_s=0.25,
    )
    for needed in ("127.0.0.1:9999", "http://127.0.0.1:8080/readyz", "sqlite:m", "file:o", "kcat"):
        assert needed in text
    assert "-b 127.0.0.1:9999" in text
    assert "0.0.0.0:9092 can be reached" in open_to_all("0.0.0.0:9092")
