"""The order, proved on a topic that is hard to order: `python -m tests.client.proof --records N`.

64 partitions: their sizes are skewed, their records out of order, some are idle, some begin late or
end early, and one lies hours behind all others. What comes out while priming is compared with the
whole log sorted by timestamp, partition and offset, record by record, twice, with memory bounded.
"""

import argparse
import hashlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench.broker import StartError
from bench.ours import start_ours
from bench.peer import PeerAbsentError, find_peer, start_peer
from bench.raw import PRODUCE, PRODUCE_VERSION, Client, check_produced, produce_body
from numpy.typing import NDArray
from tests.client.feeding import FIRST_MS, create_topic

from lakelog.client import ConsumerManager, SourceTopic
from lakelog.records.build import NUMBERS, BatchOptions, RecordBlock, build_from_block
from lakelog.records.codecs import Codec

PARTITIONS = 64
DISORDER_MS = 2000
RECORDS_A_MS = 10
HOURS_BEHIND_MS = 6 * 3_600_000
NOISE_BYTES = 1 << 20
VALUE_BYTES = (8, 192)
BATCH_ROWS = (1, 300)
REQUEST_BYTES = 2 << 20
HELD_BYTES = 64 << 20
SEED = 64
CHECKED_ROWS = 2000
TOPIC = "hard-to-order"


@dataclass(frozen=True)
class HardTopic:
    """All records as they were written: partition, time, offset, and the place of the value."""

    partitions: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    offsets: NDArray[np.int64]
    value_starts: NDArray[np.int64]
    value_ends: NDArray[np.int64]

    def expected(self) -> NDArray[np.int64]:
        """The order in which the records have to come."""
        return np.lexsort((self.offsets, self.partitions, self.times_ms))


def hard_topic(records: int, seed: int = SEED) -> HardTopic:
    """A log of that many records."""
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, PARTITIONS + 1)
    weights[-12:-8] = 0  # idle: they have no record at all
    partitions = chance.choice(PARTITIONS, records, p=weights / weights.sum())
    made_ms = np.arange(records) // RECORDS_A_MS
    early, late = records // 100, records - records // 100
    # Some end long before the others do, and some begin when the others have almost ended.
    partitions[early:][partitions[early:] >= PARTITIONS - 4] = 0
    is_late = (partitions >= PARTITIONS - 8) & (partitions < PARTITIONS - 4)
    is_late[late:] = False
    partitions[is_late] = 1
    times_ms = FIRST_MS + made_ms + chance.integers(0, DISORDER_MS, records)
    times_ms[partitions == 7] -= HOURS_BEHIND_MS
    order = np.argsort(partitions, kind="stable")
    counts = np.bincount(partitions, minlength=PARTITIONS)
    offsets = np.empty(records, np.int64)
    offsets[order] = np.arange(records) - np.repeat(np.cumsum(counts) - counts, counts)
    sizes = chance.integers(*VALUE_BYTES, records)
    starts = chance.integers(0, NOISE_BYTES - VALUE_BYTES[1], records)
    return HardTopic(partitions, times_ms, offsets, starts, starts + sizes)


def noise() -> NDArray[np.uint8]:
    """What values are cut from."""
    found = np.random.default_rng(SEED).integers(97, 105, NOISE_BYTES).astype(np.uint8)
    found.flags.writeable = False
    return found


def write(bootstrap: str, topic: str, log: HardTopic) -> None:
    """Write the log, in batches of all sizes and codecs."""
    create_topic(bootstrap, topic, PARTITIONS)
    with Client(int(bootstrap.rpartition(":")[2])) as client:
        waiting: list[tuple[int, bytes]] = []
        for partition, batch in batches(log):
            if sum(len(each) for _, each in waiting) > REQUEST_BYTES or any(
                partition == other for other, _ in waiting
            ):
                send(client, topic, waiting)
                waiting = []
            waiting.append((partition, batch))
        send(client, topic, waiting)


def send(client: Client, topic: str, waiting: list[tuple[int, bytes]]) -> None:
    """Write one request's batches."""
    if waiting:
        body = produce_body(topic, waiting)
        check_produced(client.call(PRODUCE, PRODUCE_VERSION, body))


def batches(log: HardTopic) -> Iterator[tuple[int, bytes]]:
    """The batches of all partitions, those of one in its order."""
    values = noise()
    chance = np.random.default_rng(SEED)
    order = np.argsort(log.partitions, kind="stable")
    edges = np.searchsorted(log.partitions[order], np.arange(PARTITIONS + 1))
    cursors = edges[:-1].copy()
    while (cursors < edges[1:]).any():
        for partition in range(PARTITIONS):
            start = int(cursors[partition])
            end = min(start + int(chance.integers(*BATCH_ROWS)), int(edges[partition + 1]))
            if start < end:
                cursors[partition] = end
                codec = Codec(partition % 5)
                yield partition, batch_of(log, order[start:end], values, codec)


def batch_of(
    log: HardTopic, rows: NDArray[np.int64], values: NDArray[np.uint8], codec: Codec
) -> bytes:
    """One batch of these records."""
    numbers = np.zeros((NUMBERS, len(rows)), np.int64)
    numbers[0] = log.times_ms[rows]
    numbers[1] = np.arange(len(rows))
    numbers[2:4] = -1  # no keys
    numbers[4], numbers[5] = log.value_starts[rows], log.value_ends[rows]
    block = RecordBlock(numbers, (values, values, values, values), np.zeros((4, 0), np.int64))
    return build_from_block(block, BatchOptions(codec=codec))


@dataclass(frozen=True)
class Outcome:
    """What one reading gave."""

    rows: int
    digest: str
    seconds: float
    held_bytes_max: int
    grown_bytes: int


def read(bootstrap: str, topic: str, log: HardTopic, expected: NDArray[np.int64]) -> Outcome:
    """Read the topic and compare every record with what has to come."""
    values = noise()
    digests = [hashlib.sha256() for _ in range(4)]
    rows = held_bytes_max = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.monotonic()
    with ConsumerManager(
        {"bootstrap.servers": bootstrap},
        [SourceTopic.from_earliest(topic)],
        batch_size=50_000,
        max_held_bytes=HELD_BYTES,
        out_of_order_ms=DISORDER_MS,
    ) as manager:
        while not manager.is_live():
            batch = manager.poll(30_000)
            assert batch.num_rows, f"nothing came: {manager.metrics()}"
            check(batch, log, expected[rows : rows + batch.num_rows], values)
            for number, column in enumerate(("timestamp", "partition", "offset", "value")):
                digests[number].update(batch[column].buffers()[-1])
            rows += batch.num_rows
            held_bytes_max = max(held_bytes_max, manager.held_bytes())
        metrics = manager.metrics()
    assert rows == len(expected), (rows, len(expected))
    assert metrics.rows_late == 0, metrics
    assert metrics.squeezes == 0, metrics
    assert held_bytes_max <= HELD_BYTES, held_bytes_max
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    digest = " ".join(each.hexdigest() for each in digests)
    return Outcome(rows, digest, time.monotonic() - began_s, held_bytes_max, grown)


def check(
    batch: pa.RecordBatch,
    log: HardTopic,
    rows: NDArray[np.int64],
    values: NDArray[np.uint8],
) -> None:
    """Every record is the one that has to come here, with its value."""
    assert np.array_equal(batch["timestamp"].cast(pa.int64()).to_numpy(), log.times_ms[rows])
    assert np.array_equal(batch["partition"].to_numpy(), log.partitions[rows])
    assert np.array_equal(batch["offset"].to_numpy(), log.offsets[rows])
    assert batch["key"].null_count == batch.num_rows
    for start in range(0, len(rows), CHECKED_ROWS):
        part = rows[start : start + CHECKED_ROWS]
        check_values(batch["value"].slice(start, len(part)), log, part, values)


def check_values(
    column: pa.Array, log: HardTopic, rows: NDArray[np.int64], values: NDArray[np.uint8]
) -> None:
    """Every value is the one that was written; a few at a time, for the memory is measured."""
    starts, sizes = log.value_starts[rows], log.value_ends[rows] - log.value_starts[rows]
    edges = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(rows) + 1]
    assert np.array_equal(np.diff(edges), sizes)
    places = np.repeat(starts - (edges[:-1] - edges[0]), sizes) + np.arange(edges[-1] - edges[0])
    found = np.frombuffer(column.buffers()[2], np.uint8)[edges[0] : edges[-1]]
    assert np.array_equal(found, values[places])


def prove(bootstrap: str, records: int, topic: str) -> list[Outcome]:
    """Write the topic, and read it twice."""
    log = hard_topic(records)
    write(bootstrap, topic, log)
    expected = log.expected()
    outcomes = [read(bootstrap, topic, log, expected) for _ in range(2)]
    assert outcomes[0].digest == outcomes[1].digest, "the same log gave different rows"
    return outcomes


@contextmanager
def broker(options: argparse.Namespace) -> Iterator[str]:
    """Lend the address of the broker that the command line asks for."""
    if options.bootstrap:
        yield options.bootstrap
        return
    with tempfile.TemporaryDirectory(prefix="lakelog-proof-") as folder:
        data = Path(folder, "data")
        running = start_peer(find_peer(), data) if options.peer else start_ours(data)
        try:
            yield running.bootstrap
        finally:
            running.stop()


def main(arguments: Sequence[str]) -> int:
    """Run the proof and print what was seen; 2 without a broker."""
    parser = argparse.ArgumentParser(prog="python -m tests.client.proof", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--bootstrap", help="use a running broker, host:port")
    parser.add_argument("--peer", action="store_true", help="start Apache Kafka instead of ours")
    options = parser.parse_args(arguments)
    try:
        with broker(options) as bootstrap:
            outcomes = prove(bootstrap, options.records, f"{TOPIC}-{os.getpid()}")
    except (PeerAbsentError, StartError) as error:
        print(f"no broker: {error}")
        return 2
    for each in outcomes:
        print(
            f"{each.rows:,} records in exact order in {each.seconds:.1f} s "
            f"({each.rows / each.seconds / 1e6:.2f} M/s), at most {each.held_bytes_max / 2**20:.1f}"
            f" MiB held of {HELD_BYTES / 2**20:.0f}, memory grew by {each.grown_bytes / 2**20:.0f}"
            " MiB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
