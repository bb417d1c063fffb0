"""One member of a group in Python: `python -m tests.compat.groups.member CLIENT name=value ...`.

It reads until standard input ends, then leaves in good order. Record number n of a topic is at
offset n // partitions of partition n % partitions, so a member sees at once what is misplaced.
"""

import importlib
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import TextIO

from tests.compat.groups.job import MemberJob, parse_job
from tests.compat.groups.notes import NOTHING, show_numbers, show_offsets

WRONG_MAX = 3
MODULES = {
    "confluent": "confluent_member",
    "aiokafka": "aiokafka_member",
    "kafka-python": "kafka_python_member",
}


class Diary:
    """The file in which a member keeps what happens to it; every line is out before it goes on."""

    def __init__(self, file: TextIO, partitions: int) -> None:
        self._file = file
        self._partitions = partitions
        self._token = 0
        self._wrong = 0
        self.owned: set[int] = set()
        # The next offset of each partition that was read and not committed yet.
        self.pending: dict[int, int] = {}

    def write(self, text: str) -> None:
        """Note one line."""
        self._file.write(f"{time.time_ns() // 1_000_000} {text}\n")
        self._file.flush()

    def assigned(self, partitions: Iterable[int], generation: int | None = None) -> None:
        """Note that partitions came."""
        came = sorted(partitions)
        self.owned.update(came)
        known = NOTHING if generation is None else generation
        self.write(f"assigned {known} {show_numbers(came)}")

    def released(self, partitions: Iterable[int], *, lost: bool = False) -> None:
        """Note that partitions went."""
        gone = sorted(partitions)
        self.owned.difference_update(gone)
        for partition in gone:
            self.pending.pop(partition, None)
        self.write(f"{'lost' if lost else 'revoked'} {show_numbers(gone)}")

    def read(self, records: Iterable[tuple[int, int, bytes]]) -> None:
        """Note records as (partition, offset, value), in the order in which they came."""
        runs: dict[int, tuple[int, int]] = {}
        for partition, offset, value in records:
            if partition not in self.owned:
                continue  # a leftover of a partition that went while the batch was gathered
            if int(value) != offset * self._partitions + partition:
                self._misplaced(partition, offset, value)
            start, end = runs.get(partition, (offset, offset))
            if offset != end:
                self._run(partition, start, end)
                start = offset
            runs[partition] = (start, offset + 1)
        for partition, (start, end) in runs.items():
            self._run(partition, start, end)
        self._file.flush()

    def _run(self, partition: int, start: int, end: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._file.write(f"{now_ms} read {partition} {start} {end}\n")
        self.pending[partition] = end

    def _misplaced(self, partition: int, offset: int, value: bytes) -> None:
        self._wrong += 1
        if self._wrong <= WRONG_MAX:
            self.write(f"fault partition {partition} offset {offset} holds {value[:40]!r}")

    def asked(self, offsets: Mapping[int, int]) -> int:
        """Note that a commit is about to be sent and return its token."""
        self._token += 1
        self.write(f"asked {self._token} {show_offsets(offsets)}")
        return self._token

    def acked(self, token: int | None, offsets: Mapping[int, int]) -> None:
        """Note that a commit was acknowledged."""
        self.write(f"acked {NOTHING if token is None else token} {show_offsets(offsets)}")

    def failed(
        self, token: int, offsets: Mapping[int, int], reason: object, *, certain: bool
    ) -> None:
        """Note that a commit failed; it is due again for what is still here."""
        said = " ".join(str(reason).split())
        self.write(f"{'refused' if certain else 'unknown'} {token} {said}")
        self.put_back(offsets)

    def put_back(self, offsets: Mapping[int, int]) -> None:
        """Let offsets be committed later, unless their partitions went or were read further."""
        for partition, offset in offsets.items():
            if partition in self.owned:
                self.pending[partition] = max(offset, self.pending.get(partition, offset))

    def fault(self, reason: object) -> None:
        """Note something that must not be."""
        self.write(f"fault {' '.join(str(reason).split())}")

    def take_pending(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """Take out what is to be committed, of these partitions or of all."""
        wanted = set(self.pending) if partitions is None else set(partitions)
        return {each: self.pending.pop(each) for each in sorted(wanted & set(self.pending))}


class Metronome:
    """Says when the next commit is due."""

    def __init__(self, every_ms: int) -> None:
        self._every_s = every_ms / 1000
        self._next_s = time.monotonic() + self._every_s

    def due(self) -> bool:
        """Whether it is time; starts anew if so."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True


def run(client: str, job: MemberJob, diary: Diary, stop: threading.Event) -> None:
    """Run the member of one client library; libraries are loaded only where they are used."""
    module = importlib.import_module(f"tests.compat.groups.{MODULES[client]}")
    module.run(job, diary, stop)


def main(arguments: list[str]) -> int:
    """Do the job; 1 if it ended in an exception."""
    job = parse_job(arguments[1:])
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    with open(job.notes, "a") as file:
        diary = Diary(file, job.partitions)
        try:
            run(arguments[0], job, diary, stop)
        except Exception as error:  # noqa: BLE001 - whatever ends a member must reach its notes
            traceback.print_exc()
            diary.fault(f"ended by {type(error).__name__}: {error}")
            return 1
        diary.write("left")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
