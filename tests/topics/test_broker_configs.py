import asyncio
from collections.abc import Mapping
from functools import partial

import pytest
from tests.topics.stepped_stores import Fault, SteppedStore, Steps, TopicStores, make, run

from lakelog.meta import keys
from lakelog.meta.port import KeyValue
from lakelog.model.failures import Corrupt
from lakelog.model.ids import BrokerId
from lakelog.topics.broker_configs import ALL_BROKERS, BrokerConfigs, decode, encode, topic_layers
from lakelog.topics.config_values import ConfigSource
from lakelog.topics.failures import InvalidConfig, TooLarge

BYTES = "message.max.bytes"


def configs_in(stores: TopicStores, number: int = 1, steps: Steps | None = None) -> BrokerConfigs:
    store = SteppedStore(stores.store.another(), steps or Steps())
    return BrokerConfigs(store, BrokerId(number), {BYTES: "1"})


def _changed(name: str, value: str | None, old: Mapping[str, str]) -> dict[str, str]:
    kept = {key: text for key, text in old.items() if key != name}
    return kept if value is None else {**kept, name: value}


async def put(configs: BrokerConfigs, resource: str, value: str | None, name: str = BYTES) -> None:
    await configs.alter(resource, partial(_changed, name, value))


def shown(configs: BrokerConfigs) -> list[tuple[ConfigSource, str | None]]:
    return [(layer.source, layer.configs.get(BYTES)) for layer in configs.layers()]


def test_a_brokers_own_hide_those_of_all_and_those_hide_its_options() -> None:
    async def scenario(stores: TopicStores) -> None:
        one, two = configs_in(stores, 1), configs_in(stores, 2)
        await put(one, ALL_BROKERS, "30")
        await put(one, "1", "20")
        await two.current()
        assert shown(one) == [
            (ConfigSource.BROKER, "20"),
            (ConfigSource.DEFAULT_BROKER, "30"),
            (ConfigSource.STATIC, "1"),
        ]
        assert shown(two)[0] == (ConfigSource.BROKER, None)
        assert (one.below("1")[BYTES], one.below(ALL_BROKERS)[BYTES]) == ("30", "1")
        await put(two, ALL_BROKERS, None)
        await one.current()
        assert [value for _, value in shown(one)] == ["20", None, "1"]

    run(scenario)


def test_others_notice_within_about_a_second_and_once() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = configs_in(stores), configs_in(stores, 2)
        told: list[str | None] = []
        there.on_change(lambda: told.append(there.altered()[1].configs.get(BYTES)))
        watching = asyncio.ensure_future(there.run())
        await put(here, ALL_BROKERS, "30")
        await put(here, "1", "7")  # of no effect on the other
        await asyncio.sleep(2.5)
        assert told == ["30"]
        watching.cancel()

    run(scenario)


def test_two_writers_lose_nothing_of_each_other() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = configs_in(stores, 1), configs_in(stores, 2)
        await asyncio.gather(
            put(here, ALL_BROKERS, "30"),
            put(there, ALL_BROKERS, "9", "background.threads"),
            put(there, "2", "40"),
        )
        await here.current()
        await there.current()
        for_all = {BYTES: "30", "background.threads": "9"}
        assert here.altered()[1].configs == there.altered()[1].configs == for_all
        assert there.altered()[0].configs == {BYTES: "40"}

    run(scenario)


@pytest.mark.parametrize("fault", [Fault.SWALLOWED, Fault.LOST])
def test_an_unknown_outcome_is_settled_by_reading(fault: Fault) -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        here, there = configs_in(stores, steps=steps), configs_in(stores, 2)
        steps.faults = {steps.taken + 1: fault}
        await put(here, ALL_BROKERS, "30")
        assert shown(here)[1] == (ConfigSource.DEFAULT_BROKER, "30")
        await there.current()
        assert shown(there)[1] == (ConfigSource.DEFAULT_BROKER, "30")

    run(scenario)


def test_a_trial_and_a_refusal_change_nothing() -> None:
    async def scenario(stores: TopicStores) -> None:
        here = configs_in(stores)
        await here.alter(ALL_BROKERS, lambda _: {BYTES: "5"}, validate_only=True)
        with pytest.raises(InvalidConfig):
            await put(here, ALL_BROKERS, "-5")
        assert await stores.store.get(keys.BROKER_CONFIGS) is None
        assert shown(here)[1] == (ConfigSource.DEFAULT_BROKER, None)

    run(scenario)


def test_known_topics_follow_a_default_and_keep_what_they_set_themselves() -> None:
    async def scenario(stores: TopicStores) -> None:
        topics, configs = stores.registry(), configs_in(stores)
        configs.on_change(lambda: topics.use(topic_layers(configs.altered())))
        await make(topics, "own", 1, max_message_bytes="5")
        await make(topics, "plain", 1)
        await put(configs, ALL_BROKERS, "30")
        found = {topic.name: topic.settings.message_bytes_max for topic in topics.cached_all()}
        assert found == {"own": 5, "plain": 30}
        late = await make(topics, "late", 1)
        assert late.settings.message_bytes_max == 30
        await put(configs, ALL_BROKERS, None)
        assert {topic.settings.message_bytes_max for topic in topics.cached_all()} == {5, 1_048_588}

    run(scenario)


def test_a_default_that_contradicts_a_topic_leaves_its_key_readable() -> None:
    async def scenario(stores: TopicStores) -> None:
        topics, configs = stores.registry(), configs_in(stores)
        configs.on_change(lambda: topics.use(topic_layers(configs.altered())))
        await make(topics, "t", 1, max_compaction_lag_ms="10")
        await put(configs, ALL_BROKERS, "20", "log.cleaner.min.compaction.lag.ms")
        fresh = stores.registry()
        fresh.use(topics.layers)
        (found,) = await fresh.all()
        assert (found.settings.min_compaction_lag_ms, found.settings.max_compaction_lag_ms) == (
            20,
            10,
        )

    run(scenario)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"format":2,"configs":{}}'])
def test_a_key_that_cannot_be_read_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(KeyValue(keys.BROKER_CONFIGS, value, 1))


def test_the_key_has_a_limit() -> None:
    with pytest.raises(TooLarge):
        encode({ALL_BROKERS: {BYTES: "1" * (1 << 20)}})


def test_the_key_is_read_back_as_it_was_written() -> None:
    configs = {ALL_BROKERS: {BYTES: "1"}, "7": {"log.cleanup.policy": "compact,delete"}, "8": {}}
    read = decode(KeyValue(keys.BROKER_CONFIGS, encode(configs), 1))
    assert read == {name: own for name, own in configs.items() if own}
