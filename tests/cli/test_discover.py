"""`lakelog discover`: how it shows a group, and that it joins, watches and leaves one."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console
from rich.live import Live
from tests.cli.conftest import Command

from lakelog.cli.discover import LiveTable, NodeView, heading, ids_text, json_of, lines_of
from lakelog.discovery import (
    KafkaDiscovery,
    KafkaDiscoveryConfig,
    NodeInfo,
    NodeMetadata,
    NodeState,
)
from lakelog.discovery.node import NodeId
from lakelog.testing.broker import EmbeddedBroker

WAIT_S_MAX = 60.0


def node(name: str, *, owned: tuple[int, ...] = (), **more: object) -> NodeInfo:
    metadata = NodeMetadata(cores=2, owned_partitions=owned, version="0.1.0", **more)  # type: ignore[arg-type]  # of a test
    return NodeInfo(NodeId(name), "10.0.0.1:9100", "10.0.0.1:9200", metadata, NodeState.ACTIVE)


VIEW = NodeView(
    node_id="a",
    state="active",
    generation=3,
    leader="b",
    partitions=(0, 1, 2),
    nodes=(
        node("a", owned=(0, 1, 2), failure_domain="rack-1", tags={"role": "ingest"}),
        NodeInfo(NodeId("consumer-7"), is_foreign=True, metadata=NodeMetadata(version="")),
    ),
)


def test_the_table_says_who_is_there_and_who_this_is() -> None:
    assert lines_of(VIEW).splitlines() == [
        "node a is active, generation 3, 2 nodes, led by b",
        "NODE        STATE    CORES  DOMAIN  PARTITIONS  ADDRESS        VERSION",
        "a (this)    active   2      rack-1  0-2         10.0.0.1:9100  0.1.0",
        "consumer-7  foreign  1      -       -           -              -",
    ]


def test_before_the_first_generation_there_is_no_leader() -> None:
    joining = NodeView("a", "joining", -1, "", (), ())
    assert heading(joining) == "node a is joining, 0 nodes"


def test_a_line_of_json_holds_everything() -> None:
    line = json_of(VIEW)
    assert "\n" not in line
    found = json.loads(line)
    assert {name: found[name] for name in ("node", "state", "generation", "leader")} == {
        "node": "a",
        "state": "active",
        "generation": 3,
        "leader": "b",
    }
    assert found["partitions"] == [0, 1, 2]
    first, second = found["nodes"]
    assert first["tags"] == {"role": "ingest"}
    assert first["partitions"] == [0, 1, 2]
    assert first["raft_address"] == "10.0.0.1:9200"
    assert (second["is_foreign"], second["failure_domain"]) == (True, None)


def test_a_terminal_keeps_one_table_up_to_date() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=100, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        screen = LiveTable(live)
        screen.show(NodeView("a", "joining", -1, "", (), ()))
        screen.show(VIEW)
    last = drawn.getvalue().rpartition("generation 3")[2]
    assert "a (this)" in last
    assert "consumer-7" in last


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ((), "-"),
        ((4,), "4"),
        ((0, 1, 2), "0-2"),
        ((0, 2, 3, 9), "0,2-3,9"),
        (tuple(range(0, 40, 2)), "0,2,4,6,8,10,12,14,… (20)"),
    ],
)
def test_ids_are_shown_as_ranges(ids: tuple[int, ...], text: str) -> None:
    assert ids_text(ids) == text


@pytest.fixture(scope="module")
def other(broker: EmbeddedBroker) -> Iterator[KafkaDiscovery]:
    """A node that is there already."""
    broker.create_topic("watched", partitions=4)
    config = KafkaDiscoveryConfig(
        node_id="other",
        bootstrap_servers=broker.bootstrap,
        group_id="watched",
        topics=("watched",),
        heartbeat_interval=0.1,
    )
    node = KafkaDiscovery(config)
    node.start()
    yield node
    node.stop()


def await_members(node: KafkaDiscovery, count: int) -> None:
    """Wait until a node sees so many members."""
    watch = node.members()
    while len(watch.value) != count:
        assert watch.next_change(WAIT_S_MAX) is not None, watch.value


def test_it_joins_prints_every_change_and_leaves(
    command: Command, broker: EmbeddedBroker, other: KafkaDiscovery
) -> None:
    ran = command(
        *("discover", "-b", broker.bootstrap, "-g", "watched", "-t", "watched"),
        *("--node-id", "me", "--cores", "3", "--json", "--for", "2"),
    )
    assert ran.code == 0, ran.err
    views = [json.loads(line) for line in ran.out.splitlines()]
    assert views[-1]["state"] == "active"
    assert [each["node"] for each in views[-1]["nodes"]] == ["me", "other"]
    assert len(views[-1]["partitions"]) == 3
    assert all(before != after for before, after in itertools.pairwise(views))
    await_members(other, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_has_it_leave_in_good_order(
    broker: EmbeddedBroker, other: KafkaDiscovery, number: signal.Signals
) -> None:
    # Whoever runs the tests in the background has Ctrl-C ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "lakelog.cli.main", "discover", "-b", broker.bootstrap),
            *("-g", "watched", "-t", "watched", "--node-id", f"by-signal-{number}"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert any(line.startswith("NODE") for line in process.stdout)
            await_members(other, 2)
            os.kill(process.pid, number)
            process.communicate(timeout=WAIT_S_MAX)
            assert process.returncode == 0
            await_members(other, 1)
        finally:
            process.kill()


def test_nobody_there_is_one_clear_error(command: Command) -> None:
    ran = command(*("discover", "-b", "127.0.0.1:1", "-g", "g", "-t", "t"), *("--timeout", "0.5"))
    assert ran.code == 1
    assert "127.0.0.1:1" in ran.err
    assert "Traceback" not in ran.err


def test_a_topic_that_is_not_there_is_named(command: Command, broker: EmbeddedBroker) -> None:
    ran = command("discover", "-b", broker.bootstrap, "-g", "g", "-t", "no-such-topic")
    assert ran.code == 1
    assert "no-such-topic" in ran.err


def test_a_wrong_node_id_is_refused_before_anything_is_asked(command: Command) -> None:
    ran = command("discover", "-g", "g", "-t", "t", "--node-id", "not legal!")
    assert ran.code == 1
    assert "not legal!" in ran.err
