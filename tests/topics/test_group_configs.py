import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topics.stepped_stores import Fault, SteppedStore, Steps, TopicStores, run, run_virtual

from lakelog.groups.state import GroupSettings
from lakelog.meta import keys
from lakelog.meta.port import KeyValue
from lakelog.model.failures import Conflict, Corrupt, Failure, Unavailable
from lakelog.topics.failures import InvalidConfig, TooLarge
from lakelog.topics.group_configs import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupConfigCache,
    GroupConfigs,
    decode,
    encode,
    key_name,
)

DEFAULTS = GroupSettings(
    session_timeout_ms=45_000, heartbeat_interval_ms=5_000, assignment_interval_ms=1_000
)
HOSTILE = ("", "a/b", "../topics/t", "ä \n%\0☃", "x" * 30_000)


def configs_in(stores: TopicStores, steps: Steps | None = None) -> GroupConfigs:
    return GroupConfigs(
        SteppedStore(stores.store.another(), steps or Steps()), stores.clock, DEFAULTS
    )


def _changed(name: str, value: str | None, old: Mapping[str, str]) -> dict[str, str]:
    kept = {key: text for key, text in old.items() if key != name}
    return kept if value is None else {**kept, name: value}


async def put(configs: GroupConfigs, group_id: str, name: str, value: str | None) -> None:
    await configs.alter(group_id, partial(_changed, name, value))


def test_what_a_broker_changes_it_knows_at_once() -> None:
    async def scenario(stores: TopicStores) -> None:
        configs = configs_in(stores)
        assert configs.of("g") is DEFAULTS
        await put(configs, "g", HEARTBEAT_INTERVAL, " 6000")
        assert configs.of("g").heartbeat_interval_ms == 6_000
        assert configs.own("g") == {HEARTBEAT_INTERVAL: "6000"}
        assert (configs.of("h"), configs.own("h")) == (DEFAULTS, {})
        await put(configs, "g", SESSION_TIMEOUT, "50000")
        assert configs.of("g").session_timeout_ms == 50_000
        assert configs.of("g").heartbeat_interval_ms == 6_000

    run(scenario)


def test_others_know_it_when_they_look_and_know_what_was_taken_back() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = configs_in(stores), configs_in(stores)
        await there.current()
        await put(here, "g", HEARTBEAT_INTERVAL, "6000")
        await put(here, "f", HEARTBEAT_INTERVAL, "7000")
        assert there.group_ids() == []
        await there.current()
        assert there.of("g").heartbeat_interval_ms == 6_000
        assert there.group_ids() == ["f", "g"]
        await put(there, "g", HEARTBEAT_INTERVAL, None)
        assert there.of("g") is DEFAULTS
        await here.current()
        assert here.of("g") is DEFAULTS
        assert here.group_ids() == there.group_ids() == ["f"]
        assert await stores.store.get(keys.group_configs("g")) is None

    run(scenario)


def test_a_broker_looks_about_once_a_second_and_reads_only_what_moved() -> None:
    async def scenario() -> None:
        stores, steps = TopicStores(), Steps()
        configs = configs_in(stores, steps)
        task = asyncio.create_task(configs.run())
        await asyncio.sleep(10.5)
        looks = sum(name.startswith("get") for name in steps.names)
        readings = sum(name.startswith("range") for name in steps.names)
        assert (looks, readings) == (11, 1)
        await put(configs_in(stores), "g", HEARTBEAT_INTERVAL, "6000")
        steps.faults = {steps.taken: Fault.UNAVAILABLE}
        await asyncio.sleep(2.5)
        assert configs.of("g").heartbeat_interval_ms == 6_000
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(scenario())


def test_a_change_that_is_refused_or_only_tried_changes_nothing() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        configs = configs_in(stores, steps)
        with pytest.raises(InvalidConfig):
            await put(configs, "g", HEARTBEAT_INTERVAL, "1")
        with pytest.raises(InvalidConfig):
            await put(configs, "g", "no.such.config", "1")
        change = partial(_changed, HEARTBEAT_INTERVAL, "6000")
        await configs.alter("g", change, validate_only=True)
        await put(configs, "g", HEARTBEAT_INTERVAL, None)
        assert not [name for name in steps.names if name.startswith("put")]
        assert configs.group_ids() == []

    run(scenario)


@pytest.mark.parametrize("group_id", HOSTILE)
def test_the_id_of_a_group_may_be_anything(group_id: str) -> None:
    async def scenario(stores: TopicStores) -> None:
        await put(configs_in(stores), group_id, HEARTBEAT_INTERVAL, "6000")
        there = configs_in(stores)
        await there.current()
        assert there.group_ids() == [group_id]
        (found,) = await stores.store.range(keys.GROUP_CONFIGS)
        assert len(found.key) == len(keys.GROUP_CONFIGS) + 40

    run(scenario)


def test_a_name_that_no_key_can_hold_is_too_large() -> None:
    with pytest.raises(TooLarge):
        encode("x" * (1 << 20), {})


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.SWALLOWED])
@pytest.mark.parametrize("value", ["6000", None])
def test_a_change_of_unknown_outcome_is_made_and_announced(fault: Fault, value: str | None) -> None:
    async def scenario(stores: TopicStores) -> None:
        await put(configs_in(stores), "g", HEARTBEAT_INTERVAL, "7000")
        steps = Steps()
        here, there = configs_in(stores, steps), configs_in(stores)
        await there.current()
        steps.faults = {1: fault}
        await put(here, "g", HEARTBEAT_INTERVAL, value)
        await there.current()
        expected = {} if value is None else {HEARTBEAT_INTERVAL: value}
        assert here.own("g") == there.own("g") == expected

    run(scenario)


class ContendedStore(SteppedStore):
    """Another broker is always faster."""

    async def put(self, key: str, *_: object, **__: object) -> int:
        raise Conflict(key)


def test_a_key_that_is_changed_without_end_is_given_up() -> None:
    async def scenario(stores: TopicStores) -> None:
        configs = GroupConfigs(ContendedStore(stores.store, Steps()), stores.clock, DEFAULTS)
        with pytest.raises(Unavailable):
            await put(configs, "g", HEARTBEAT_INTERVAL, "6000")

    run(scenario)


@pytest.mark.parametrize("seed", range(30))
def test_any_mixture_of_changes_is_known_to_all_in_the_end(seed: int) -> None:
    async def scenario(stores: TopicStores) -> None:
        chance = random.Random(seed)

        async def change_at_random(configs: GroupConfigs, steps: Steps) -> None:
            for _ in range(10):
                if chance.random() < 0.3:
                    fault = chance.choice([Fault.LOST, Fault.SWALLOWED, Fault.UNAVAILABLE])
                    steps.faults[steps.taken + chance.randrange(4)] = fault
                with suppress(Failure):
                    name = chance.choice([HEARTBEAT_INTERVAL, SESSION_TIMEOUT])
                    number = {HEARTBEAT_INTERVAL: 6_000, SESSION_TIMEOUT: 50_000}[name]
                    value = chance.choice([None, str(number + chance.randrange(9))])
                    await put(configs, chance.choice("abc"), name, value)
                    await configs.current()

        brokers = [(configs_in(stores, steps), steps) for steps in (Steps(), Steps(), Steps())]
        await asyncio.gather(*(change_at_random(*broker) for broker in brokers))
        stores.clock.advance(31)
        found = await stores.store.range(keys.GROUP_CONFIGS)
        written = {one.group_id: one.configs for one in (decode(key, DEFAULTS) for key in found)}
        for configs, steps in brokers:
            steps.faults.clear()
            await configs.current()
            assert {group: configs.own(group) for group in configs.group_ids()} == written

    run(scenario)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"format":2}',
        b'{"format":1,"group_id":"g"}',
        b'{"format":1,"group_id":"other","configs":{}}',
        b'{"format":1,"group_id":"g","configs":{"consumer.session.timeout.ms":"x"}}',
    ],
)
def test_a_key_that_cannot_be_read_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(KeyValue(keys.group_configs("g"), value, 1), DEFAULTS)


@given(st.text(), st.sampled_from(("45000", "50000", "60000")))
def test_a_key_says_what_was_written(group_id: str, text: str) -> None:
    value = encode(group_id, {SESSION_TIMEOUT: text})
    record = decode(KeyValue(keys.group_configs(group_id), value, 3), DEFAULTS)
    assert (record.group_id, record.version) == (group_id, 3)
    assert record.configs == {SESSION_TIMEOUT: text}
    assert record.settings.session_timeout_ms == int(text)


def key_value(group_id: str, version: int) -> KeyValue:
    value = encode(group_id, {SESSION_TIMEOUT: str(45_000 + version)})
    return KeyValue(keys.group_configs(group_id), value, version)


BEFORE, WITHIN, AFTER = range(3)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(BEFORE, AFTER))).map(
        lambda changes: sorted(changes, key=itemgetter(2))
    )
)
def test_what_was_learnt_while_all_was_read_outlives_the_reading(
    changes: list[tuple[str, bool, int]],
) -> None:
    """Changes come before a reading begins, before and after the store reads; all are known."""
    known = GroupConfigCache(DEFAULTS)
    store: dict[str, KeyValue] = {}

    def change(phase: int) -> None:
        for version, (group_id, is_put, when) in enumerate(changes, 1):
            if when == phase and is_put:
                store[group_id] = key_value(group_id, version)
                known.learn(decode(store[group_id], DEFAULTS))
            elif when == phase and group_id in store:
                gone = store.pop(group_id)
                known.forget(key_name(group_id), version=gone.version)

    change(BEFORE)
    with known.scan() as scan:
        change(WITHIN)
        found = list(store.values())
        change(AFTER)
        known.install(scan, found)
    expected = {group_id: one.version for group_id, one in store.items()}
    assert {group: one.version for group, one in known.by_group.items()} == expected


def test_a_key_that_came_after_it_was_found_absent_is_not_forgotten() -> None:
    known = GroupConfigCache(DEFAULTS)
    name = key_name("g")
    version = known.version(name)
    known.learn(decode(key_value("g", 5), DEFAULTS))
    known.forget(name, version=version)
    assert list(known.by_group) == ["g"]
    known.learn(decode(key_value("g", 4), DEFAULTS))
    assert known.version(name) == 5
