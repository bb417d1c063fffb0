"""A committer without a group's members: what it was told is compared with what can be read.

It counts upwards, all partitions in one commit, so a read tells exactly which commit it sees.
"""

import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.compat.groups.check import registers
from tests.compat.groups.look import Admin
from tests.compat.groups.member import Diary
from tests.compat.groups.notes import Acked, Life, load_events

EVERY_S = 0.05
STOP_TIMEOUT_S = 90.0


class Witness:
    """Commits from a thread of its own, as programs do that keep offsets without a membership."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, notes: Path) -> None:
        self._topic = topic
        self._partitions = partitions
        self._notes = notes
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    group = "witness"

    def _run(self) -> None:
        with self._notes.open("w") as file:
            diary = Diary(file, self._partitions)
            number = 0
            while not self._stop.wait(EVERY_S):
                number += 1
                offsets = dict.fromkeys(range(self._partitions), number)
                places = [TopicPartition(self._topic, each, number) for each in offsets]
                token = diary.asked(offsets)
                try:
                    answers = self._consumer.commit(offsets=places, asynchronous=False)
                except KafkaException as error:
                    diary.failed(token, offsets, error, certain=False)
                    continue
                if all(answer.error is None for answer in answers):
                    diary.acked(token, offsets)

    def judge(self, admin: Admin) -> list[str]:
        """Read what is committed and return what cannot be."""
        since_ms = time.time_ns() // 1_000_000
        found = admin.committed(self.group)
        until_ms = time.time_ns() // 1_000_000
        known = registers([self.life()])
        return [
            f"witness: partition {partition} holds {found.get(partition)}, expected"
            f" {sorted(register.candidates(since_ms, until_ms))[:5]}"
            for partition, register in sorted(known.items())
            if not register.allows(found.get(partition, 0), since_ms, until_ms)
        ]

    def life(self) -> Life:
        """Return what the witness noted."""
        return Life(self.group, load_events(self._notes))

    def acknowledged(self) -> int:
        """Return how many commits were acknowledged."""
        return sum(isinstance(event, Acked) for event in self.life().events)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(STOP_TIMEOUT_S)
        self._consumer.close()
