"""Mutated group events, checkpoint pages of groups, and the bytes that members send.

Only `Corrupt` escapes from events and pages; an event that can be read is judged, whatever it says,
and leaves a table that a checkpoint can hold (rule 10). The opaque bytes of members raise nothing.
"""

import random
from collections.abc import Callable
from functools import cache

from tests.fuzz.domain import INTERESTING

from lakelog.domain.pages import cut_group_pages, decode_group_page, encode_group_page
from lakelog.groups.classic_members import topics_of
from lakelog.groups.consumer import target_event
from lakelog.groups.events import (
    Adopt,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    Expire,
    ExpireOffsets,
    GroupEvent,
    Join,
    Leave,
    Resolved,
    Sync,
    TimerExpired,
    TopicsChanged,
    decode_group_event,
    encode_group_event,
)
from lakelog.groups.state import ConsumerGroup
from lakelog.groups.table import GroupTable
from lakelog.model.failures import Corrupt
from lakelog.model.ids import TopicId
from lakelog.wire.codec import (
    ConsumerAssignment,
    ConsumerSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from lakelog.wire.schema import ProtocolError

TOPIC = TopicId(b"T" * 16)
TOPICS = {"t": (TOPIC, 4)}
SUBSCRIPTION = encode_subscription(
    ConsumerSubscription(("t",), b"x", (ConsumerTopicPartitions("t", (0, 1)),), 3, "r")
)
ASSIGNMENT = encode_assignment(ConsumerAssignment((ConsumerTopicPartitions("t", (0, 1)),), b"x"))


def join(member_id: str, *, is_new: bool = True, instance_id: str | None = None) -> Join:
    """A consumer that joins the classic group."""
    protocols = (("range", SUBSCRIPTION), ("other", b""))
    times = (10_000, 60_000)
    return Join(
        "c", member_id, is_new, instance_id, "id", "/h", *times, "consumer", protocols, 1, 9, 0
    )


def beat(
    member_id: str, epoch: int, names: tuple[str, ...] | None, instance: str | None
) -> ConsumerHeartbeat:
    """A heartbeat in the consumer group."""
    owned = () if names is not None else ((TOPIC, (0, 1)),)
    told = (60_000 if names is not None else -1, names, None, "range", owned)
    return ConsumerHeartbeat(
        "k", member_id, epoch, instance, "rack", *told, "id", "/h", 45_000, 1, 9
    )


def _build() -> tuple[GroupTable, tuple[GroupEvent, ...]]:
    """A table with groups of all sorts, and the events that made it, and some more."""
    table = GroupTable()
    events: list[GroupEvent] = [
        join("a"),
        Sync("c", "a", None, 1, "consumer", "range", (("a", ASSIGNMENT),)),
        CommitOffsets("c", "a", None, 1, 9, 1_000, ((TOPIC, 0, 5, 0, "text"),)),
        join("b", instance_id="i"),
        beat("one", 0, ("t",), None),
        CommitOffsets("o", "", None, -1, 9, 1_000, ((TOPIC, 1, 5, -1, ""), (TOPIC, 2, 6, -1, ""))),
    ]
    for position, event in enumerate(events, start=1):
        table.apply(event, position=position)
    group = table.groups["k"]
    assert isinstance(group, ConsumerGroup)
    target = target_event(group, topics=TOPICS, assignor_default="uniform")
    table.apply(target, position=7)
    events += [
        target,
        beat("one", 1, None, None),
        beat("two", 0, ("t", "u"), "static"),
        beat("one", -2, None, "static"),
        Leave("c", (("a", None), ("", "i"))),
        Expire("c", "a", 0),
        Adopt("k", "one", 2),
        TimerExpired("c", 0, "", 2),
        DeleteOffsets("o", ((TOPIC, "t", 1),)),
        ExpireOffsets("o", ((TOPIC, "t", 1), (TOPIC, "", 2)), 9),
        DeleteGroup("o"),
        Resolved("k", "t.*", ("t",)),
        TopicsChanged("k", 77),
        join("a", is_new=False),
    ]
    return table, tuple(events)


@cache
def made() -> tuple[GroupTable, tuple[bytes, ...]]:
    """The table, which nobody changes, and the bytes of the events."""
    table, events = _build()
    return table, tuple(map(encode_group_event, events))


@cache
def pages() -> tuple[bytes, ...]:
    """The pages of the table."""
    table, _ = made()
    return tuple(map(encode_group_page, cut_group_pages(table, set(table.buckets()))))


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The bytes with a few of them changed, cut out or repeated."""
    body = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if not body:
            break
        at = chance.randrange(len(body))
        match chance.randrange(4):
            case 0:
                body[at] ^= 1 << chance.randrange(8)
            case 1:
                body[at] = chance.choice(INTERESTING)
            case 2:
                del body[at : at + chance.randint(1, 5)]
            case _:
                body[at:at] = body[at : at + chance.randint(1, 9)]
    return bytes(body)


def events(chance: random.Random) -> None:
    """Events that can be read are judged, one after another, and the table stays whole."""
    table, samples = made()
    copy = table.copied()
    for position in range(100, 103):
        try:
            event = decode_group_event(memoryview(mutated(chance, chance.choice(samples))))
        except Corrupt:
            continue
        after, outcome, _ = copy.preview(event)
        if not isinstance(event, DeleteOffsets | ExpireOffsets):
            assert copy.apply(event, position=position) == outcome
            assert copy.groups.get(event.group_id) == after
        else:
            copy.apply(event, position=position)
    for page in cut_group_pages(copy, set(copy.buckets())):
        content = encode_group_page(page)
        assert encode_group_page(decode_group_page(content)) == content


def group_pages(chance: random.Random) -> None:
    """A page that can be read is a page."""
    try:
        page = decode_group_page(mutated(chance, chance.choice(pages())))
    except Corrupt:
        return
    encode_group_page(page)


def metadata(chance: random.Random) -> None:
    """What members send is read, or it is not; it is never an error of ours."""
    data = mutated(chance, chance.choice((SUBSCRIPTION, ASSIGNMENT)))
    topics_of(data)
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except ProtocolError:
            continue


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "groups.events": events,
    "groups.pages": group_pages,
    "groups.metadata": metadata,
}
