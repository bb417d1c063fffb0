"""`lakelog topics` and what else is asked of a broker."""

import json

from tests.cli.conftest import Command

from lakelog.testing.broker import EmbeddedBroker


def test_the_life_of_a_topic(command: Command, broker: EmbeddedBroker) -> None:
    where = ("-b", broker.bootstrap)
    made = command("topics", "create", "one", "two", "-p", "3", "-c", "retention.ms=1000", *where)
    assert made.out == "TOPIC  STATUS\none    OK\ntwo    OK\n"
    again = command("topics", "create", "one", *where)
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.out
    assert command("topics", "create", "one", "--if-not-exists", *where).code == 0

    listed = json.loads(command("topics", "list", "--json", *where).out)
    assert [(row["topic"], row["partitions"]) for row in listed] == [("one", 3), ("two", 3)]
    assert all(len(row["id"]) == 22 for row in listed)

    altered = command("topics", "alter", "one", "-c", "max.message.bytes=2000", "-p", "5", *where)
    assert (altered.code, altered.out) == (0, "one altered\n")
    found = json.loads(command("topics", "describe", "one", "--json", *where).out)
    assert [row["partition"] for row in found["partitions"]] == [0, 1, 2, 3, 4]
    configs = {row["config"]: (row["value"], row["source"]) for row in found["configs"]}
    assert configs["retention.ms"] == ("1000", "topic")
    assert configs["max.message.bytes"] == ("2000", "topic")
    assert configs["retention.bytes"][1] == "default"
    assert command("topics", "alter", "one", "-u", "retention.ms", *where).code == 0
    shown = command("topics", "describe", "one", *where).out
    assert "PARTITION  LEADER  START  END" in shown
    assert "retention.ms" in shown

    gone = command("topics", "delete", "one", "two", "--yes", *where)
    assert gone.out == "TOPIC  STATUS\none    OK\ntwo    OK\n"
    assert json.loads(command("topics", "list", "--json", *where).out) == []


def test_deleting_asks_first(command: Command, broker: EmbeddedBroker) -> None:
    broker.create_topic("kept")
    ran = command("topics", "delete", "kept", "-b", broker.bootstrap, stdin=b"n\n")
    assert ran.code == 130
    assert "kept" in command("topics", "list", "-b", broker.bootstrap).out


def test_mistakes_are_told(command: Command, broker: EmbeddedBroker) -> None:
    where = ("-b", broker.bootstrap)
    for arguments, said in (
        (("describe", "nope"), "nope: UNKNOWN_TOPIC_OR_PARTITION"),
        (("alter", "nope"), "Say what to change"),
        (("alter", "nope", "-p", "3"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("create", "x", "-c", "novalue"), "no KEY=VALUE"),
    ):
        ran = command("topics", *arguments, *where)
        assert ran.code != 0
        assert said in ran.err
    ran = command("topics", "create", "x", "-c", "retentoin.ms=1", *where)
    assert ran.code == 1
    assert "INVALID_CONFIG" in ran.out


def test_what_is_advertised_is_what_the_program_says(
    command: Command, broker: EmbeddedBroker
) -> None:
    own = json.loads(command("api-versions", "--json").out)
    asked = json.loads(command("api-versions", "--json", "-b", broker.bootstrap).out)
    assert own == asked
    assert {"key": 0, "api": "Produce", "from": 0, "to": 13} in own
