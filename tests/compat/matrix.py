"""Every producer's topic read by every consumer, and the table of what came of it.

Rules: a cell is green only if all bytes of all records are the same. What a client cannot say is
printed below the table, and a client or a codec that is not there is named as skipped, never as
green.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.raw import Client
from tests.compat.check import Window, compare
from tests.compat.clients import Consuming, MissingError, Producing
from tests.compat.corpus import PARTITIONS, HeaderFreedom, Record, by_partition, corpus

# Timestamps lie in the recent past, so that no retention takes the records away.
PAST_MS = 3_600_000
CLOCK_SLACK_MS = 2_000
OK, SKIPPED = "ok", "skipped"


@dataclass(slots=True)
class Matrix:
    """What came of each pair, by (producer, consumer)."""

    cells: dict[tuple[str, str], str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def good(self) -> bool:
        """Whether nothing differs."""
        return not self.findings


def run_matrix(
    address: tuple[str, int],
    producers: Sequence[Producing],
    consumers: Sequence[Consuming],
    count: int,
    say: Callable[[str], None],
) -> Matrix:
    """Write with every producer, read with every consumer, compare."""
    matrix = Matrix()
    writers = [each for each in producers if is_there(each, f"{each.name} producer", matrix)]
    readers = [each for each in consumers if is_there(each, f"{each.name} consumer", matrix)]
    for producer in writers:
        run_row(address, producer, readers, count, (matrix, say))
    return matrix


def is_there(client: Producing | Consuming, name: str, matrix: Matrix) -> bool:
    """Whether a client can be had; notes why not."""
    try:
        client.prepare()
    except MissingError as missing:
        matrix.skipped[name] = str(missing)
        return False
    return True


def run_row(
    address: tuple[str, int],
    producer: Producing,
    consumers: Sequence[Consuming],
    count: int,
    report: tuple[Matrix, Callable[[str], None]],
) -> None:
    """Write one topic and let everybody read it."""
    matrix, say = report
    bootstrap, port = address
    started_ms = time.time_ns() // 1_000_000
    topic = f"compat-{producer.name.replace(' ', '-')}-{started_ms}"
    records = corpus(count, producer.ability, started_ms - PAST_MS)
    expected = by_partition(records)
    with Client(port) as client:
        client.create_topic(topic, PARTITIONS if producer.ability.partitions else 1)
    try:
        producer.write(bootstrap, topic, records)
    except Exception as error:  # noqa: BLE001 - a client may fail in its own way; the table says so
        matrix.findings.append(f"{producer.name} could not write: {type(error).__name__}: {error}")
        for consumer in consumers:
            matrix.cells[producer.name, consumer.name] = "NOT WRITTEN"
        return
    ended_ms = time.time_ns() // 1_000_000
    window = Window(started_ms - CLOCK_SLACK_MS, ended_ms + CLOCK_SLACK_MS)
    say(f"{producer.name}: {count} records written in {(ended_ms - started_ms) / 1e3:.1f} s")
    check_ends(port, topic, (producer.name, expected), matrix)
    for consumer in consumers:
        started = time.monotonic()
        outcome = read_one((bootstrap, topic), producer, consumer, expected, (matrix, window))
        matrix.cells[producer.name, consumer.name] = outcome
        matrix.seconds[producer.name, consumer.name] = time.monotonic() - started
        say(f"  read by {consumer.name}: {outcome} ({time.monotonic() - started:.1f} s)")


def check_ends(
    port: int, topic: str, written: tuple[str, Mapping[int, Sequence[Record]]], matrix: Matrix
) -> None:
    """Compare the broker's end offsets: consumers stop when they have enough, so ask for more."""
    producer, expected = written
    with Client(port) as client:
        ends = client.end_offsets(topic, len(expected))
    for partition, records in expected.items():
        if ends.get(partition) != len(records):
            matrix.findings.append(
                f"{producer}: partition {partition} ends at {ends.get(partition)},"
                f" {len(records)} were written"
            )


def read_one(
    place: tuple[str, str],
    producer: Producing,
    consumer: Consuming,
    expected: Mapping[int, Sequence[Record]],
    judge: tuple[Matrix, Window],
) -> str:
    """Return the word for one cell."""
    matrix, window = judge
    lacking = sorted(set(producer.ability.codecs) - set(consumer.codecs))
    if lacking:
        name = f"{consumer.name} reading {producer.name}"
        matrix.skipped[name] = f"no library for {', '.join(lacking)}"
        return SKIPPED
    try:
        findings = compare(expected, consumer.read(*place, expected), window)
    except Exception as error:  # noqa: BLE001 - a client may fail in its own way; the table says so
        findings = [f"{type(error).__name__}: {error}"]
    matrix.findings += [f"{producer.name} -> {consumer.name}: {what}" for what in findings]
    return "MISMATCH" if findings else OK


def table(matrix: Matrix, producers: Sequence[Producing], consumers: Sequence[Consuming]) -> str:
    """Return the table, what was skipped and why, and what clients cannot say."""
    written = [each for each in producers if any(name == each.name for name, _ in matrix.cells)]
    reading = [each for each in consumers if any(name == each.name for _, name in matrix.cells)]
    rows = [("wrote \\ read", *(each.name for each in reading))]
    for producer in written:
        cells = (matrix.cells.get((producer.name, each.name), "-") for each in reading)
        rows.append((producer.name, *cells))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += ["", "limits of the clients:"]
    lines += [f"  {note}" for note in notes(written, reading)]
    lines += [f"skipped: {name}: {why}" for name, why in matrix.skipped.items()]
    lines += [f"FOUND: {finding}" for finding in matrix.findings]
    return "\n".join(lines)


def notes(producers: Sequence[Producing], consumers: Sequence[Consuming]) -> list[str]:
    """Return what clients cannot express, producers first."""
    lines = []
    for producer in producers:
        ability = producer.ability
        limits = {
            f"codecs {', '.join(ability.codecs)} only": len(ability.codecs) < 5,
            "text only (binary goes as hexadecimal digits)": not ability.binary,
            "no record with both key and value null": not ability.null_key_and_value,
            "no null header values": not ability.null_header_values,
            f"headers {ability.headers.value}": ability.headers is not HeaderFreedom.ANY_ORDER,
            "sets no timestamps (checked to be the time of writing)": not ability.timestamps,
            "chooses no partition (its topic has one)": not ability.partitions,
            "a run writes either empty keys and values or nulls, and no empty record without key": (
                not ability.empty_beside_null
            ),
        }
        said = [limit for limit, applies in limits.items() if applies]
        if said:
            lines.append(f"{producer.name} producer: {'; '.join(said)}")
    noted = [note for producer in producers for note in producer.notes]
    noted += [note for consumer in consumers for note in consumer.notes]
    return lines + list(dict.fromkeys(noted))
