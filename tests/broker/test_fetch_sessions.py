from collections import OrderedDict
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.profiles import examples

from lakelog.broker.fetch_sessions import (
    EPOCH_MAX,
    SESSION_PARTITIONS_MAX,
    Context,
    FetchAnswer,
    FetchSessions,
    FullFetch,
    Incremental,
    Key,
    Results,
    Sessionless,
    next_epoch,
    records_bytes,
)
from lakelog.clock import SeededEntropy
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchTopic,
)
from lakelog.wire.schema import RecordParts


def sessions(*, sessions_max: int = 1_000, partitions_max: int = 1_000) -> FetchSessions:
    return FetchSessions(
        SeededEntropy("sessions"), sessions_max=sessions_max, partitions_max=partitions_max
    )


def request(
    *partitions: int,
    session_id: int = 0,
    epoch: int = 0,
    forget: tuple[int, ...] = (),
    offset: int = 0,
) -> FetchRequest:
    asked = tuple(FetchPartition(partition=at, fetch_offset=offset) for at in partitions)
    gone = (FetchForgottenTopic(topic="t", topic_id=bytes(16), partitions=forget),)
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchTopic(topic="t", topic_id=bytes(16), partitions=asked),) if asked else (),
        forgotten_topics_data=gone if forget else (),
    )


def begin(
    store: FetchSessions, asked: FetchRequest, *, by_id: bool = False, now_s: float = 0.0
) -> Context:
    context = store.begin(asked, by_id=by_id, now_s=now_s)
    assert not isinstance(context, ErrorCode), context
    return context


def data(
    partition: int, *, head: int = 0, start: int = 0, code: int = 0, records: bytes = b""
) -> FetchPartitionData:
    if code:
        return FetchPartitionData(partition, code, -1)
    return FetchPartitionData(partition, 0, head, head, start, records=records)


def empty(context: Context) -> Results:
    return [(key, data(key[1])) for key in context.asked]


def opened(store: FetchSessions, *partitions: int, now_s: float = 0.0) -> int:
    context = begin(store, request(*partitions), now_s=now_s)
    return store.settle(context, empty(context), now_s=now_s).session_id


def shown(settled: FetchAnswer) -> list[int]:
    return [key[1] for key, _ in settled.results]


def test_a_full_request_gets_a_random_positive_id_also_without_topics() -> None:
    store = sessions()
    first, second = opened(store, 0), opened(store)
    assert 0 < first <= EPOCH_MAX
    assert 0 < second <= EPOCH_MAX
    assert first != second


def test_a_sessionless_request_has_id_0_and_closes_the_session_it_names() -> None:
    store = sessions()
    number = opened(store, 0)
    context = begin(store, request(0, session_id=number, epoch=-1))
    assert context == Sessionless({("t", 0): FetchPartition(partition=0)})
    assert store.settle(context, empty(context), now_s=0).session_id == 0
    assert store.begin(request(session_id=number, epoch=1), by_id=False, now_s=0) == 70


def test_a_full_request_drops_the_session_it_names_and_opens_another() -> None:
    store = sessions()
    number = opened(store, 0)
    context = begin(store, request(0, session_id=number))
    assert store.settle(context, empty(context), now_s=0).session_id != number
    assert len(store) == 1


def test_epochs_count_from_1_and_wrap_to_1() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(1) == 2
    assert next_epoch(EPOCH_MAX) == 1


def test_an_epoch_that_is_not_the_next_is_71_and_an_unknown_id_70() -> None:
    store = sessions()
    number = opened(store, 0)
    for epoch in (2, 5, -2, EPOCH_MAX):
        asked = request(session_id=number, epoch=epoch)
        assert store.begin(asked, by_id=False, now_s=0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    asked = request(session_id=number + 1, epoch=1)
    assert store.begin(asked, by_id=False, now_s=0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    begin(store, request(session_id=number, epoch=1))
    assert store.begin(request(session_id=number, epoch=1), by_id=False, now_s=0) == 71
    begin(store, request(session_id=number, epoch=2))


def test_a_session_of_names_is_not_used_with_ids_nor_the_reverse() -> None:
    store = sessions()
    number = opened(store, 0)
    asked = request(session_id=number, epoch=1)
    assert store.begin(asked, by_id=True, now_s=0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    context = begin(store, request(0), by_id=True)
    by_id = store.settle(context, empty(context), now_s=0).session_id
    asked = request(session_id=by_id, epoch=1)
    assert store.begin(asked, by_id=False, now_s=0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_incremental_request_reads_what_it_names_and_what_it_does_not() -> None:
    store = sessions()
    number = opened(store, 0, 1)
    context = begin(store, request(1, 2, session_id=number, epoch=1, offset=9))
    assert [key[1] for key in context.asked] == [0, 1, 2]
    assert [one.fetch_offset for one in context.asked.values()] == [0, 9, 9]
    context = begin(store, request(session_id=number, epoch=2, forget=(0, 7)))
    assert [key[1] for key in context.asked] == [1, 2]
    assert store.partitions == 2


def test_a_session_that_forgets_everything_is_closed_and_served_without_one() -> None:
    store = sessions()
    number = opened(store, 0)
    context = begin(store, request(session_id=number, epoch=1, forget=(0,)))
    assert context == Sessionless({})
    assert len(store) == store.partitions == 0


def test_an_incremental_answer_holds_only_what_changed() -> None:
    store = sessions()
    number = opened(store, 0, 1, 2, 3)
    context = begin(store, request(session_id=number, epoch=1))
    results: Results = [
        (("t", 0), data(0)),
        (("t", 1), data(1, head=5)),
        (("t", 2), data(2, start=3)),
        (("t", 3), data(3, records=b"x")),
    ]
    settled = store.settle(context, results, now_s=0)
    assert settled.session_id == number
    assert shown(settled) == [1, 2, 3]
    context = begin(store, request(session_id=number, epoch=2))
    again: Results = [(key, dict(results)[key]) for key in context.asked]
    assert shown(store.settle(context, again, now_s=0)) == [3]  # the marks of 1 and 2 are known


def test_a_partition_with_an_error_is_sent_every_time_and_once_more_when_it_heals() -> None:
    store = sessions()
    number = opened(store, 0)
    answers = []
    for epoch, code in enumerate((3, 3, 0, 0), start=1):
        context = begin(store, request(session_id=number, epoch=epoch))
        results: Results = [(("t", 0), data(0, code=code))]
        answers.append(shown(store.settle(context, results, now_s=0)))
    assert answers == [[0], [0], [0], []]


def test_a_new_partition_is_answered_once_even_when_it_is_empty() -> None:
    store = sessions()
    number = opened(store, 0)
    context = begin(store, request(1, session_id=number, epoch=1))
    assert shown(store.settle(context, empty(context), now_s=0)) == [1]
    context = begin(store, request(session_id=number, epoch=2))
    assert shown(store.settle(context, empty(context), now_s=0)) == []


def test_a_partition_that_had_records_moves_to_the_end() -> None:
    store = sessions()
    number = opened(store, 0, 1, 2)
    context = begin(store, request(session_id=number, epoch=1))
    results: Results = [
        (("t", 0), data(0, records=b"x")),
        (("t", 1), data(1)),
        (("t", 2), data(2, records=b"x")),
    ]
    store.settle(context, results, now_s=0)
    context = begin(store, request(session_id=number, epoch=2))
    assert [key[1] for key in context.asked] == [1, 0, 2]


def test_a_fetch_whose_session_moved_on_is_71_without_partitions() -> None:
    store = sessions()
    number = opened(store, 0)
    parked = begin(store, request(session_id=number, epoch=1))
    results = empty(parked)
    newer = begin(store, request(session_id=number, epoch=2))
    settled = store.settle(parked, results, now_s=0)
    assert (settled.code, settled.session_id, settled.results) == (71, 0, [])
    assert store.settle(newer, empty(newer), now_s=0).code == 0


def test_without_a_free_slot_the_id_is_0_until_a_session_has_been_idle_for_two_minutes() -> None:
    store = sessions(sessions_max=2)
    first, second = opened(store, 0, now_s=0), opened(store, 0, now_s=50)
    assert opened(store, 0, now_s=120) == 0
    begin(store, request(session_id=first, epoch=1), now_s=120)  # the second is the idlest now
    assert opened(store, 0, now_s=170) == 0
    third = opened(store, 0, now_s=170.1)
    assert third not in (0, first, second)
    assert store.begin(request(session_id=second, epoch=1), by_id=False, now_s=171) == 70
    assert len(store) == 2


def test_the_partitions_of_all_sessions_together_are_bounded() -> None:
    store = sessions(partitions_max=5)
    number = opened(store, 0, 1, 2)
    assert opened(store, 0, 1, 2) == 0
    assert opened(store, 0, 1) > 0
    asked = request(3, session_id=number, epoch=1)
    assert store.begin(asked, by_id=False, now_s=0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert store.partitions == 2


def test_a_session_does_not_grow_beyond_what_one_request_may_name() -> None:
    store = sessions(partitions_max=100_000)
    number = opened(store, *range(SESSION_PARTITIONS_MAX))
    asked = request(SESSION_PARTITIONS_MAX, session_id=number, epoch=1)
    assert store.begin(asked, by_id=False, now_s=0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert store.partitions == 0


def test_a_partition_named_twice_is_read_once_as_it_was_named_last() -> None:
    asked = FetchRequest(
        session_epoch=0,
        topics=(
            FetchTopic(topic="t", partitions=(FetchPartition(fetch_offset=1),)),
            FetchTopic(topic="t", partitions=(FetchPartition(fetch_offset=2),)),
        ),
    )
    context = begin(sessions(), asked)
    assert [one.fetch_offset for one in context.asked.values()] == [2]


@pytest.mark.parametrize(
    ("records", "size"), [(None, 0), (b"", 0), (b"abc", 3), (RecordParts([b"ab", b"c"], 3), 3)]
)
def test_record_bytes_are_counted_however_they_are_held(
    records: bytes | RecordParts | None, size: int
) -> None:
    assert records_bytes(FetchPartitionData(records=records)) == size


@dataclass
class ModelSession:
    """KIP-227 in the simplest words: what the client and the broker agree on."""

    epoch: int
    by_id: bool
    order: "OrderedDict[Key, int]"  # to the offset asked for
    told: dict[Key, tuple[int, int] | None] = field(default_factory=dict)


class SessionModel(RuleBasedStateMachine):
    """Random clients against one broker; the model knows only one rule at a time."""

    @initialize(slots=st.integers(1, 3))
    def start(self, slots: int) -> None:
        self.store = sessions(sessions_max=slots)
        self.slots = slots
        self.model: dict[int, ModelSession] = {}
        self.world: dict[int, tuple[int, int, int, int]] = {}

    @rule(
        partition=st.integers(0, 3),
        head=st.integers(0, 3),
        start=st.integers(0, 2),
        code=st.sampled_from([0, 0, 0, 3]),
        size=st.sampled_from([0, 0, 4]),
    )
    def change(self, partition: int, head: int, start: int, code: int, size: int) -> None:
        self.world[partition] = head, start, code, size

    def found(self, context: Context) -> Results:
        made: Results = []
        for key in context.asked:
            head, start, code, size = self.world.get(key[1], (0, 0, 0, 0))
            made.append((key, data(key[1], head=head, start=start, code=code, records=b"r" * size)))
        return made

    @rule(partitions=st.sets(st.integers(0, 3)), by_id=st.booleans(), drop=st.integers(0, 9))
    def full(self, partitions: set[int], by_id: bool, drop: int) -> None:
        known = list(self.model)
        dropped = known[drop] if drop < len(known) else 0
        context = begin(self.store, request(*sorted(partitions), session_id=dropped), by_id=by_id)
        self.model.pop(dropped, None)
        assert isinstance(context, FullFetch)
        results = self.found(context)
        settled = self.store.settle(context, results, now_s=0)
        assert settled.results == results
        if len(self.model) == self.slots:
            assert settled.session_id == 0
            return
        session = ModelSession(1, by_id, OrderedDict((key, 0) for key, _ in results))
        session.told = {key: marks(one) for key, one in results}
        self.model[settled.session_id] = session

    @rule(
        which=st.integers(0, 2),
        add=st.sets(st.integers(0, 3)),
        forget=st.sets(st.integers(0, 3)),
        by_id=st.booleans(),
        off=st.sampled_from([0, 0, 0, 0, 1, 7]),
    )
    def go_on(self, which: int, add: set[int], forget: set[int], by_id: bool, off: int) -> None:
        if which >= len(self.model):
            return
        number, session = list(self.model.items())[which]
        asked = request(
            *sorted(add),
            session_id=number,
            epoch=session.epoch + off,
            forget=tuple(sorted(forget)),
            offset=session.epoch,
        )
        context = self.store.begin(asked, by_id=by_id, now_s=0)
        if off:
            assert context == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return
        if by_id != session.by_id:
            assert context == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            return
        topic: str | bytes = bytes(16) if by_id else "t"
        for partition in sorted(add):
            session.order[topic, partition] = session.epoch
        for partition in forget:
            session.order.pop((topic, partition), None)
            session.told.pop((topic, partition), None)
        assert not isinstance(context, ErrorCode)
        if not session.order:
            assert isinstance(context, Sessionless)
            del self.model[number]
            return
        assert isinstance(context, Incremental)
        self._settle(session, context)

    def _settle(self, session: ModelSession, context: Incremental) -> None:
        assert {key: one.fetch_offset for key, one in context.asked.items()} == session.order
        assert list(context.asked) == list(session.order)
        results = self.found(context)
        expected = []
        for key, one in results:
            told = session.told.get(key)
            if one.error_code or records_bytes(one) or told != marks(one):
                expected.append((key, one))
                session.told[key] = marks(one)
                if records_bytes(one):
                    session.order.move_to_end(key)
        settled = self.store.settle(context, results, now_s=0)
        assert settled.results == expected
        session.epoch += 1

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.store) == len(self.model)
        assert self.store.partitions == sum(len(one.order) for one in self.model.values())


def marks(one: FetchPartitionData) -> tuple[int, int] | None:
    return None if one.error_code else (one.high_watermark, one.log_start_offset)


TestSessionModel = SessionModel.TestCase
TestSessionModel.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
