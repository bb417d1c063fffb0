"""`python -m tests.compat.crash`: kill -9 under load, again and again, and look what is left.

Producers in their own processes write without pause while the broker is killed and started again on
the same directory and port. After each round a fresh consumer reads everything from offset 0, and
`crash_check` compares it with what the producers were told.
"""

import argparse
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import msgspec
from bench.broker import HOST, Launch, ProcessBroker, free_ports
from bench.ours import launch_ours
from bench.peer import find_peer, launch_peer
from bench.raw import Client, KafkaError
from tests.compat.crash_check import (
    Ack,
    Finding,
    History,
    Logged,
    Stamp,
    check,
    parse_payload,
)
from tests.compat.crash_producer import CrashJob

TOPIC = "crash"
READ_TIMEOUT_S = 60.0
FINDINGS_SHOWN = 20
STOP_TIMEOUT_S = 150.0
PROGRESS_TIMEOUT_S = 60.0

Start = Callable[[], ProcessBroker]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run and how hard."""

    rounds: int
    seconds_max: float
    producers: int
    partitions: int
    records_per_second: float
    padding: int
    seed: int


class Writer:
    """One producer process and the notes it keeps."""

    def __init__(self, job: CrashJob) -> None:
        self.job = job
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.compat.crash_producer"],
            stdin=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None, "started with a pipe"
        self._process.stdin.write(msgspec.json.encode(job).decode() + "\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Let the producer wait for its last reports, and end."""
        self._process.communicate(timeout=STOP_TIMEOUT_S)

    def end(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def read_notes(writers: Sequence[Writer]) -> tuple[History, list[str]]:
    """Return what all producers were told so far, and what broke them."""
    acks: list[Ack] = []
    failed: set[Stamp] = set()
    fatal: list[str] = []
    for writer in writers:
        path = Path(writer.job.notes)
        text = path.read_text() if path.exists() else ""
        # The last line may still be growing.
        for line in text[: text.rfind("\n") + 1].splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "x":
                fatal.append(f"{writer.job.name}: {rest}")
                continue
            partition, sequence, answer = rest.split(" ", 2)
            stamp = Stamp(writer.job.name, int(partition), int(sequence))
            if kind == "a":
                acks.append(Ack(stamp, int(answer)))
            else:
                failed.add(stamp)
    idempotent = frozenset(writer.job.name for writer in writers if writer.job.idempotent)
    return History(acks, failed, idempotent), fatal


def read_log(bootstrap: str, partitions: int) -> list[Logged]:
    """Read all partitions from 0 to their ends with a consumer that knows nothing."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "crash-check",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 2,
        }
    )
    try:
        places = [confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(partitions)]
        ends = {
            place.partition: consumer.get_watermark_offsets(place, timeout=READ_TIMEOUT_S)[1]
            for place in places
        }
        consumer.assign(places)
        return collect(consumer, ends)
    finally:
        consumer.close()


def collect(consumer: confluent_kafka.Consumer, ends: dict[int, int]) -> list[Logged]:
    """Take records until every partition has reached the end that it had at the start."""
    log: list[Logged] = []
    reached = dict.fromkeys(ends, 0)
    deadline = time.monotonic() + READ_TIMEOUT_S
    while any(reached[each] < ends[each] for each in ends):
        if time.monotonic() > deadline:
            raise TimeoutError(f"read up to {reached}, the ends are {ends}")
        messages = consumer.consume(10_000, timeout=1.0)
        if messages:  # a long log takes its time; only standing still is a failure
            deadline = time.monotonic() + READ_TIMEOUT_S
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(f"the reader was told {message.error()}")
            partition, offset = message.partition(), message.offset()
            reached[partition] = offset + 1
            log.append(Logged(partition, offset, parse_payload(TOPIC, message.value())))
    return log


def run(plan: Plan, start: Start, say: Callable[[str], None]) -> list[str]:
    """Kill and restart as often as planned; return all that was found."""
    chance = random.Random(plan.seed)
    broker = start()
    broker.wait_ready()
    writers: list[Writer] = []
    found: list[str] = []
    restarts: list[float] = []
    with tempfile.TemporaryDirectory(prefix="lakelog-crash-") as folder:
        try:
            create_topic(broker, plan.partitions)
            writers = [Writer(job) for job in jobs(plan, broker.bootstrap, Path(folder))]
            for number in range(plan.rounds):
                found += await_progress(writers, f"round {number + 1}")
                time.sleep(chance.uniform(0.0, plan.seconds_max))
                broker.kill()
                broker = start()
                restarts.append(broker.wait_ready())
                found += judge(broker, plan, writers, f"round {number + 1}", say)
                if found:
                    break
            for writer in writers:
                writer.finish()
            found += judge(broker, plan, writers, "at the end", say)
        finally:
            for writer in writers:
                writer.end()
            broker.stop()
    if restarts:
        say(
            f"restart to service: median {sorted(restarts)[len(restarts) // 2]:.2f} s,"
            f" max {max(restarts):.2f} s"
        )
    return found


def await_progress(writers: Sequence[Writer], when: str) -> list[str]:
    """Wait until every producer gets new acknowledgements: a kill must fall into real load."""
    before = [noted_bytes(writer) for writer in writers]
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while not all(noted_bytes(each) > old for each, old in zip(writers, before, strict=True)):
        if time.monotonic() > deadline:
            return [
                f"{when}: a producer got no answer within {PROGRESS_TIMEOUT_S:.0f} s of the start"
            ]
        time.sleep(0.02)
    return []


def noted_bytes(writer: Writer) -> int:
    """Return how many bytes of notes a producer has: they grow with every report."""
    path = Path(writer.job.notes)
    return path.stat().st_size if path.exists() else 0


def create_topic(broker: ProcessBroker, partitions: int) -> None:
    """Create the topic; a broker that has just started may need a moment."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with Client(broker.port) as client:
                return client.create_topic(TOPIC, partitions)
        except (KafkaError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def jobs(plan: Plan, bootstrap: str, folder: Path) -> list[CrashJob]:
    """Return the producers' jobs: idempotent and plain in turns."""
    return [
        CrashJob(
            bootstrap=bootstrap,
            topic=TOPIC,
            partitions=plan.partitions,
            name=f"{'idempotent' if number % 2 == 0 else 'plain'}-{number}",
            idempotent=number % 2 == 0,
            records_per_second=plan.records_per_second,
            padding=plan.padding,
            notes=str(folder / f"{number}.notes"),
        )
        for number in range(plan.producers)
    ]


def judge(
    broker: ProcessBroker,
    plan: Plan,
    writers: Sequence[Writer],
    when: str,
    say: Callable[[str], None],
) -> list[str]:
    """Read everything and compare it with what the producers were told before."""
    history, fatal = read_notes(writers)
    try:
        log = read_log(broker.bootstrap, plan.partitions)
    except (RuntimeError, TimeoutError, confluent_kafka.KafkaException) as error:
        return [f"{when}: cannot read: {error}"]
    findings: list[Finding] = check(history, log)
    say(
        f"{when}: {len(history.acks)} acknowledged, {len(history.failed)} failed,"
        f" {len(log)} in the log, {len(findings)} findings"
    )
    shown = [f"{when}: {each.fault.value}: {each.text}" for each in findings[:FINDINGS_SHOWN]]
    return [*(f"{when}: gave up: {reason}" for reason in fatal), *shown]


def choose_start(options: argparse.Namespace, folder: Path) -> Start:
    """Return how to start the broker, always on the same port and directory."""
    port, second = free_ports(2)
    data = folder / "data"
    if options.command:
        command = shlex.split(
            options.command.format(host=HOST, port=port, http_port=second, data=data)
        )
        data.mkdir()
        return lambda: ProcessBroker(Launch("given", command, port, folder / "given.log"))
    if options.peer:
        peer = find_peer()
        return lambda: launch_peer(peer, data, port=port, controller_port=second)
    return lambda: launch_ours(data, port=port, http_port=second)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds-max", type=float, default=2.0, help="longest life of a broker")
    parser.add_argument("--producers", type=int, default=4, help="idempotent and plain in turns")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1_000.0, help="records/s of each producer")
    parser.add_argument("--padding", type=int, default=100, help="extra bytes of a record")
    parser.add_argument("--seed", type=int, default=1, help="when the kills come")
    parser.add_argument("--peer", action="store_true", help="kill Apache Kafka instead of ours")
    parser.add_argument("--command", help="start another: {host} {port} {http_port} {data}")
    parser.add_argument("--folder", type=Path, help="where data goes: a real disk, or tmpfs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the rounds; 1 if any promise was broken."""
    options = parse(arguments)
    plan = Plan(
        options.rounds,
        options.seconds_max,
        options.producers,
        options.partitions,
        options.rate,
        options.padding,
        options.seed,
    )
    with tempfile.TemporaryDirectory(prefix="lakelog-crash-", dir=options.folder) as folder:
        found = run(plan, choose_start(options, Path(folder)), print)
    for finding in found:
        print(f"FOUND {finding}")
    print(f"{plan.rounds} rounds: {'all promises kept' if not found else 'PROMISES BROKEN'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
