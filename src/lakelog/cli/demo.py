"""`lakelog demo`: the whole story in one go, checked: start, create, produce, consume, stop."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from lakelog.cli.compose import node_options, open_world
from lakelog.cli.consuming import Reading, consume
from lakelog.cli.conversation import check
from lakelog.cli.offsets import End, OffsetRange, Start
from lakelog.cli.output import show, show_json
from lakelog.cli.producing import Sender, Sending, chunks
from lakelog.cli.serve import loop_factory
from lakelog.clock import SystemClock
from lakelog.config.load import load
from lakelog.model.failures import Corrupt
from lakelog.records.build import Record
from lakelog.records.codecs import Codec
from lakelog.server.client import Client
from lakelog.server.node import Node
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TOPIC: Final = "demo"
PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """What the demo measured."""

    records: int
    size_bytes: int
    start_s: float
    produce_s: float
    consume_s: float


@click.command()
@click.option(
    "--records",
    "count",
    type=click.IntRange(1, 5_000_000),
    default=100_000,
    show_default=True,
    help="How many records to send.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def demo(count: int, as_json: bool) -> None:
    """Show the whole story in a minute, and check it.

    Starts a broker on a free port with an empty directory, creates a topic, produces, consumes,
    compares every record, prints the figures and cleans up.
    """
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-demo-") as directory,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        figures = runner.run(_story(Path(directory), count, quiet=as_json))
        objects = sum(1 for _ in Path(directory).rglob("*.wo"))
    if as_json:
        show_json({**asdict(figures), "objects": objects})
    else:
        show(_told(figures, objects))


async def _story(directory: Path, count: int, *, quiet: bool) -> Figures:
    def say(text: str) -> None:
        if not quiet:
            show(text)

    began_s = time.perf_counter()
    options = load(None, {}, {"broker.listen": "127.0.0.1:0", "broker.data": str(directory)})
    async with open_world(options) as world:
        node = Node(world, node_options(options))
        try:
            await node.start()
            start_s = time.perf_counter() - began_s
            say(f"A broker serves at {node.address} after {start_s:.2f} s, data in {directory}")
            async with await Client.connect(node.address) as client:
                figures = await _exercise(client, count, start_s, say)
            await node.drain()
        finally:
            await node.close()
    return figures


async def _exercise(
    client: Client, count: int, start_s: float, say: Callable[[str], None]
) -> Figures:
    topic = CreatableTopic(TOPIC, PARTITIONS, -1)
    created = await client.call(CreateTopicsRequest((topic,)), CreateTopicsResponse)
    check(created.topics[0].error_code, created.topics[0].error_message, about=TOPIC)
    say(f"Topic {TOPIC!r} with {PARTITIONS} partitions is there")

    sent = dict(enumerate(_records(count)))
    began_s = time.perf_counter()
    sender = await Sender.open(client, Sending(TOPIC, codec=Codec.LZ4))
    where: dict[tuple[int, int], int] = {}
    number = 0
    for chunk in chunks((record, None) for record in sent.values()):
        for produced in await sender.send(chunk):
            where[produced.partition, produced.offset] = number
            number += 1
    produce_s = time.perf_counter() - began_s
    say(f"{count:,} records were produced in {produce_s:.2f} s")

    began_s = time.perf_counter()
    reading = Reading(TOPIC, OffsetRange(Start(), End()))
    seen = 0
    async for found in consume(client, reading):
        for each in found:
            expected = sent[where.pop((each.partition, each.offset))]
            if each.record != expected:
                raise Corrupt(f"offset {each.offset} of partition {each.partition} differs")
            seen += 1
    consume_s = time.perf_counter() - began_s
    if where or seen != count:
        raise Corrupt(f"{count} records were produced, {seen} consumed")
    say(f"{seen:,} records were consumed in {consume_s:.2f} s, every one as it was sent")
    size_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in sent.values())
    return Figures(count, size_bytes, start_s, produce_s, consume_s)


def _records(count: int) -> Iterator[Record]:
    now_ms = SystemClock().now_ms()
    for number in range(count):
        headers = ((b"source", b"demo"), (b"note", None)) if number % 10 == 0 else ()
        value = None if number % 1000 == 999 else f'{{"order": {number}, "amount": 42}}'.encode()
        yield Record(f"customer-{number % 97}".encode(), value, now_ms + number // 100, headers)


def _told(figures: Figures, objects: int) -> str:
    megabytes = figures.size_bytes / 1e6
    return (
        f"\n{figures.records:,} records ({megabytes:.1f} MB) went through {objects} objects:"
        f" {figures.records / figures.produce_s:,.0f} records/s in,"
        f" {figures.records / figures.consume_s:,.0f} records/s out (one Python client).\n"
        "All is well. Next: `lakelog up`"
    )
