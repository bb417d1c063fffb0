from tests.topics.stage import World, make, run

from lakelog.log.retention import Policy
from lakelog.topics.retention import policies


def test_streams_of_topics_that_drop_old_records_have_a_policy() -> None:
    async def scenario(world: World) -> None:
        here, there = world.registry(), world.registry()
        await there.current()
        by_time = await make(here, "time", 2, retention_ms="5")
        both = await make(here, "both", 1, retention_bytes="7", cleanup_policy="compact,delete")
        await make(here, "compacted", 1, cleanup_policy="compact")
        await make(here, "for-ever", 1, retention_ms="-1", retention_bytes="-9")
        assert await policies(there) == {
            **dict.fromkeys(by_time.streams(), Policy(5, -1)),
            **dict.fromkeys(both.streams(), Policy(604_800_000, 7)),
        }

    run(scenario)
