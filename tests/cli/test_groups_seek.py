"""`lakelog groups seek` against a broker: nothing moves unless it is told to, and never too far."""

import json
from typing import Any

import pytest
from tests.cli.conftest import Command
from tests.cli.group_joining import (
    delete_records,
    join_classic,
    join_consumer,
    leave_classic,
    leave_consumer,
)

from lakelog.kafka_client.admin import TopicPartition
from lakelog.testing.broker import EmbeddedBroker

OLDEST_MS = 1_700_000_000_000


@pytest.fixture
def seek(command: Command, broker: EmbeddedBroker) -> Command:
    """Seek, and return what was printed."""

    def runner(*arguments: str, stdin: bytes = b"") -> Any:
        del stdin
        return command("groups", "seek", *arguments, "-b", broker.bootstrap)

    return runner


def filled(command: Command, broker: EmbeddedBroker, topic: str, *counts: int) -> None:
    """A topic with so many records in each partition, a second apart, all kept though old."""
    broker.create_topic(topic, partitions=len(counts), configs={"retention.ms": "-1"})
    for partition, count in enumerate(counts):
        lines = "".join(
            json.dumps({"value": str(n), "timestamp": OLDEST_MS + n * 1000}) + "\n"
            for n in range(count)
        )
        options = ("--json", "-q", "-p", str(partition), "-b", broker.bootstrap)
        assert command("records", "produce", topic, *options, stdin=lines.encode()).code == 0


def moves(seek: Command, *arguments: str) -> list[tuple[object, ...]]:
    """Partition, from, to and change of each move, in JSON."""
    ran = seek(*arguments, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["executed"] == ("--execute" in arguments)
    names = ("partition", "from", "to", "change")
    return [tuple(row[name] for name in names) for row in found["partitions"]]


def test_a_dry_run_shows_the_moves_and_makes_none(
    command: Command, seek: Command, broker: EmbeddedBroker
) -> None:
    filled(command, broker, "dry-topic", 5, 5)
    assert seek("dry", "--to", "3", "-t", "dry-topic", "--execute").code == 0
    ran = seek("dry", "--to", "latest", "-t", "dry-topic")
    assert ran.code == 0
    assert ran.out == (
        "Group dry to the end\n\n"
        "TOPIC      PARTITION  FROM  TO  CHANGE\n"
        "dry-topic  0          3     5   2\n"
        "dry-topic  1          3     5   2\n"
    )
    assert "Dry run: nothing was committed." in ran.err
    assert moves(seek, "dry", "--by", "0", "--all-topics") == [(0, 3, 3, 0), (1, 3, 3, 0)]


def test_what_is_executed_is_read_back(
    command: Command, seek: Command, broker: EmbeddedBroker
) -> None:
    filled(command, broker, "done-topic", 5, 5)
    ran = seek("done", "--to", "-2", "-t", "done-topic:1", "--execute")
    assert ran.code == 0
    assert ran.out.endswith(
        "\nCommitted now:\n\nTOPIC       PARTITION  COMMITTED\ndone-topic  1          3\n"
    )
    assert moves(seek, "done", "--by", "0", "--all-topics") == [(1, 3, 3, 0)]
    assert moves(seek, "done", "--by", "-1", "--all-topics", "--execute") == [(1, 3, 2, -1)]
    assert moves(seek, "done", "--by", "0", "--all-topics") == [(1, 2, 2, 0)]


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        ("earliest", 2),
        ("latest", 9),
        ("5", 5),
        ("+3", 5),
        ("-3", 6),
        (str(OLDEST_MS + 4000), 4),
        (str(OLDEST_MS + 4001), 5),
        ("2023-11-14T22:13:26Z", 6),
        ("-1h", 9),
        ("2023-11-14", 2),
    ],
)
def test_a_target_is_a_word_an_offset_or_a_time(
    command: Command, seek: Command, broker: EmbeddedBroker, target: str, offset: int
) -> None:
    topic = f"target-{target.encode().hex()}"
    filled(command, broker, topic, 9)
    delete_records(broker.bootstrap, TopicPartition(topic, 0), 2)
    assert moves(seek, topic, "--to", target, "-t", topic) == [(0, None, offset, None)]


def test_a_move_ends_at_the_ends_of_the_log_and_says_so(
    command: Command, seek: Command, broker: EmbeddedBroker
) -> None:
    filled(command, broker, "short-topic", 9)
    delete_records(broker.bootstrap, TopicPartition("short-topic", 0), 2)
    scope = ("-t", "short-topic")
    assert "100 is beyond the end" in seek("short", "--to", "100", *scope).out
    assert "1 is below the log start" in seek("short", "--to", "1", *scope).out
    assert moves(seek, "short", "--to", "100", *scope, "--execute") == [(0, None, 9, None)]
    assert moves(seek, "short", "--by", "-100", *scope, "--execute") == [(0, 9, 2, -7)]


def test_a_partition_that_cannot_be_moved_is_named(
    command: Command, seek: Command, broker: EmbeddedBroker
) -> None:
    filled(command, broker, "mixed-topic", 5, 5)
    assert seek("mixed", "--to", "2", "-t", "mixed-topic:0", "--execute").code == 0
    ran = seek("mixed", "--by", "1", "-t", "mixed-topic", "--execute")
    assert ran.code == 1
    assert ran.err == "Error: mixed-topic, partition 1: not moved, never committed\n"
    assert moves(seek, "mixed", "--by", "0", "--all-topics") == [(0, 3, 3, 0)]


def test_a_classic_group_with_a_member_is_not_moved(
    command: Command, seek: Command, broker: EmbeddedBroker
) -> None:
    filled(command, broker, "held-topic", 5)
    member = join_classic(broker.bootstrap, "held", client_id="c", assigned={"held-topic": 1})
    dry = seek("held", "--to", "2", "-t", "held-topic")
    assert dry.code == 0
    assert "--execute would be refused. held: the group has 1 live member." in dry.err
    refused = seek("held", "--to", "2", "-t", "held-topic", "--execute")
    assert refused.code == 1
    assert "Error: held: the group has 1 live member." in refused.err
    leave_classic(broker.bootstrap, "held", member)
    done = moves(seek, "held", "--to", "2", "-t", "held-topic", "--execute")
    assert done == [(0, None, 2, None)]


def test_a_consumer_group_with_a_member_is_not_moved(
    command: Command, seek: Command, broker: EmbeddedBroker
) -> None:
    filled(command, broker, "kept-topic", 5)
    member = join_consumer(broker.bootstrap, "kept", client_id="c", rack="b", topic="kept-topic")
    refused = seek("kept", "--to", "2", "-t", "kept-topic", "--execute")
    assert refused.code == 1
    assert "Error: kept: the group has 1 live member." in refused.err
    leave_consumer(broker.bootstrap, "kept", member)
    done = moves(seek, "kept", "--to", "2", "-t", "kept-topic", "--execute")
    assert done == [(0, None, 2, None)]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--to", "1"), 2, "either --topic or --all-topics"),
        (("--to", "1", "-t", "wrong-topic", "--all-topics"), 2, "either --topic or --all-topics"),
        (("-t", "wrong-topic"), 2, "either --to or --by"),
        (("--to", "1", "--by", "1", "-t", "wrong-topic"), 2, "either --to or --by"),
        (("--to", "soon", "-t", "wrong-topic"), 2, "'soon' is no place to go"),
        (("--to", "1", "-t", "wrong-topic:x"), 2, "'wrong-topic:x' is no topic"),
        (("--to", "1", "-t", "nope"), 1, "nope: UNKNOWN_TOPIC_OR_PARTITION"),
        (("--to", "1", "-t", "wrong-topic:7"), 1, "partition 7: UNKNOWN_TOPIC_OR_PARTITION"),
        (("--to", "1", "--all-topics"), 1, "nothing is committed there"),
        (("--by", "1", "-t", "wrong-topic", "--execute"), 1, "there is nothing to move"),
    ],
)
def test_a_mistake_is_told_and_moves_nothing(
    command: Command,
    seek: Command,
    broker: EmbeddedBroker,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    options = ("create", "wrong-topic", "--if-not-exists", "-b", broker.bootstrap)
    assert command("topics", *options).code == 0
    ran = seek("wrong", *arguments)
    assert ran.code == code
    assert said in ran.err
    assert "Traceback" not in ran.err
