from tests.topics.stepped_stores import TopicStores, make, run

from lakelog.log.retention import Policy
from lakelog.model.ids import BrokerId
from lakelog.topics.broker_configs import ALL_BROKERS, BrokerConfigs, topic_layers
from lakelog.topics.changes import policies


def configs_in(stores: TopicStores) -> BrokerConfigs:
    return BrokerConfigs(stores.store.another(), BrokerId(1), {})


def test_streams_of_topics_that_drop_old_records_have_a_policy() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = stores.registry(), stores.registry()
        await there.current()
        by_time = await make(here, "time", 2, retention_ms="5")
        both = await make(here, "both", 1, retention_bytes="7", cleanup_policy="compact,delete")
        await make(here, "compacted", 1, cleanup_policy="compact")
        await make(here, "for-ever", 1, retention_ms="-1", retention_bytes="-9")
        assert await policies(there, configs_in(stores)) == {
            **dict.fromkeys(by_time.streams(), Policy(5, -1)),
            **dict.fromkeys(both.streams(), Policy(604_800_000, 7)),
        }

    run(scenario)


def test_records_are_kept_for_as_long_as_another_broker_was_told_just_now() -> None:
    async def scenario(stores: TopicStores) -> None:
        topics, here, there = stores.registry(), configs_in(stores), configs_in(stores)
        here.on_change(lambda: topics.use(topic_layers(here.altered())))
        topic = await make(topics, "t", 1)
        await there.alter(ALL_BROKERS, lambda _: {"log.retention.ms": "31536000000"})
        (stream,) = topic.streams()
        assert (await policies(topics, here))[stream] == Policy(31_536_000_000, -1)

    run(scenario)
