"""Rounds add up."""

from dataclasses import replace

from lakelog.pipeline.round_report import Obstacle, RoundReport, TopicReport, Totals

TOPIC = TopicReport(
    topic="t",
    has_table=True,
    tasks=2,
    files=2,
    rows=10,
    read_bytes=100,
    written_bytes=50,
    ended=2,
    seconds=1.5,
    behind_records=10,
    behind_ms=7,
    obstacles=(),
)
IDLE = replace(TOPIC, tasks=0, files=0, rows=0, read_bytes=0, written_bytes=0, ended=0, seconds=0.0)
BAD = Obstacle("t", 3, "corrupt")


def round_of(*topics: TopicReport, obstacles: tuple[Obstacle, ...] = ()) -> RoundReport:
    return RoundReport(
        topics=topics,
        adopted=0,
        created=0,
        attempted=0,
        forgotten=0,
        seconds=2.0,
        obstacles=obstacles,
    )


def test_figures_add_up_and_the_newest_round_says_how_far_behind_it_is() -> None:
    last = replace(TOPIC, behind_records=1, behind_ms=2)
    totals = Totals().plus(round_of(TOPIC)).plus(round_of(last))
    (topic,) = totals.topics
    assert (topic.rows, topic.files, topic.read_bytes, topic.seconds) == (20, 4, 200, 3.0)
    assert (topic.behind_records, topic.behind_ms) == (1, 2)
    assert (totals.rounds, totals.seconds) == (2, 4.0)


def test_an_obstacle_stands_until_a_round_worked_on_the_topic_without_it() -> None:
    hindered = Totals().plus(round_of(replace(TOPIC, obstacles=(BAD,))))
    assert hindered.all_obstacles == (BAD,)
    assert hindered.plus(round_of(IDLE)).all_obstacles == (BAD,)
    assert hindered.plus(round_of(TOPIC)).all_obstacles == ()


def test_what_concerns_no_topic_is_of_the_newest_round() -> None:
    general = Obstacle("", -1, "no broker answers")
    totals = Totals().plus(round_of(TOPIC)).plus(round_of(obstacles=(general,)))
    assert totals.all_obstacles == (general,)
    assert [topic.rows for topic in totals.topics] == [10]
    assert totals.plus(round_of(IDLE)).all_obstacles == ()


def test_a_topic_that_is_gone_is_left_out() -> None:
    other = replace(TOPIC, topic="u")
    totals = Totals().plus(round_of(TOPIC, other)).plus(round_of(other))
    assert [(topic.topic, topic.rows) for topic in totals.topics] == [("u", 20)]
