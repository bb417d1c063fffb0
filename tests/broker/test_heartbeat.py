import pytest
from tests.broker.classic_members import join_request, stable
from tests.broker.group_stage import GroupStage, run

from lakelog.broker.call import Later
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_is_answered_at_once_and_written_nowhere(version: int) -> None:
    async def scenario() -> None:
        stage = GroupStage()
        member = await stable(stage)
        written = len(stage.groups.taken)
        request = HeartbeatRequest("g", member.generation, member.member_id)
        assert not isinstance(await stage.begin(request, version), Later)
        assert await stage.ask(request, HeartbeatResponse, version) == HeartbeatResponse()
        assert len(stage.groups.taken) == written

    run(scenario())


def test_the_group_judges_the_member_its_generation_and_its_instance() -> None:
    async def scenario() -> None:
        stage = GroupStage()
        member = await stable(stage, instance_id="i1")

        async def code(
            member_id: str, generation: int, instance_id: str | None = None, group_id: str = "g"
        ) -> int:
            request = HeartbeatRequest(group_id, generation, member_id, instance_id)
            return (await stage.ask(request, HeartbeatResponse, 4)).error_code

        assert await code(member.member_id, member.generation, "i1") == 0
        assert await code("zz", member.generation, "i1") == 82
        assert await code(member.member_id, member.generation + 1) == 22
        assert await code("zz", member.generation) == 25
        assert await code(member.member_id, member.generation, group_id="none") == 25
        await stage.begin(join_request(), 3)
        assert await code(member.member_id, member.generation) == 27
        stage.groups.is_draining = True
        assert await code(member.member_id, member.generation) == 16

    run(scenario())
