"""Several rounds as one: what was done, how far behind each topic is, and what is in the way. Pure.

Figures add up. How far behind a topic is, its newest round says. An obstacle counts until a later
round worked on its topic and met none.
"""

from dataclasses import dataclass, replace

from lakelog.pipeline.report import Obstacle, RoundReport, TopicReport


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
        return self.obstacles + tuple(one for topic in self.topics for one in topic.obstacles)

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
