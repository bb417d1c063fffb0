"""`lakelog records`: produce and consume, as JSON that can be read back without loss.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "k", "value": {"base64": "/wA="}, "headers": [["h", "v"], ["h", null]]}

What `consume` prints, one record a line, `produce --json` reads back. Text stands as text where the
bytes are UTF-8, else as `{"base64": …}`; null is null. Headers are pairs in their order, so that a
name may come twice. On the way back only key, value, headers, timestamp and partition count; each
may be missing.
"""

import base64
import binascii
import json
import sys
from collections.abc import Callable, Iterator
from typing import Final

import click

from lakelog.cli import offsets
from lakelog.cli.command import ClientConfig, converse, kafka_options, show
from lakelog.cli.record_clients import (
    BATCH_RECORDS_MAX,
    Consumed,
    Produced,
    Sender,
    Sending,
    TopicRead,
    chunks,
    consume,
)
from lakelog.clock import SystemClock
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.records.build import Record
from lakelog.records.codecs import Codec

NO_TIMESTAMP_MS: Final = -1
FIELDS: Final = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})


class LineError(ValueError):
    """A line is no record; the text says why."""


def render_line(record: Record, *, topic: str, partition: int, offset: int) -> str:
    """One line, without its end."""
    return json.dumps(
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": record.timestamp_ms,
            "key": _shown(record.key),
            "value": _shown(record.value),
            "headers": [[_shown(name), _shown(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def parse_line(line: str) -> tuple[Record, int | None]:
    """The record of a line and its partition, if it names one; raises LineError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as reason:
        raise LineError(f"not JSON: {reason}") from None
    if not isinstance(found, dict):
        raise LineError("not a JSON object")
    unknown = sorted(set(found) - FIELDS)
    if unknown:
        raise LineError(f"no field of a record: {', '.join(unknown)}")
    timestamp_ms = _integer(found.get("timestamp"), "timestamp")
    record = Record(
        _read(found.get("key"), "key"),
        _read(found.get("value"), "value"),
        NO_TIMESTAMP_MS if timestamp_ms is None else timestamp_ms,
        _headers(found.get("headers")),
    )
    return record, _integer(found.get("partition"), "partition")


def _shown(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _read(value: object, name: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise LineError(f"{name}: half a surrogate pair is no text") from None
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as reason:
            raise LineError(f"{name}: not base64: {reason}") from None
    raise LineError(f'{name}: needs a text, null or {{"base64": "…"}}')


def _headers(value: object) -> tuple[tuple[bytes, bytes | None], ...]:
    if value is None:
        return ()
    if isinstance(value, dict):
        value = [[name, each] for name, each in value.items()]
    if not isinstance(value, list):
        raise LineError("headers: needs a list of pairs")
    found = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise LineError("headers: needs a list of pairs")
        name = _read(pair[0], "headers")
        if name is None:
            raise LineError("headers: a name cannot be null")
        found.append((name, _read(pair[1], "headers")))
    return tuple(found)


def _integer(value: object, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 63:
        raise LineError(f"{name}: needs a whole number")
    return value


CODECS: Final = [codec.name.lower() for codec in Codec]


@click.group()
def records() -> None:
    """Produce and consume records."""


@records.command()
@click.argument("topic")
@click.option("--key", "-k", help="The key of every record.")
@click.option("--key-separator", metavar="TEXT", help="A line is KEY, this text, VALUE.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE")
@click.option("--partition", "-p", type=int, help="Default: by key, as Kafka does.")
@click.option("--compression", "-z", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Lines are records as `consume` prints them.")
@click.option("--keep-partitions", is_flag=True, help="With --json: to the partition it names.")
@click.option("--null-value", is_flag=True, help="One record without a value; reads no input.")
@click.option("--quiet", "-q", is_flag=True, help="Do not print where each record went.")
@kafka_options()
def produce(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    topic: str,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    as_json: bool,
    keep_partitions: bool,
    null_value: bool,
    quiet: bool,
    kafka: ClientConfig,
) -> None:
    """Send each line of standard input as a record.

    \b
      echo hello | lakelog records produce greetings
      echo k:v   | lakelog records produce greetings --key-separator :
      lakelog records consume a --offset :end | lakelog records produce b --json
    """
    template = Record(
        key.encode() if key is not None else None,
        None,
        SystemClock().now_ms(),
        tuple(_header(each) for each in headers),
    )
    if null_value:
        lines: Iterator[tuple[Record, int | None]] = iter([(template, None)])
    elif as_json:
        lines = _json_records(keep_partitions=keep_partitions)
    else:
        lines = _text_records(template, key_separator)
    sending = Sending(topic, partition, Codec[compression.upper()])
    # At a terminal each line goes at once; from a file they go in batches.
    records_max = 1 if sys.stdin.isatty() else BATCH_RECORDS_MAX

    async def talk(cluster: KafkaCluster) -> None:
        sender = await Sender.open(cluster, sending)
        for chunk in chunks(lines, records_max=records_max):
            produced = await sender.send(chunk)
            if not quiet:
                show("\n".join(_confirmed(each) for each in produced))

    # A producer's topic is made by asking for it, as by Kafka's own producers.
    converse({**kafka, "allow.auto.create.topics": True}, talk)


@records.command(name="consume")
@click.argument("topic")
@click.option(
    "--offset", "-o", default="start", show_default=True, help=f"From where: {offsets.GRAMMAR}."
)
@click.option("--partition", "-p", "partitions", type=int, multiple=True, help="Default: all.")
@click.option("--num", "-n", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--text", is_flag=True, help="Print just the values.")
@kafka_options()
def consume_command(
    *,
    topic: str,
    offset: str,
    partitions: tuple[int, ...],
    num: int | None,
    text: bool,
    kafka: ClientConfig,
) -> None:
    """Print records, one JSON object a line.

    \b
      lakelog records consume greetings                   # all, then what comes (Ctrl+C)
      lakelog records consume greetings --offset :end     # all there is, then stop
      lakelog records consume greetings --offset @-1h     # since an hour ago
      lakelog records consume greetings --offset -10      # the last ten of each partition
    """
    try:
        wanted = offsets.parse(offset, now_ms=SystemClock().now_ms())
    except offsets.OffsetError as reason:
        raise click.UsageError(str(reason)) from None
    reading = TopicRead(topic, wanted, partitions)

    def as_text(found: Consumed) -> str:
        return (found.record.value or b"").decode("utf-8", "backslashreplace")

    def as_json(found: Consumed) -> str:
        return render_line(
            found.record, topic=topic, partition=found.partition, offset=found.offset
        )

    converse(kafka, lambda cluster: _print(cluster, reading, num, as_text if text else as_json))


async def _print(
    cluster: KafkaCluster, reading: TopicRead, num: int | None, line: Callable[[Consumed], str]
) -> None:
    left = num
    async for found in consume(cluster, reading):
        chosen = found if left is None else found[:left]
        show("\n".join(line(each) for each in chosen))
        if left is not None:
            left -= len(chosen)
            if not left:
                return


def _json_records(*, keep_partitions: bool) -> Iterator[tuple[Record, int | None]]:
    now_ms = SystemClock().now_ms()
    for number, raw in enumerate(sys.stdin.buffer, 1):
        if not raw.strip():
            continue
        try:
            record, partition = parse_line(raw.decode())
        except (LineError, UnicodeDecodeError) as reason:
            raise click.ClickException(f"line {number}: {reason}") from None
        if record.timestamp_ms == NO_TIMESTAMP_MS:
            record = record._replace(timestamp_ms=now_ms)
        yield record, partition if keep_partitions else None


def _text_records(template: Record, separator: str | None) -> Iterator[tuple[Record, int | None]]:
    clock = SystemClock()
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = raw.removesuffix(b"\n")
        record = template._replace(value=line, timestamp_ms=clock.now_ms())
        if separator is not None:
            key, found, value = line.partition(separator.encode())
            if not found:
                raise click.ClickException(f"line {number}: there is no {separator!r} in it")
            record = record._replace(key=key, value=value)
        yield record, None


def _header(text: str) -> tuple[bytes, bytes | None]:
    name, equals, value = text.partition("=")
    return name.encode(), value.encode() if equals else None


def _confirmed(produced: Produced) -> str:
    return (
        f"Produced to partition {produced.partition} at offset {produced.offset}"
        f" with timestamp {produced.timestamp_ms}"
    )
