"""`lakelog groups list`, `describe` and `delete` against a broker."""

import json
import time
from typing import Any

import pytest
from tests.cli.conftest import Command
from tests.cli.group_joining import (
    commit,
    delete_records,
    join_classic,
    join_consumer,
    leave_classic,
    leave_consumer,
)

from lakelog.kafka_client.admin import TopicPartition
from lakelog.testing.broker import EmbeddedBroker

WAITED_S = 1000


@pytest.fixture
def ask(command: Command, broker: EmbeddedBroker) -> Command:
    """Run a command against the broker."""

    def runner(*arguments: str, stdin: bytes = b"") -> Any:
        return command(*arguments, "-b", broker.bootstrap, stdin=stdin)

    return runner


def filled(ask: Command, broker: EmbeddedBroker, topic: str, *counts: int) -> None:
    """A topic with so many records in each partition, each a second younger than the last."""
    broker.create_topic(topic, partitions=len(counts))
    oldest_ms = int(time.time() * 1000) - WAITED_S * 1000
    for partition, count in enumerate(counts):
        lines = "".join(
            json.dumps({"value": str(n), "timestamp": oldest_ms + n * 1000}) + "\n"
            for n in range(count)
        )
        options = ("--json", "-q", "-p", str(partition))
        assert ask("records", "produce", topic, *options, stdin=lines.encode()).code == 0


def committed(ask: Command, group: str, *places: str) -> None:
    """A group without members that has committed: `orders:0=3`."""
    for place in places:
        scope, _, offset = place.partition("=")
        ran = ask("groups", "seek", group, "--topic", scope, "--to", offset, "--execute")
        assert ran.code == 0, ran.err


def described(ask: Command, group: str) -> dict[str, Any]:
    ran = ask("groups", "describe", group, "--json")
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)
    assert isinstance(found, dict)
    return found


def listed(ask: Command, *options: str) -> dict[str, Any]:
    rows = json.loads(ask("groups", "list", "--json", *options).out)
    assert len(rows) == len({row["group"] for row in rows})
    return {row["group"]: row for row in rows}


def test_a_classic_group_is_described_with_its_lag_and_its_members(
    ask: Command, broker: EmbeddedBroker
) -> None:
    filled(ask, broker, "classic-topic", 10, 5, 5)
    committed(ask, "classic", "classic-topic:0=4", "classic-topic:1=5")
    member = join_classic(
        broker.bootstrap, "classic", client_id="zone_id=a,app=x", assigned={"classic-topic": 3}
    )
    found = described(ask, "classic")
    told = ("state", "type", "protocol", "assignor", "epoch")
    assert [found[name] for name in told] == ["Stable", "classic", "consumer", "range", None]
    behind, done, never = found["partitions"]
    assert (behind["committed"], behind["end"], behind["lag"]) == (4, 10, 6)
    assert WAITED_S - 4 <= behind["seconds"] < WAITED_S + 60
    assert (done["committed"], done["lag"], done["seconds"]) == (5, 0, 0)
    assert (never["committed"], never["end"]) == (None, 5)
    assert (never["lag"], never["seconds"]) == (None, None)
    assert found["members"] == [
        {
            "member": member,
            "instance": None,
            "client": "zone_id=a,app=x",
            "host": "127.0.0.1",
            "zone": "a",
            "epoch": None,
            "assigned": {"classic-topic": [0, 1, 2]},
            "target": None,
        }
    ]
    lines = ask("groups", "describe", "classic").out.splitlines()
    assert ["classic-topic", "2", "-", "5", "-", "-"] in [line.split() for line in lines]
    assert lines[-1].endswith("classic-topic:0-2")
    leave_classic(broker.bootstrap, "classic", member)


def test_a_consumer_group_is_described_with_its_epoch_and_racks(
    ask: Command, broker: EmbeddedBroker
) -> None:
    filled(ask, broker, "modern-topic", 3, 0)
    member = join_consumer(
        broker.bootstrap, "modern", client_id="zone_id=a", rack="b", topic="modern-topic"
    )
    found = described(ask, "modern")
    told = ("state", "type", "protocol", "assignor")
    assert [found[name] for name in told] == ["Stable", "consumer", "consumer", "uniform"]
    assert found["epoch"] >= 1
    assert [(row["partition"], row["committed"]) for row in found["partitions"]] == [
        (0, None),
        (1, None),
    ]
    (shown,) = found["members"]
    assert (shown["member"], shown["zone"]) == (member, "b")
    assert shown["assigned"] == shown["target"] == {"modern-topic": [0, 1]}
    assert shown["epoch"] == found["epoch"]
    leave_consumer(broker.bootstrap, "modern", member)


def test_groups_are_listed_and_chosen_by_state_and_type(
    ask: Command, broker: EmbeddedBroker
) -> None:
    filled(ask, broker, "listed-topic", 1)
    committed(ask, "listed-empty", "listed-topic=0")
    member = join_consumer(
        broker.bootstrap, "listed-live", client_id="c", rack="b", topic="listed-topic"
    )
    everything = listed(ask)
    told = ("state", "type", "protocol")
    assert [everything["listed-live"][name] for name in told] == ["Stable", "consumer", "consumer"]
    assert [everything["listed-empty"][name] for name in told] == ["Empty", "classic", None]
    assert all(row["address"].startswith("127.0.0.1:") for row in everything.values())
    live = listed(ask, "--state", "stable,reconciling", "--type", "consumer")
    assert "listed-live" in live
    assert {(row["state"], row["type"]) for row in live.values()} == {("Stable", "consumer")}
    assert "listed-live" not in listed(ask, "--state", "empty")
    assert "listed-live" not in listed(ask, "--type", "classic")
    leave_consumer(broker.bootstrap, "listed-live", member)


def test_positions_outside_the_log_are_told_as_they_are(
    ask: Command, broker: EmbeddedBroker
) -> None:
    filled(ask, broker, "odd-topic", 8, 8)
    committed(ask, "odd", "odd-topic:0=2")
    delete_records(broker.bootstrap, TopicPartition("odd-topic", 0), 5)
    commit(broker.bootstrap, "odd", TopicPartition("odd-topic", 1), 99)
    lost, ahead = described(ask, "odd")["partitions"]
    assert (lost["committed"], lost["lag"], lost["note"]) == (2, 3, "below the log start, 5")
    assert WAITED_S - 5 <= lost["seconds"] < WAITED_S + 60
    assert (ahead["committed"], ahead["end"], ahead["lag"]) == (99, 8, 0)
    assert (ahead["seconds"], ahead["note"]) == (0, "beyond the end")
    assert "below the log start, 5" in ask("groups", "describe", "odd").out


def test_a_deleted_topic_does_not_disturb_the_rest(ask: Command, broker: EmbeddedBroker) -> None:
    filled(ask, broker, "rest-topic", 8)
    filled(ask, broker, "rest-gone", 1)
    committed(ask, "rest", "rest-topic=8", "rest-gone=1")
    assert ask("topics", "delete", "rest-gone", "--yes").code == 0
    rows = described(ask, "rest")["partitions"]
    assert [(row["topic"], row["lag"]) for row in rows if row["end"] is not None] == [
        ("rest-topic", 0)
    ]


def test_deleting_takes_groups_without_members_only(ask: Command, broker: EmbeddedBroker) -> None:
    filled(ask, broker, "deleted-topic", 1)
    committed(ask, "deleted-empty", "deleted-topic=1")
    member = join_consumer(
        broker.bootstrap, "deleted-live", client_id="c", rack="b", topic="deleted-topic"
    )
    ran = ask("groups", "delete", "deleted-empty", "deleted-live", "deleted-never", "--yes")
    assert ran.code == 1
    status = dict(line.split(maxsplit=1) for line in ran.out.splitlines()[1:])
    assert status["deleted-empty"] == "OK"
    assert status["deleted-live"] == "NON_EMPTY_GROUP: it has live members; stop them first"
    assert status["deleted-never"] == "GROUP_ID_NOT_FOUND: there is no such group"
    assert {"deleted-live"} == {name for name in listed(ask) if name.startswith("deleted")}
    leave_consumer(broker.bootstrap, "deleted-live", member)
    assert ask("groups", "delete", "deleted-live", "--yes").code == 0


def test_deleting_a_group_asks_first(ask: Command, broker: EmbeddedBroker) -> None:
    filled(ask, broker, "asked-topic", 1)
    committed(ask, "asked", "asked-topic=1")
    assert ask("groups", "delete", "asked", stdin=b"n\n").code == 130
    assert "asked" in listed(ask)


def test_a_group_that_is_not_there_does_not_hide_the_others(
    ask: Command, broker: EmbeddedBroker
) -> None:
    filled(ask, broker, "partly-topic", 1)
    committed(ask, "partly", "partly-topic=1")
    ran = ask("groups", "describe", "partly-not", "partly", "--json")
    assert ran.code == 1
    assert "partly-not: GROUP_ID_NOT_FOUND: there is no such group" in ran.err
    assert [group["group"] for group in json.loads(ran.out)] == ["partly"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--state", "sleepy"), "'sleepy' is no state; there are PreparingRebalance"),
        (("list", "--type", "classic,x"), "'classic,x' is no type; there are classic, consumer"),
        (("list", "--type", ","), "',' is no type"),
        (("describe",), "Missing argument 'GROUP...'"),
    ],
)
def test_a_wrong_choice_is_told(ask: Command, arguments: tuple[str, ...], said: str) -> None:
    ran = ask("groups", *arguments)
    assert ran.code == 2
    assert said in ran.err
