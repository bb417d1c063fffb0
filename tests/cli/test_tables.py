"""`lakelog tables` against a running broker with a table that lets go of snapshots."""

import json
from collections.abc import Iterator

import pytest
from tests.cli.conftest import Command
from tests.lake.running import Broker, running_broker
from tests.tables.stage import FRESH, grow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("data")) as made:
        made.create("t", 2, **FRESH)
        grow(made, "t", 5)
        yield made


def at(server: Broker) -> tuple[str, str]:
    return "--http", server.server.removeprefix("http://")


def test_snapshots_are_listed_with_those_that_expired(command: Command, server: Broker) -> None:
    ran = command("tables", "snapshots", "t", *at(server))
    assert ran.code == 0, ran.err
    head, *lines = [line.split() for line in ran.out.splitlines()]
    assert head[:4] == ["SNAPSHOT_ID", "MADE", "LIVE", "OPERATION"]
    assert [line[2:] for line in lines] == [
        *[["no", "append", "-", "-", "-", "-"]] * 3,
        ["yes", "append", "3", "-", "12", "4"],
        ["yes", "append", "3", "-", "15", "5"],
    ]
    ran = command("tables", "snapshots", "t", "-n", "3", "--json", *at(server))
    rows = json.loads(ran.out)
    assert [str(row["snapshot_id"]) for row in rows] == [line[0] for line in lines[2:]]
    assert [row["live"] for row in rows] == [False, True, True]
    assert (
        len(json.loads(command("tables", "snapshots", "t", "-n", "0", "--json", *at(server)).out))
        == 5
    )


def test_a_snapshot_leads_to_offsets_and_back(command: Command, server: Broker) -> None:
    rows = json.loads(command("tables", "snapshots", "t", "--json", *at(server)).out)
    for number, row in enumerate(rows, 1):
        named = str(row["snapshot_id"])
        ran = command("tables", "offsets", "t", named, "--json", *at(server))
        assert json.loads(ran.out) == {"t": {"0": number * 3, "1": -2}}
        given = json.dumps({"0": number * 3 + 2})
        ran = command("tables", "at", "t", "--offsets", given, "--json", *at(server))
        found = json.loads(ran.out)
        assert found == {
            "snapshot_id": row["snapshot_id"],
            "made": row["made"],
            "operation": "append",
            "live": number > 3,
            "offsets": {"0": number * 3, "1": -2},
        }
    ran = command("tables", "offsets", "t", str(rows[0]["snapshot_id"]), *at(server))
    assert [line.split() for line in ran.out.splitlines()] == [
        ["PARTITION", "OFFSET"],
        ["0", "3"],
        ["1", "-2"],
    ]
    for time in ("-0s", rows[-1]["made"].replace("Z", "+00:00")):
        ran = command("tables", "at", "t", "--time", time, *at(server))
        assert f"snapshot id: {rows[-1]['snapshot_id']}" in ran.out, ran


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("offsets", "t", "1"), "has no snapshot 1", 1),
        (("offsets", "absent", "1"), "no topic 'absent'", 1),
        (("snapshots", "absent"), "no topic 'absent'", 1),
        (("at", "t"), "either --time or --offsets", 2),
        (("at", "t", "--time", "soon"), "'soon'", 2),
        (("at", "t", "--time", "2024-01-01:2024-01-02"), "2024-01-01", 2),
        (("at", "t", "--time", "1999-01-01"), "the oldest that is known", 1),
        (("at", "t", "--offsets", '{"0": "x"}'), "is not offsets by partition", 2),
        (("at", "t", "--offsets", "[1]"), "is not offsets by partition", 2),
        (("at", "t", "--offsets", '{"0": 1}'), "the oldest that is known", 1),
    ],
)
def test_what_cannot_be_answered_is_said(
    command: Command, server: Broker, arguments: tuple[str, ...], said: str, code: int
) -> None:
    ran = command("tables", *arguments, *at(server))
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
