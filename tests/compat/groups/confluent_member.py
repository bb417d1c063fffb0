"""A member on confluent-kafka (librdkafka): classic eager, classic cooperative, and KIP-848."""

import threading
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tests.compat.groups.job import MemberJob
from tests.compat.groups.member import Diary, Metronome

BATCH = 2_000
POLL_S = 0.1
STRATEGIES = {"range": "range", "roundrobin": "roundrobin", "cooperative": "cooperative-sticky"}
# Codes that say for certain that a commit had no effect.
REFUSALS = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._UNKNOWN_PARTITION,
}


def settings(job: MemberJob) -> dict[str, object]:
    """Return the client's settings for a job."""
    common: dict[str, object] = {
        "bootstrap.servers": job.bootstrap,
        "client.id": job.client_id,
        "group.id": job.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": job.commits == "automatic",
        "auto.commit.interval.ms": job.commit_every_ms,
        # Stored by hand, so that nothing is committed before it is noted as read.
        "enable.auto.offset.store": False,
        "fetch.wait.max.ms": 200,
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": job.metadata_ms,
    }
    if job.instance:
        common["group.instance.id"] = job.instance
    if job.flavour == "consumer":
        return {**common, "group.protocol": "consumer"}
    return {
        **common,
        "session.timeout.ms": job.session_ms,
        "heartbeat.interval.ms": job.heartbeat_ms,
        "partition.assignment.strategy": STRATEGIES[job.flavour],
    }


class Member:
    """One consumer and its notes."""

    def __init__(self, job: MemberJob, diary: Diary) -> None:
        self._job = job
        self._diary = diary
        self._tokens: list[tuple[int, dict[int, int]]] = []
        self.consumer = Consumer({**settings(job), "on_commit": self._on_commit})
        self.consumer.subscribe(
            [job.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _on_assign(self, _: Consumer, places: Sequence[TopicPartition]) -> None:
        self._diary.assigned(place.partition for place in places)

    def _on_revoke(self, _: Consumer, places: Sequence[TopicPartition]) -> None:
        gone = [place.partition for place in places]
        if self._job.commits != "automatic":
            self.commit_now(self._diary.take_pending(gone))
        self._diary.released(gone)

    def _on_lost(self, _: Consumer, places: Sequence[TopicPartition]) -> None:
        self._diary.released((place.partition for place in places), lost=True)

    def _on_commit(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        offsets = {place.partition: place.offset for place in places if place.offset >= 0}
        failure = error or next((place.error for place in places if place.error), None)
        if self._job.commits == "automatic":
            if failure is None and offsets:
                self._diary.acked(None, offsets)
            return
        mine = next((each for each in self._tokens if each[1] == offsets), None)
        if mine is None:
            return  # the answer of a synchronous commit, which notes it itself
        self._tokens.remove(mine)
        if failure is None:
            self._diary.acked(*mine)
        else:
            self._diary.failed(*mine, failure, certain=failure.code() in REFUSALS)

    def commit_now(self, offsets: dict[int, int]) -> None:
        """Commit and wait for the answer."""
        if not offsets:
            return
        token = self._diary.asked(offsets)
        try:
            answers = self.consumer.commit(offsets=self._places(offsets), asynchronous=False)
        except KafkaException as raised:
            error = raised.args[0]
            self._diary.failed(token, offsets, error, certain=error.code() in REFUSALS)
            return
        failure = next((answer.error for answer in answers if answer.error), None)
        if failure is None:
            self._diary.acked(token, offsets)
        else:
            self._diary.failed(token, offsets, failure, certain=False)

    def commit(self) -> None:
        """Commit what was read, in the way of the job."""
        offsets = self._diary.take_pending()
        if not offsets:
            return
        if self._job.commits == "sync":
            self.commit_now(offsets)
        elif self._job.commits == "async":
            self._tokens.append((self._diary.asked(offsets), offsets))
            self.consumer.commit(offsets=self._places(offsets), asynchronous=True)
        else:
            self._store(offsets)

    def _store(self, offsets: dict[int, int]) -> None:
        try:
            self.consumer.store_offsets(offsets=self._places(offsets))
        except KafkaException as raised:
            # A partition that went meanwhile has nothing to store any more.
            if raised.args[0].code() != KafkaError._STATE:
                raise
            self._diary.put_back(offsets)

    def _places(self, offsets: dict[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._job.topic, each, at) for each, at in offsets.items()]

    def poll(self) -> None:
        """Take what is there and note it."""
        messages = self.consumer.consume(BATCH, timeout=POLL_S)
        for message in messages:
            error = message.error()
            if error is not None and (error.fatal() or not is_passing(error)):
                self._diary.fault(error)
        good = (message for message in messages if message.error() is None)
        self._diary.read(fields(message) for message in good)


def is_passing(error: KafkaError) -> bool:
    """Whether an error is one that the client overcomes by itself."""
    return bool(error.retriable()) or error.code() in {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }


def fields(message: Message) -> tuple[int, int, bytes]:
    """Return what the notes want of a message."""
    return message.partition(), message.offset(), message.value()


def run(job: MemberJob, diary: Diary, stop: threading.Event) -> None:
    """Read and commit until told to stop."""
    member = Member(job, diary)
    metronome = Metronome(job.commit_every_ms)
    while not stop.is_set():
        member.poll()
        if metronome.due():
            member.commit()
    if job.commits == "automatic":
        member.commit()
    member.consumer.close()
