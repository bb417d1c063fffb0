"""Groups for the tests of assignors: short notations, what must always hold, and strategies."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from lakelog.groups.assignors import Assignment, Subscriber
from lakelog.model.ids import TopicId

Owned = Mapping[int, Sequence[int]]
Case = tuple[list[Subscriber], dict[TopicId, int]]


def topic(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def owned(partitions: Owned) -> Assignment:
    return {topic(number): tuple(places) for number, places in partitions.items()}


def member(
    member_id: str, topics: Sequence[int], has: Owned | None = None, instance: str | None = None
) -> Subscriber:
    subscribed = frozenset(topic(number) for number in topics)
    return Subscriber(member_id, instance, None, subscribed, owned(has or {}))


def readable(result: Mapping[str, Assignment]) -> dict[str, dict[int, list[int]]]:
    return {
        member_id: {
            int.from_bytes(topic_id, "big"): list(places) for topic_id, places in share.items()
        }
        for member_id, share in result.items()
    }


def load(share: Assignment) -> int:
    return sum(len(places) for places in share.values())


def with_shares(
    members: Sequence[Subscriber], result: Mapping[str, Assignment]
) -> list[Subscriber]:
    """The same members after they got what was assigned; a new one has nothing."""
    return [
        Subscriber(
            one.member_id, one.instance_id, one.rack, one.topics, result.get(one.member_id, {})
        )
        for one in members
    ]


def check_cover(case: Case, result: Mapping[str, Assignment]) -> None:
    """Each partition of a topic with readers has one owner, who reads it; all are named."""
    members, counts = case
    assert set(result) == {one.member_id for one in members}
    seen = []
    for one in members:
        share = result[one.member_id]
        assert list(share) == sorted(share)
        for topic_id, places in share.items():
            assert topic_id in one.topics
            assert places
            assert list(places) == sorted(set(places))
            seen += [(topic_id, place) for place in places]
    readable_topics = {topic_id for one in members for topic_id in one.topics}
    wanted = [
        (topic_id, place)
        for topic_id in sorted(readable_topics)
        for place in range(counts.get(topic_id, 0))
    ]
    assert sorted(seen) == wanted


TOPICS = tuple(topic(number) for number in range(1, 6))


@st.composite
def cases(draw: st.DrawFn, *, alike: bool = False, hostile: bool = True) -> Case:
    """Groups of up to eight members and four known topics out of five.

    Hostile ones claim partitions that others claim, too, or that do not exist, or of topics that
    they do not read. In the others each partition has one reader as its owner, or none.
    """
    counts = {one: draw(st.integers(1, 9)) for one in TOPICS[: draw(st.integers(1, 4))]}
    subscriptions = st.frozensets(st.sampled_from(TOPICS))
    common = draw(subscriptions)
    number = draw(st.integers(1, 8))
    topics = [common if alike else draw(subscriptions) for _ in range(number)]
    shares: list[dict[TopicId, list[int]]] = [{} for _ in range(number)]
    if hostile:
        claims = st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(-1, 12)))
        shares = [draw(claims) for _ in range(number)]
    else:
        for topic_id, count in counts.items():
            readers = [index for index in range(number) if topic_id in topics[index]]
            for place in range(count if readers else 0):
                owner = draw(st.sampled_from([None, *readers]))
                if owner is not None:
                    shares[owner].setdefault(topic_id, []).append(place)
    instances = draw(st.lists(st.one_of(st.none(), st.text("xyz", min_size=1)), min_size=number))
    return [
        Subscriber(
            f"member-{index}",
            instances[index],
            None,
            topics[index],
            {topic_id: tuple(places) for topic_id, places in shares[index].items()},
        )
        for index in range(number)
    ], counts
