"""What a round of the pipeline did, found and left, and several rounds as one. Pure.

These are values for people, logs and tests. In the totals of several rounds figures add up. How far
behind a topic is, its newest round says. An obstacle counts until a later round worked on its topic
and met none.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that keeps a topic, one of its streams, or everything from going on."""

    topic: str
    """Empty when it concerns no topic alone."""
    partition: int
    """-1 when it concerns no partition alone."""
    reason: str
    """What was found; it names the object at fault, where there is one."""


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic in a round."""

    topic: str
    has_table: bool
    tasks: int
    """The tasks that the round held, adopted ones too."""
    files: int
    """The files that came to count: in the table, or as a segment in the log."""
    rows: int
    read_bytes: int
    """What was read of the log."""
    written_bytes: int
    ended: int
    """The tasks that came to their end."""
    seconds: float
    """From the beginning of the round until the topic was done with."""
    behind_records: int
    """The offsets that are in WAL objects still, as of the beginning of the round."""
    behind_ms: int
    """The age of the oldest of them; 0 when there is none."""
    obstacles: tuple[Obstacle, ...]
    replaced: int = 0
    """The files of the table that others took the place of."""
    passes: int = 0
    """The passes of log compaction that came to their end."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round over all topics."""

    topics: tuple[TopicReport, ...]
    """By name; every topic there is."""
    adopted: int
    """Tasks that were taken over from somebody who was not heard of any more."""
    created: int
    attempted: int
    """How often the round tried to take over or to begin a task."""
    forgotten: int
    """Records of streams that are gone."""
    seconds: float
    obstacles: tuple[Obstacle, ...]
    """What concerns no topic alone."""
    scans: int = 0
    """The streams that log compaction scans, or has found something to do in."""

    @property
    def all_obstacles(self) -> tuple[Obstacle, ...]:
        """Everything that keeps something from going on."""
        return self.obstacles + tuple(
            obstacle for topic in self.topics for obstacle in topic.obstacles
        )

    @property
    def is_idle(self) -> bool:
        """Whether the round found nothing to do."""
        tasks = sum(topic.tasks for topic in self.topics)
        passes = sum(topic.passes for topic in self.topics)
        return not (tasks or self.attempted or self.forgotten or self.scans or passes)


@dataclass(frozen=True, slots=True)
class Totals:
    """The topics over all rounds so far, and what concerned no topic alone in the newest."""

    topics: tuple[TopicReport, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    rounds: int = 0
    seconds: float = 0.0

    @property
    def all_obstacles(self) -> tuple[Obstacle, ...]:
        """Everything that is still in the way."""
        return self.obstacles + tuple(
            obstacle for topic in self.topics for obstacle in topic.obstacles
        )

    def plus(self, report: RoundReport) -> "Totals":
        """With one more round."""
        known = {topic.topic: topic for topic in self.topics}
        topics = [
            _added(known[topic.topic], topic) if topic.topic in known else topic
            for topic in report.topics
        ]
        # A topic that the newest round does not know is gone, unless the round saw no topics.
        topics = topics or list(self.topics)
        return Totals(
            tuple(topics), report.obstacles, self.rounds + 1, self.seconds + report.seconds
        )


def _added(so_far: TopicReport, newest: TopicReport) -> TopicReport:
    told = bool(newest.tasks or newest.obstacles)
    return replace(
        newest,
        tasks=so_far.tasks + newest.tasks,
        files=so_far.files + newest.files,
        rows=so_far.rows + newest.rows,
        read_bytes=so_far.read_bytes + newest.read_bytes,
        written_bytes=so_far.written_bytes + newest.written_bytes,
        ended=so_far.ended + newest.ended,
        replaced=so_far.replaced + newest.replaced,
        passes=so_far.passes + newest.passes,
        seconds=so_far.seconds + newest.seconds,
        obstacles=newest.obstacles if told else so_far.obstacles,
    )
