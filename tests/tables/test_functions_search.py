"""Looking for a snapshot in a long history: the right one, and no more pages than it takes."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from lakelog.catalog.snapshot_page import (
    Head,
    SnapshotFact,
    SnapshotPage,
    decode_page,
    encode_page,
)
from lakelog.index.http_client import BrokerClient, Repeat
from lakelog.index.messages import (
    GroupAnswer,
    PagesAnswer,
    PagesQuestion,
    SnapshotsAnswer,
)
from lakelog.model.failures import Corrupt, Unavailable
from lakelog.tables.functions import SnapshotClient, SnapshotSearch
from lakelog.tables.values import TopicNotFound, UnknownGroup, is_within

TOPIC_ID = bytes(range(16))
AnswerT = TypeVar("AnswerT")


class Broker(BrokerClient):
    """Answers from pages in memory, and counts those that were asked for."""

    def __init__(self, head: Head, pages: Sequence[bytes | None], kept_from_ms: int = 0) -> None:
        self.answer = SnapshotsAnswer(
            topic_id=TOPIC_ID,
            partition_count=2,
            kept_from_ms=kept_from_ms,
            live=encode_page(SnapshotPage(head.live)),
            recent=encode_page(head.page),
            first=head.first,
            end=head.end,
        )
        self.pages = pages
        self.group = GroupAnswer()
        self.asked_for: list[int] = []
        self.answered_max = 3

    async def ask(
        self, name: str, question: object, kind: type[AnswerT], *, repeat: Repeat = Repeat.READ
    ) -> AnswerT:
        assert repeat is Repeat.READ
        answer: object = {"snapshots": self.answer, "group": self.group}.get(name)
        if name == "snapshot_pages":
            assert isinstance(question, PagesQuestion)
            assert question.topic_id == TOPIC_ID
            numbers = question.numbers[: self.answered_max]
            self.asked_for += numbers
            answer = PagesAnswer([self.pages[number] for number in numbers])
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=kind)


def client(broker: Broker) -> SnapshotClient:
    return SnapshotClient(broker, ["127.0.0.1:1"])


def fact(number: int, *, expired_ms: int = 1) -> SnapshotFact:
    vector = {0: number * 10, 1: number * 5} if number > 3 else {0: number * 10}
    return SnapshotFact(1000 + number, number, number, "append", vector, expired_ms)


def written(expiry: Sequence[int], live: Sequence[int], size: int) -> Broker:
    """A history in which snapshots expired in this order, in pages of so many."""
    groups = [expiry[at : at + size] for at in range(0, len(expiry), size)]
    pages, reached = [], -1
    for some in groups[:-1]:
        page = SnapshotPage(tuple(fact(number) for number in some), reached)
        reached = page.reached_after
        pages.append(encode_page(page))
    last = SnapshotPage(tuple(fact(number) for number in (groups[-1] if groups else ())), reached)
    return Broker(Head(0, len(pages), last, tuple(fact(number) for number in live)), pages)


@st.composite
def brokers(draw: st.DrawFn) -> tuple[Broker, list[int]]:
    """Snapshots expire by age, but for some that a tag kept, which go at any later time or stay."""
    count = draw(st.integers(0, 30))
    numbers = list(range(1, count + 1))
    expired = numbers[: max(0, count - draw(st.integers(0, 4)))]
    order = sorted(expired, key=lambda one: (one + draw(st.sampled_from([0, 0, 0, 7, 99])), one))
    tagged = draw(st.lists(st.sampled_from(order), unique=True, max_size=2)) if order else []
    order = [one for one in order if one not in tagged]
    live = sorted({*numbers} - {*order})
    return written(order, live, draw(st.integers(1, 5))), numbers


@settings(max_examples=examples(200), deadline=None)
@given(brokers(), st.dictionaries(st.integers(0, 1), st.integers(-2, 320)))
def test_the_newest_within_offsets_is_found_as_if_all_had_been_looked_at(
    made: tuple[Broker, list[int]], offsets: dict[int, int]
) -> None:
    broker, numbers = made
    expected = [one for one in numbers if is_within(fact(one).vector, offsets)]

    async def look() -> SnapshotFact | None:
        found = await client(broker).found("t")
        return await found.newest(lambda one: is_within(one.vector, offsets))

    found = asyncio.run(look())
    assert (None if found is None else found.sequence_number) == max(expected, default=None)


@settings(max_examples=examples(100), deadline=None)
@given(brokers())
def test_a_look_at_everything_finds_each_once(made: tuple[Broker, list[int]]) -> None:
    broker, numbers = made

    async def look() -> SnapshotSearch:
        found = await client(broker).found("t")
        while await found.older() is not None:
            continue
        return found

    found = asyncio.run(look())
    assert [one.sequence_number for one in found.all()] == sorted(numbers, reverse=True)
    assert broker.asked_for == list(range(len(broker.pages) - 1, -1, -1))


def test_recent_snapshots_cost_no_page_and_older_ones_few() -> None:
    broker = written(list(range(1, 1001)), [1001, 1002], 10)

    async def look(offset: int) -> int:
        broker.asked_for.clear()
        found = await client(broker).found("t")
        best = await found.newest(lambda one: is_within(one.vector, {0: offset, 1: -1}))
        assert best is not None
        assert best.sequence_number == offset // 10
        return len(broker.asked_for)

    assert asyncio.run(look(10_020)) == 0
    assert asyncio.run(look(9_950)) == 0
    assert asyncio.run(look(9_850)) == 1
    assert asyncio.run(look(9_500)) <= 6
    assert asyncio.run(look(10)) == 99


def test_what_is_older_than_the_limit_is_not_told_though_it_is_still_written_down() -> None:
    facts = tuple(fact(number, expired_ms=number) for number in range(1, 6))
    broker = Broker(Head(0, 0, SnapshotPage(facts), (fact(2),)), (), kept_from_ms=4)

    async def look() -> list[int]:
        found = await client(broker).found("t")
        return [one.sequence_number for one in found.all()]

    assert asyncio.run(look()) == [5, 4, 2]


def test_pages_that_were_deleted_meanwhile_are_passed_over() -> None:
    broker = written(list(range(1, 41)), [], 10)
    broker.pages = [None, None, broker.pages[2]]

    async def look() -> list[int]:
        found = await client(broker).found("t")
        while await found.older() is not None:
            continue
        return [one.sequence_number for one in found.all()]

    assert asyncio.run(look()) == list(range(40, 20, -1))


def test_answers_that_make_no_sense_are_not_believed() -> None:
    def look(broker: Broker) -> None:
        async def work() -> None:
            found = await client(broker).found("t")
            while await found.older() is not None:
                continue

        asyncio.run(work())

    broker = written(list(range(1, 41)), [], 10)
    broker.answered_max = 0
    with pytest.raises(Unavailable, match="not about those"):
        look(broker)
    broker = written(list(range(1, 41)), [], 10)
    broker.pages = [b"x"] * 3
    with pytest.raises(Corrupt, match="not a page"):
        look(broker)
    broker.answer = SnapshotsAnswer(topic_id=b"", partition_count=1)
    with pytest.raises(Unavailable, match="no sense"):
        look(broker)
    broker.answer = SnapshotsAnswer("something")
    with pytest.raises(Unavailable, match="'something'"):
        look(broker)
    broker.answer = SnapshotsAnswer("topic")
    with pytest.raises(TopicNotFound):
        look(broker)
    assert decode_page(encode_page(SnapshotPage())) == SnapshotPage()


def test_a_group_is_checked_as_well() -> None:
    broker = written([], [], 1)
    broker.group = GroupAnswer("group")
    with pytest.raises(UnknownGroup):
        asyncio.run(client(broker).committed("g", "t"))
    broker.group = GroupAnswer("", TOPIC_ID, 2, {0: -5})
    with pytest.raises(Unavailable, match="no sense"):
        asyncio.run(client(broker).committed("g", "t"))
    broker.group = GroupAnswer("", TOPIC_ID, 2, {0: 5})
    assert asyncio.run(client(broker).committed("g", "t")).offsets == {0: 5}
