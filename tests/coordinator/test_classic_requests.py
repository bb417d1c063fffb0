"""Members of classic groups join, get assignments, are sent away or told to come back."""

import asyncio

from tests.coordinator.coordinator_cluster import (
    SESSION_MS,
    CoordinatorBroker,
    CoordinatorCluster,
    join_ask,
    joined,
    play,
    stable,
    sync_ask,
)

from lakelog.coordinator.options import GroupOptions
from lakelog.groups.events import Join, JoinAnswer, LeaveResult, Sync
from lakelog.groups.state import ClassicState
from lakelog.model.errors import ErrorCode

DELAYED = GroupOptions(initial_rebalance_delay_ms=3_000)


async def ids(broker: CoordinatorBroker, count: int) -> list[str]:
    """Member ids, given out and not used yet."""
    answers = await asyncio.gather(*(broker.join(join_ask()) for _ in range(count)))
    assert {answer.code for answer in answers} == {ErrorCode.MEMBER_ID_REQUIRED}
    return [answer.member_id for answer in answers]


async def together(brokers: list[CoordinatorBroker], member_ids: list[str]) -> list[JoinAnswer]:
    """The members join at the same time, spread over the brokers."""
    joins = [
        brokers[number % len(brokers)].join(join_ask(member_id))
        for number, member_id in enumerate(member_ids)
    ]
    return await asyncio.gather(*joins)


async def assigned(brokers: list[CoordinatorBroker], answers: list[JoinAnswer]) -> list[bytes]:
    """All members ask for their assignments, the leader last."""
    shares = tuple((answer.member_id, answer.member_id.encode()) for answer in answers)
    by_leader = sorted(range(len(answers)), key=lambda at: bool(answers[at].members))
    asked = {}
    for at in by_leader:
        answer = answers[at]
        given = shares if answer.member_id == answer.leader else ()
        broker = brokers[at % len(brokers)]
        asked[at] = broker.sync(sync_ask(answer.member_id, answer.generation, *given))
    synced = [await asked[at] for at in range(len(answers))]
    assert {answer.code for answer in synced} == {ErrorCode.NONE}
    return [answer.assignment for answer in synced]


def test_members_that_join_together_are_one_generation_and_get_what_the_leader_says() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        member_ids = await ids(broker, 3)
        answers = await together([broker], member_ids)
        assert {answer.generation for answer in answers} == {1}
        assert [len(answer.members) for answer in answers].count(3) == 1
        assert await assigned([broker], answers) == [name.encode() for name in member_ids]
        assert broker.classic().state is ClassicState.STABLE

    play(scenario, options=DELAYED)


def test_members_of_one_group_may_talk_to_different_brokers() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        member_ids = [*(await ids(one, 1)), *(await ids(two, 1))]
        answers = await together([one, two], member_ids)
        assert {(answer.code, answer.generation) for answer in answers} == {(ErrorCode.NONE, 1)}
        shares = await assigned([one, two], answers)
        assert shares == [name.encode() for name in member_ids]
        holders = {member.holder for member in one.classic().members.values()}
        assert holders == {1, 2}

    play(scenario, options=DELAYED)


def test_a_thousand_members_that_come_at_once_cost_one_rebalance() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answers = await together([broker], await ids(broker, 1_000))
        assert {(answer.code, answer.generation) for answer in answers} == {(ErrorCode.NONE, 1)}
        await assigned([broker], answers)
        assert broker.classic().state is ClassicState.STABLE
        assert cluster.loop.time() < 10.0
        appends = sum(mutation.kind == "append" for mutation in cluster.journal.mutations)
        assert appends < 100  # two thousand events share records

    play(scenario, options=DELAYED)


def test_an_id_that_nobody_gave_out_is_unknown() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        await stable(broker)
        answer = await broker.join(join_ask("made up"))
        assert (answer.code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "made up")

    play(scenario)


def test_an_id_that_was_given_out_is_good_for_a_session() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        early, late = await ids(broker, 2)
        await asyncio.sleep(SESSION_MS / 1000 - 1)
        assert (await broker.join(join_ask(early))).code is ErrorCode.NONE
        await asyncio.sleep(3)
        assert (await broker.join(join_ask(late))).code is ErrorCode.UNKNOWN_MEMBER_ID

    play(scenario)


def test_an_unused_id_may_leave_once() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        member = await stable(broker)
        (unused,) = await ids(broker, 1)
        leavers = [(unused, None), ("nobody", None), (member.member_id, None)]
        left = await broker.call(lambda: broker.coordinator.leave("g", leavers))
        assert isinstance(left, LeaveResult)
        assert left.codes == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE)
        again = await broker.call(lambda: broker.coordinator.leave("g", [(unused, None)]))
        assert isinstance(again, LeaveResult)
        assert again.codes == (ErrorCode.UNKNOWN_MEMBER_ID,)

    play(scenario)


def test_old_clients_and_static_members_join_at_once_under_a_minted_id() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        old = await broker.join(join_ask(api_version=3))
        assert old.code is ErrorCode.NONE
        assert old.member_id.startswith("client-")
        static = await broker.join(join_ask(group_id="other", instance_id="i"))
        assert static.code is ErrorCode.NONE
        assert static.member_id.startswith("i-")

    play(scenario)


def test_whom_the_group_does_not_understand_gets_no_id() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        await stable(broker)
        other = await broker.join(join_ask(protocol_type="connect"))
        assert (other.code, other.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")

    play(scenario)


def test_whom_the_group_has_no_room_for_gets_no_id() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        first, late = await ids(broker, 2)
        assert (await broker.join(join_ask(first))).code is ErrorCode.NONE
        for member_id in ("", late):
            full = await broker.join(join_ask(member_id))
            assert (full.code, full.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")

    play(scenario, options=GroupOptions(initial_rebalance_delay_ms=0, members_max=1))


def test_a_second_join_of_a_member_answers_the_first_with_27() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        (member_id,) = await ids(broker, 1)
        first = broker.join(join_ask(member_id))
        await asyncio.sleep(0.5)
        assert not first.done()
        second = broker.join(join_ask(member_id))
        assert (await first).code is ErrorCode.REBALANCE_IN_PROGRESS
        answer = await second
        assert (answer.code, answer.generation) == (ErrorCode.NONE, 1)

    play(scenario, options=DELAYED)


def test_a_second_sync_of_a_member_answers_the_first_with_27() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answers = await together([broker], await ids(broker, 2))
        follower = next(answer for answer in answers if not answer.members)
        leader = next(answer for answer in answers if answer.members)
        first = broker.sync(sync_ask(follower.member_id, 1))
        await asyncio.sleep(0.5)
        second = broker.sync(sync_ask(follower.member_id, 1))
        assert (await first).code is ErrorCode.REBALANCE_IN_PROGRESS
        shares = ((leader.member_id, b"l"), (follower.member_id, b"f"))
        assert (await broker.sync(sync_ask(leader.member_id, 1, *shares))).assignment == b"l"
        assert (await second).assignment == b"f"

    play(scenario, options=DELAYED)


def test_a_leader_that_dies_between_join_and_sync_does_not_hold_up_the_others() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answers = await together([broker], await ids(broker, 2))
        follower = next(answer for answer in answers if not answer.members)
        waiting = broker.sync(sync_ask(follower.member_id, 1))
        alive = asyncio.ensure_future(_beat_on(broker, follower.member_id))
        assert (await waiting).code is ErrorCode.REBALANCE_IN_PROGRESS
        alive.cancel()
        again = await broker.join(join_ask(follower.member_id))
        assert (again.generation, again.leader) == (2, follower.member_id)
        assert cluster.loop.time() < 2 * 3 + SESSION_MS / 1000 + 1

    play(scenario, options=DELAYED)


async def _beat_on(broker: CoordinatorBroker, member_id: str) -> None:
    while True:
        await asyncio.sleep(1)
        await broker.heartbeat(member_id, 1)


def test_a_large_assignment_goes_in_parts_and_arrives_whole() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answers = await together([broker], await ids(broker, 4))
        leader = next(answer for answer in answers if answer.members)
        shares = [
            (answer.member_id, bytes([number]) * 400_000) for number, answer in enumerate(answers)
        ]
        asked = [
            broker.sync(sync_ask(answer.member_id, 1, *(shares if answer is leader else [])))
            for answer in answers
        ]
        assert [(await one).assignment for one in asked] == [share for _, share in shares]
        parts = [event for event in cluster.written(Sync) if event.attempt]
        assert len(parts) == 4
        assert [part.is_last for part in parts] == [False, False, False, True]

    play(scenario, options=DELAYED)


def test_what_fits_into_no_record_goes_in_parts_and_what_is_beyond_all_is_refused() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        member = await stable(broker)
        huge = (("range", bytes(1_100_000)),)
        answer = await broker.join(join_ask(member.member_id, protocols=huge))
        assert answer.code is ErrorCode.NONE
        many = [(f"m{number}", bytes(300_000)) for number in range(30)]
        answer_many = await broker.sync(sync_ask(member.member_id, 2, *many))
        assert answer_many.code is ErrorCode.UNKNOWN_SERVER_ERROR
        one = sync_ask(member.member_id, 2, (member.member_id, bytes(1_700_000)))
        synced = await broker.sync(one)
        assert (synced.code, len(synced.assignment)) == (ErrorCode.NONE, 1_700_000)
        assert len(cluster.written(Sync)) == 1
        assert len(cluster.written_parts()) > 2

    play(scenario)


def test_a_follower_cannot_bring_assignments() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answers = await together([broker], await ids(broker, 2))
        follower = next(answer for answer in answers if not answer.members)
        broker.sync(sync_ask(follower.member_id, 1, (follower.member_id, b"all")))
        await asyncio.sleep(0.1)
        assert [event.assignments for event in cluster.written(Sync)] == [()]

    play(scenario, options=DELAYED)


def test_requests_without_a_group_id_are_refused() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        code = ErrorCode.INVALID_GROUP_ID
        assert (await broker.join(join_ask(group_id=""))).code is code
        assert (await broker.sync(sync_ask("m", 1, group_id=""))).code is code
        assert await broker.heartbeat("m", 1, group_id="") is code
        assert await broker.call(lambda: broker.coordinator.leave("", [("m", None)])) is code

    play(scenario)


def test_joins_whose_outcome_is_unknown_hear_15_and_may_come_again() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        (member_id,) = await ids(broker, 1)
        broker.faults.outage_until_s = cluster.loop.time() + 8
        answer = await broker.join(join_ask(member_id))
        assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(8)
        again = await broker.join(join_ask(member_id))
        assert again.code is ErrorCode.NONE
        assert list(broker.classic().members) == [member_id]

    play(scenario)


def test_a_static_leader_that_comes_back_is_told_not_to_assign() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        old = await broker.join(join_ask(instance_id="i"))
        asked = sync_ask(old.member_id, 1, (old.member_id, b"mine"))
        assert (await broker.sync(asked)).code is ErrorCode.NONE
        new = await broker.join(join_ask(instance_id="i"))
        assert (new.generation, new.skip_assignment) == (1, True)
        assert new.leader == new.member_id != old.member_id
        assert len(new.members) == 1
        older = await broker.join(join_ask(instance_id="i", api_version=8))
        assert (older.generation, older.skip_assignment, older.members) == (1, False, ())
        assert older.leader != older.member_id
        fenced = await broker.heartbeat(old.member_id, 1, instance_id="i")
        assert fenced is ErrorCode.FENCED_INSTANCE_ID

    play(scenario)


def test_events_are_queued_before_the_call_returns() -> None:
    """A commit or join that is sent before a leave is in the log before it."""

    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await joined(broker)

        async def pipelined() -> None:
            groups = broker.coordinator
            again = groups.join(join_ask(answer.member_id))
            left = groups.leave("g", [(answer.member_id, None)])
            assert (await left) == LeaveResult((ErrorCode.NONE,), (answer.member_id,))
            assert (await again).code in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}

        await broker.call(pipelined)
        assert len(cluster.written(Join)) == 2
        assert not broker.classic().members

    play(scenario)
