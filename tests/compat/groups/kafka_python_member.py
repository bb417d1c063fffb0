"""A member on kafka-python: classic eager and classic cooperative."""

import threading
import warnings
from collections.abc import Collection

from tests.compat.groups.job import MemberJob
from tests.compat.groups.member import Diary, Metronome

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas by a call that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import errors
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.structs import OffsetAndMetadata

POLL_MS = 100
BATCH = 2_000
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}
REFUSALS = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.RebalanceInProgressError,
    errors.FencedInstanceIdError,
)


class Member(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """One consumer and its notes."""

    def __init__(self, job: MemberJob, diary: Diary) -> None:
        self._job = job
        self._diary = diary
        self._read: dict[int, int] = {}
        settings: dict[str, object] = {
            "bootstrap_servers": job.bootstrap.split(","),
            "client_id": job.client_id,
            "group_id": job.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": job.commits == "automatic",
            "auto_commit_interval_ms": job.commit_every_ms,
            "session_timeout_ms": job.session_ms,
            "heartbeat_interval_ms": job.heartbeat_ms,
            "partition_assignment_strategy": (ASSIGNORS[job.flavour],),
            "fetch_max_wait_ms": 200,
            "metadata_max_age_ms": job.metadata_ms,
            "reconnect_backoff_max_ms": 1_000,
        }
        if job.instance:
            settings["group_instance_id"] = job.instance
        self.consumer = kafka.KafkaConsumer(**settings)
        self.consumer.subscribe([job.topic], listener=self)

    def on_partitions_assigned(self, assigned: Collection[kafka.TopicPartition]) -> None:
        """Note what came."""
        generation = int(self.consumer.group_metadata().generation_id)
        known = generation if generation >= 0 else None
        came = [place.partition for place in assigned]
        self._diary.assigned(came, known)
        # The client goes on where it was in what it gets back, so that is still to be committed.
        self._diary.put_back({each: self._read[each] for each in came if each in self._read})
        self._read = {}

    def on_partitions_revoked(self, revoked: Collection[kafka.TopicPartition]) -> None:
        """Note what went; the client cannot commit here, on the thread that would do it."""
        gone = [place.partition for place in revoked]
        pending = self._diary.pending
        self._read = {each: pending[each] for each in gone if each in pending}
        self._diary.released(gone)

    def on_partitions_lost(self, lost: Collection[kafka.TopicPartition]) -> None:
        """Note what was taken away."""
        self._diary.released((place.partition for place in lost), lost=True)

    def commit_now(self, offsets: dict[int, int]) -> None:
        """Commit and wait for the answer."""
        if not offsets:
            return
        token = self._diary.asked(offsets)
        places = {
            kafka.TopicPartition(self._job.topic, each): OffsetAndMetadata(at, "", -1)
            for each, at in offsets.items()
        }
        try:
            self.consumer.commit(places)
        except errors.KafkaError as error:
            self._diary.failed(token, offsets, repr(error), certain=isinstance(error, REFUSALS))
        else:
            self._diary.acked(token, offsets)

    def poll(self) -> None:
        """Take what is there and note it."""
        got = self.consumer.poll(timeout_ms=POLL_MS, max_records=BATCH)
        self._diary.read(
            (record.partition, record.offset, record.value)
            for records in got.values()
            for record in records
        )


def run(job: MemberJob, diary: Diary, stop: threading.Event) -> None:
    """Read and commit until told to stop."""
    member = Member(job, diary)
    metronome = Metronome(job.commit_every_ms)
    while not stop.is_set():
        member.poll()
        if metronome.due() and job.commits != "automatic":
            member.commit_now(diary.take_pending())
    if job.commits != "automatic":
        member.commit_now(diary.take_pending())
    # close() may leave the group before it tells, and the group goes on at once.
    diary.released(diary.owned)
    member.consumer.close()
