import pytest
from msgspec.structs import replace
from tests.broker.consumer_members import assigned, beat, beat_request, join_request
from tests.broker.group_stage import GroupStage, run

from lakelog.broker.call import CloseConnection, Later
from lakelog.broker.lookup import PARTITIONS_MAX
from lakelog.groups.events import ConsumerHeartbeat
from lakelog.groups.state import GroupSettings
from lakelog.model.ids import ZERO_TOPIC_ID
from lakelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


@pytest.mark.parametrize("version", [0, 1])
def test_a_first_heartbeat_joins_and_gets_its_partitions(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        topic = stage.topic("t", 3)
        answer = await beat(stage, join_request("m", "t"), version)
        assert (answer.error_code, answer.error_message, answer.member_id) == (0, None, "m")
        assert answer.member_epoch > 0
        assert answer.heartbeat_interval_ms == 5_000
        assert assigned(answer) == {topic.id: (0, 1, 2)}

    run(scenario())


def test_a_heartbeat_that_changes_nothing_has_no_assignment() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t", 3)
        joined = await beat(stage, join_request("m", "t"))
        answer = await beat(stage, beat_request("m", joined.member_epoch))
        assert assigned(answer) is None
        assert answer.member_epoch == joined.member_epoch
        assert answer.heartbeat_interval_ms == 5_000

    run(scenario())


def test_how_often_to_come_back_may_be_chosen_for_a_group() -> None:
    class Chosen:
        def of(self, group_id: str) -> GroupSettings:
            return GroupSettings(
                session_timeout_ms=45_000,
                heartbeat_interval_ms=7_000 if group_id == "k" else 5_000,
                assignment_interval_ms=0,
            )

    async def scenario() -> None:
        stage = GroupStage()
        stage.groups.settings = Chosen()
        answer = await beat(stage, join_request("m", "t"))
        assert answer.heartbeat_interval_ms == 7_000
        other = await beat(stage, join_request("m", "t", group_id="other"))
        assert other.heartbeat_interval_ms == 5_000

    run(scenario())


def test_an_empty_assignment_is_not_an_unchanged_one() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        assert assigned(await beat(stage, join_request("m", "nosuch"))) == {}

    run(scenario())


def test_what_a_member_says_is_what_the_group_hears() -> None:
    async def scenario() -> None:
        stage = GroupStage().as_client(None)
        topic = stage.topic("t", 2)
        request = replace(
            join_request("m", "t", instance_id="i", rack_id="r"),
            server_assignor="range",
            subscribed_topic_regex="t.*",
        )
        joined = await beat(stage, request)
        assert joined.error_code == 0
        first = stage.groups.taken[-1]
        assert isinstance(first, ConsumerHeartbeat)
        assert (first.instance_id, first.rack_id, first.assignor) == ("i", "r", "range")
        assert (first.names, first.pattern, first.owned) == (("t",), "t.*", ())
        assert (first.client_id, first.client_host) == ("", "/127.0.0.2")
        assert first.rebalance_timeout_ms == 30_000
        owned = {topic.id: (1, 0)}
        await beat(stage, beat_request("m", joined.member_epoch, owned, instance_id="i"))
        second = stage.groups.taken[-1]
        assert isinstance(second, ConsumerHeartbeat)
        assert second.owned == ((topic.id, (0, 1)),)
        assert (second.names, second.pattern, second.rebalance_timeout_ms) == (None, None, -1)
        await beat(stage, beat_request("m", joined.member_epoch, instance_id="i"))
        third = stage.groups.taken[-1]
        assert isinstance(third, ConsumerHeartbeat)
        assert third.owned is None

    run(scenario())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"group_id": ""}, 42),
        ({"member_id": ""}, 42),
        ({"rebalance_timeout_ms": -1}, 42),
        ({"topic_partitions": None}, 42),
        ({"server_assignor": "nosuch"}, 112),
        ({"subscribed_topic_regex": "("}, 128),
        ({"member_epoch": 9}, 69),
    ],
)
def test_an_error_is_only_its_code_and_its_reason(change: dict[str, object], code: int) -> None:
    answer = run(beat(GroupStage(), replace(join_request("m", "t"), **change)))
    assert answer.error_message
    assert replace(answer, error_message=None) == ConsumerGroupHeartbeatResponse(error_code=code)


def test_a_member_that_leaves_is_not_told_to_come_back() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.topic("t")
        await beat(stage, join_request("s", "t", instance_id="i"))
        away = await beat(stage, beat_request("s", -2, instance_id="i"))
        assert (away.error_code, away.member_epoch, away.heartbeat_interval_ms) == (0, -2, 0)
        await beat(stage, join_request("m", "t"))
        left = await beat(stage, beat_request("m", -1))
        assert (left.error_code, left.member_id, left.member_epoch) == (0, "m", -1)
        assert left.heartbeat_interval_ms == 0
        assert assigned(left) is None

    run(scenario())


def test_a_heartbeat_has_its_place_in_the_log_when_the_handler_returns() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        stage.groups.is_held = True
        assert isinstance(await stage.begin(join_request("m", "t"), 1), Later)
        assert len(stage.groups.taken) == 1

    run(scenario())


def test_too_many_partitions_close_the_connection() -> None:
    request = beat_request("m", 1, {ZERO_TOPIC_ID: (0,) * (PARTITIONS_MAX + 1)})
    with pytest.raises(CloseConnection):
        run(beat(GroupStage(), request))
