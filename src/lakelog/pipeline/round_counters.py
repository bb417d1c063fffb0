"""What a round counts while it runs; its report is made of it at the end."""

from dataclasses import dataclass, field

from lakelog.clock import Clock
from lakelog.index.ports import IndexedTopic
from lakelog.pipeline.round_report import Obstacle, RoundReport, TopicReport
from lakelog.pipeline.saga.task_record import TaskRecord, TaskState, is_open
from lakelog.pipeline.saga.values import TaskTarget


@dataclass(slots=True)
class TopicCounters:
    """One topic's figures so far."""

    has_table: bool = False
    tasks: int = 0
    files: int = 0
    rows: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    ended: int = 0
    replaced: int = 0
    passes: int = 0
    seconds: float = 0.0
    behind_records: int = 0
    behind_ms: int = 0
    obstacles: list[Obstacle] = field(default_factory=list)


class RoundCounters:
    """The figures of one round."""

    def __init__(self, clock: Clock) -> None:
        self.adopted = 0
        self.created = 0
        self.attempted = 0
        self.forgotten = 0
        self.scans = 0
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._topics: dict[str, TopicCounters] = {}
        self._obstacles: list[Obstacle] = []

    def topic(self, name: str) -> TopicCounters:
        """The topic's figures, to count on."""
        return self._topics.setdefault(name, TopicCounters())

    def begin(self, topic: IndexedTopic) -> None:
        """A topic is there."""
        self.topic(topic.name).has_table = topic.has_table

    def done(self, topic: str) -> None:
        """The round is done with the topic."""
        self.topic(topic).seconds = self._clock.monotonic_s() - self._began_s

    def problem(self, reason: str, *, topic: str = "", partition: int = -1) -> None:
        """Something keeps a topic, one of its partitions, or everything from going on."""
        obstacle = Obstacle(topic, partition, reason)
        kept = self.topic(topic).obstacles if topic else self._obstacles
        if obstacle not in kept:
            kept.append(obstacle)

    def moved(self, before: TaskRecord, after: TaskRecord) -> None:
        """A task's record was changed by this pipeline."""
        topic = self.topic(after.topic)
        at = (
            TaskState.INDEX_SWAPPED
            if after.target is TaskTarget.LOG
            else TaskState.ICEBERG_COMMITTED
        )
        if after.state is at and after.is_replacing:
            topic.replaced += len(after.inputs)
        elif after.state is at and after.file is not None:
            topic.files += 1
            topic.rows += after.file.row_count
            topic.written_bytes += after.file.size_bytes
        topic.ended += not is_open(after)
        if after.failures > before.failures:
            self.problem(after.problem, topic=after.topic, partition=after.partition)

    def report(self) -> RoundReport:
        """The figures as they are now."""
        return RoundReport(
            topics=tuple(_report(name, self._topics[name]) for name in sorted(self._topics)),
            adopted=self.adopted,
            created=self.created,
            attempted=self.attempted,
            forgotten=self.forgotten,
            seconds=self._clock.monotonic_s() - self._began_s,
            obstacles=tuple(self._obstacles),
            scans=self.scans,
        )


def _report(name: str, topic: TopicCounters) -> TopicReport:
    return TopicReport(
        topic=name,
        has_table=topic.has_table,
        tasks=topic.tasks,
        files=topic.files,
        rows=topic.rows,
        read_bytes=topic.read_bytes,
        written_bytes=topic.written_bytes,
        ended=topic.ended,
        seconds=topic.seconds,
        behind_records=topic.behind_records,
        behind_ms=topic.behind_ms,
        obstacles=tuple(topic.obstacles),
        replaced=topic.replaced,
        passes=topic.passes,
    )
