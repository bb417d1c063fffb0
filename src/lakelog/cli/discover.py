"""`lakelog discover`: join a group of nodes and print who is there, as it changes.

It is a member like any other: it gets its share of the partitions while it runs, and gives it back
when it ends, by Ctrl-C, by SIGTERM or after `--for`. On a terminal one table is kept up to date;
elsewhere every change prints the table anew, or a line of JSON.
"""

import contextlib
import json
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

import click

from lakelog.cli.command import ClientConfig, json_option, kafka_options, show, table
from lakelog.clock import SystemClock

if TYPE_CHECKING:
    from rich.live import Live

    from lakelog.discovery import KafkaDiscovery, NodeInfo

HEAD: Final = ("node", "state", "cores", "domain", "partitions", "address", "version")
IDS_SHOWN_MAX: Final = 8
START_S: Final = 60.0
LOOK_S: Final = 0.2
"""So often it is looked whether a signal came."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a node knows at one moment."""

    node_id: str
    state: str
    generation: int
    leader: str
    partitions: tuple[int, ...]
    nodes: tuple["NodeInfo", ...]


class Screen(Protocol):
    """Who shows a view."""

    def show(self, view: NodeView) -> None:
        """Show it in place of the one before."""


@click.command()
@kafka_options()
@click.option("--group", "-g", required=True, help="The group that the nodes share.")
@click.option(
    *("--topic", "-t", "topics"), multiple=True, required=True, help="Share its partitions."
)
@click.option("--node-id", metavar="ID", help="Who this is; the default is made of host and pid.")
@click.option("--cores", type=click.IntRange(1), default=1, show_default=True, help="Its weight.")
@click.option("--failure-domain", metavar="NAME", help="Where it stands: a rack or a zone.")
@click.option(
    *("--for", "duration_s"),
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Leave after that long.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=START_S,
    show_default=True,
    metavar="SECONDS",
    help="Give up if it is no member by then.",
)
@json_option
def discover(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    kafka: ClientConfig,
    group: str,
    topics: tuple[str, ...],
    node_id: str | None,
    cores: int,
    failure_domain: str | None,
    duration_s: float | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Join a group of nodes and print who is there, live.

    \b
      lakelog discover --group engine --topic orders --node-id a --cores 4
      lakelog discover --group engine --topic orders --json --for 10
    """
    from lakelog.discovery import (  # noqa: PLC0415 - a start must be quick
        KafkaDiscovery,
        KafkaDiscoveryConfig,
        NodeMetadata,
    )

    node = KafkaDiscovery(
        KafkaDiscoveryConfig(
            node_id=node_id or f"{platform.node()}-{os.getpid()}",
            bootstrap_servers=str(kafka["bootstrap.servers"]),
            group_id=group,
            topics=topics,
            metadata=NodeMetadata(cores=cores, failure_domain=failure_domain),
            client=kafka,
        )
    )
    with _screen(as_json=as_json) as screen, _heard_signals() as signals:
        end_s = None if duration_s is None else SystemClock().monotonic_s() + duration_s
        _run(node, screen, signals, end_s=end_s, timeout_s=timeout_s)


def _run(
    node: "KafkaDiscovery",
    screen: Screen,
    signals: "Signals",
    *,
    end_s: float | None,
    timeout_s: float,
) -> None:
    """Show every change until the time is up, a signal comes, or the node's membership ends."""
    changed = threading.Event()
    failures: list[Exception] = []

    def heard(_: object) -> None:
        changed.set()

    def failed(failure: Exception) -> None:
        failures.append(failure)
        changed.set()

    for listen in (node.on_change, node.on_assigned, node.on_revoked):
        listen(heard)
    node.on_failure(failed)
    clock = SystemClock()
    shown: NodeView | None = None
    try:
        node.start(timeout_s)
        signals.is_running = True
        while not signals.is_asked:
            view = view_of(node)
            if view != shown:
                screen.show(view)
                shown = view
            node.check()
            for failure in _taken(failures):
                click.echo(f"Problem: {failure}", err=True)
            left_s = LOOK_S if end_s is None else end_s - clock.monotonic_s()
            if left_s <= 0:
                return
            changed.wait(min(left_s, LOOK_S))
            changed.clear()
    except KeyboardInterrupt:
        return  # the way to end it
    finally:
        node.stop()


def view_of(node: "KafkaDiscovery") -> NodeView:
    """What a node knows now."""
    return NodeView(
        node_id=node.node_id,
        state=node.state.value,
        generation=node.generation,
        leader=node.leader or "",
        partitions=node.assigned_partitions(),
        nodes=node.members().value,
    )


def lines_of(view: NodeView) -> str:
    """The view for people: a heading and a table."""
    return f"{heading(view)}\n{table([name.upper() for name in HEAD], rows_of(view))}"


def heading(view: NodeView) -> str:
    """The group in one line."""
    count = len(view.nodes)
    nodes = f"{count} node{'' if count == 1 else 's'}"
    if view.generation < 0:
        return f"node {view.node_id} is {view.state}, {nodes}"
    return (
        f"node {view.node_id} is {view.state}, generation {view.generation}, {nodes},"
        f" led by {view.leader or '-'}"
    )


def rows_of(view: NodeView) -> list[tuple[str, ...]]:
    """One row for each node."""
    return [
        (
            f"{node.node_id} (this)" if node.node_id == view.node_id else str(node.node_id),
            "foreign" if node.is_foreign else node.state.value,
            str(node.metadata.cores),
            node.metadata.failure_domain or "-",
            ids_text(node.metadata.owned_partitions),
            node.rpc_address or "-",
            node.metadata.version or "-",
        )
        for node in view.nodes
    ]


def ids_text(ids: Sequence[int]) -> str:
    """Ascending ids as ranges, and how many there are if not all ranges are shown."""
    ranges: list[list[int]] = []
    for number in ids:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    if len(texts) > IDS_SHOWN_MAX:
        return f"{','.join(texts[:IDS_SHOWN_MAX])},… ({len(ids)})"
    return ",".join(texts) or "-"


def json_of(view: NodeView) -> str:
    """The view for programs, in one line."""
    return json.dumps(
        {
            "node": view.node_id,
            "state": view.state,
            "generation": view.generation,
            "leader": view.leader or None,
            "partitions": view.partitions,
            "nodes": [
                {
                    "node": node.node_id,
                    "state": node.state.value,
                    "is_foreign": node.is_foreign,
                    "rpc_address": node.rpc_address,
                    "raft_address": node.raft_address,
                    "cores": node.metadata.cores,
                    "memory_bytes": node.metadata.memory_bytes,
                    "failure_domain": node.metadata.failure_domain,
                    "tags": dict(node.metadata.tags),
                    "partitions": node.metadata.owned_partitions,
                    "version": node.metadata.version,
                    "custom": dict(node.metadata.custom),
                }
                for node in view.nodes
            ],
        },
        ensure_ascii=False,
    )


class Printed:
    """Every view is printed after the one before."""

    def __init__(self, render: Callable[[NodeView], str]) -> None:
        self._render = render

    def show(self, view: NodeView) -> None:
        """Print it."""
        show(self._render(view))


class LiveTable:
    """One table on a terminal, kept up to date."""

    def __init__(self, live: "Live") -> None:
        self._live = live

    def show(self, view: NodeView) -> None:
        """Draw it in place of the one before."""
        from rich.table import Table  # noqa: PLC0415 - only for a terminal

        drawn = Table(title=heading(view), title_justify="left")
        for name in HEAD:
            drawn.add_column(name)
        for row in rows_of(view):
            drawn.add_row(*row)
        self._live.update(drawn, refresh=True)


@contextlib.contextmanager
def _screen(*, as_json: bool) -> Iterator[Screen]:
    if as_json or not sys.stdout.isatty():
        yield Printed(json_of if as_json else lines_of)
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - only for a terminal
        from rich.live import Live  # noqa: PLC0415 - as above
    except ImportError:
        yield Printed(lines_of)
        return
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        yield LiveTable(live)


@dataclass(slots=True)
class Signals:
    """What signals ask for.

    While the node runs they are noted and no more: an exception out of a signal can strike between
    the taking of a lock and the block that gives it back, and then leaving would wait for ever.
    """

    is_running: bool = False
    is_asked: bool = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Note the first one while the node runs; before that, and a second time, end at once."""
        if self.is_asked or not self.is_running:
            raise KeyboardInterrupt
        self.is_asked = True


@contextlib.contextmanager
def _heard_signals() -> Iterator[Signals]:
    """SIGTERM ends it as Ctrl-C does; signals belong to the main thread."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # it stays as whoever began it in the background wanted
            signal.signal(number, signals.hear)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _taken(failures: list[Exception]) -> list[Exception]:
    taken = failures.copy()
    del failures[: len(taken)]
    return taken
