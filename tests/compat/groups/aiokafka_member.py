"""A member on aiokafka: classic eager."""

import asyncio
import threading
from collections.abc import Collection

import aiokafka
from aiokafka import errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from tests.compat.groups.job import MemberJob
from tests.compat.groups.member import Diary, Metronome

POLL_MS = 100
BATCH = 2_000
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
REFUSALS = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.RebalanceInProgressError,
)


class Member(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is skipped
    """One consumer and its notes."""

    def __init__(self, job: MemberJob, diary: Diary) -> None:
        self._job = job
        self._diary = diary
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap,
            client_id=job.client_id,
            group_id=job.group,
            group_instance_id=job.instance or None,
            auto_offset_reset="earliest",
            enable_auto_commit=job.commits == "automatic",
            auto_commit_interval_ms=job.commit_every_ms,
            session_timeout_ms=job.session_ms,
            heartbeat_interval_ms=job.heartbeat_ms,
            partition_assignment_strategy=(ASSIGNORS[job.flavour],),
            fetch_max_wait_ms=200,
            metadata_max_age_ms=job.metadata_ms,
        )

    async def on_partitions_assigned(self, assigned: Collection[aiokafka.TopicPartition]) -> None:
        """Note what came."""
        # The client tells its generation nowhere else.
        generation = int(self.consumer._coordinator.generation)
        known = generation if generation >= 0 else None
        self._diary.assigned((place.partition for place in assigned), known)

    async def on_partitions_revoked(self, revoked: Collection[aiokafka.TopicPartition]) -> None:
        """Commit what was read, and note what went."""
        gone = [place.partition for place in revoked]
        if self._job.commits != "automatic":
            await self.commit_now(self._diary.take_pending(gone))
        self._diary.released(gone)

    async def commit_now(self, offsets: dict[int, int]) -> None:
        """Commit and wait for the answer."""
        if not offsets:
            return
        token = self._diary.asked(offsets)
        places = {
            aiokafka.TopicPartition(self._job.topic, each): at for each, at in offsets.items()
        }
        try:
            await self.consumer.commit(places)
        except (errors.KafkaError, ValueError) as error:
            self._diary.failed(token, offsets, repr(error), certain=isinstance(error, REFUSALS))
        else:
            self._diary.acked(token, offsets)

    async def poll(self) -> None:
        """Take what is there and note it."""
        got = await self.consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        self._diary.read(
            (record.partition, record.offset, record.value)
            for records in got.values()
            for record in records
        )


async def consume(job: MemberJob, diary: Diary, stop: threading.Event) -> None:
    """Read and commit until told to stop."""
    member = Member(job, diary)
    member.consumer.subscribe([job.topic], listener=member)
    await member.consumer.start()
    metronome = Metronome(job.commit_every_ms)
    try:
        while not stop.is_set():
            await member.poll()
            if metronome.due() and job.commits != "automatic":
                await member.commit_now(diary.take_pending())
        if job.commits != "automatic":
            await member.commit_now(diary.take_pending())
        # stop() revokes without telling, and the group goes on before it returns.
        diary.released(diary.owned)
    finally:
        await member.consumer.stop()


def run(job: MemberJob, diary: Diary, stop: threading.Event) -> None:
    """Run the member on its own loop."""
    asyncio.run(consume(job, diary, stop))
