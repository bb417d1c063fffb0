import asyncio

import pytest
from tests.topics.stepped_stores import Fault, Steps, TopicStores, make, run

from lakelog.meta import keys
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.topics.changes import STREAMS_PER_CALL
from lakelog.topics.failures import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplication,
    InvalidTopic,
    NoSuchTopic,
    TooLarge,
    TopicExists,
)
from lakelog.topics.registry import PARTITIONS_MAX
from lakelog.topics.settings import TopicDefaults
from lakelog.topics.topic import Topic, TopicState


def test_a_topic_made_here_is_known_here_and_elsewhere_at_once() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = stores.registry(), stores.registry()
        made = await make(here, "orders", 3, retention_ms="5")
        assert here.cached("orders") == made
        found = await there.find("orders")
        assert found == made
        assert found.partition_count == 3
        assert found.settings.retention_ms == 5
        assert await there.find_id(made.id) == made
        assert await there.all() == (made,)
        assert await stores.check_at_rest() == {"orders": made}

    run(scenario)


def test_of_two_brokers_that_create_one_name_one_wins() -> None:
    async def scenario(stores: TopicStores) -> None:
        brokers = [stores.registry() for _ in range(2)]
        outcomes = await asyncio.gather(
            *(make(broker, "orders", 1 + number) for number, broker in enumerate(brokers)),
            return_exceptions=True,
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Topic", "TopicExists"]
        topics = await stores.check_at_rest()
        assert list(topics.values()) == [o for o in outcomes if not isinstance(o, Exception)]

    run(scenario)


def test_a_crowd_that_needs_a_topic_makes_one() -> None:
    async def scenario(stores: TopicStores) -> None:
        brokers = [stores.registry() for _ in range(2)]
        found = await asyncio.gather(
            *(
                broker.ensure("orders", partitions=2, replication_factor=1)
                for broker in brokers
                for _ in range(100)
            )
        )
        assert len({topic.id for topic in found}) == 1
        assert len(await stores.check_at_rest()) == 1
        assert len(stores.streams.alive) == 2

    run(scenario)


def test_names_that_differ_in_dots_never_both_come_to_be() -> None:
    async def scenario(stores: TopicStores) -> None:
        for attempt in range(20):
            brokers = [stores.registry() for _ in range(3)]
            names = [f"a.b{attempt}", f"a_b{attempt}", f"a.b{attempt}"]
            await asyncio.gather(
                *(make(broker, name) for broker, name in zip(brokers, names, strict=True)),
                return_exceptions=True,
            )
            await stores.settle(brokers[0])
            topics = await stores.check_at_rest()
            assert len({f"a.b{attempt}", f"a_b{attempt}"} & set(topics)) <= 1

    run(scenario)


def test_a_name_that_collides_is_refused_and_the_other_named() -> None:
    async def scenario(stores: TopicStores) -> None:
        await make(stores.registry(), "a.b")
        with pytest.raises(InvalidTopic, match=r"'a_b' collides with existing topic: a\.b"):
            await make(stores.registry(), "a_b")
        topics = stores.registry()
        await make(topics, "a-b")
        with pytest.raises(TopicExists):
            await make(topics, "a.b")

    run(scenario)


def test_a_colliding_name_is_free_again_once_the_other_is_gone() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = stores.registry(), stores.registry()
        made = await make(here, "a.b")
        await there.delete(made)
        await make(here, "a_b")
        assert set(await stores.check_at_rest()) == {"a_b"}

    run(scenario)


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "configs", "failure"),
    [
        (0, 1, {}, InvalidPartitions),
        (-5, 1, {}, InvalidPartitions),
        (PARTITIONS_MAX + 1, 1, {}, TooLarge),
        (1, 0, {}, InvalidReplication),
        (1, 1, {"nosuch": "1"}, InvalidConfig),
        (1, 1, {"leader.replication.throttled.replicas": "0:1," * 300_000 + "0:1"}, TooLarge),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    partitions: int,
    replication_factor: int,
    configs: dict[str, str],
    failure: type[Exception],
) -> None:
    async def scenario(stores: TopicStores) -> None:
        topics = stores.registry()
        with pytest.raises(failure):
            await topics.create(
                "orders",
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )
        assert await stores.check_at_rest() == {}

    run(scenario)


def test_validation_writes_nothing_and_answers_like_the_real_thing() -> None:
    async def scenario(stores: TopicStores) -> None:
        topics = stores.registry()
        draft = await topics.create(
            "orders", partitions=4, replication_factor=3, configs={}, validate_only=True
        )
        assert (draft.partition_count, draft.replication_factor) == (4, 3)
        assert await stores.store.range(keys.ROOT) == []

    run(scenario)


def test_a_hundred_thousand_partitions_are_made_and_dropped_piece_by_piece() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        made = await make(topics, "huge", PARTITIONS_MAX)
        assert made.stream(99_999) == 100_000
        await topics.delete(made)
        pieces = -(-PARTITIONS_MAX // STREAMS_PER_CALL)
        assert steps.names.count("create") == steps.names.count("drop") == pieces
        assert await stores.check_at_rest() == {}

    run(scenario)


def test_a_deleted_topic_is_gone_everywhere_and_made_again_it_is_another() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = stores.registry(), stores.registry()
        made = await make(here, "orders")
        await there.current()
        await here.delete(made)
        assert here.cached("orders") is None
        assert here.cached_id(made.id) is None
        assert await there.all() == ()
        with pytest.raises(NoSuchTopic):
            await there.delete(made)
        again = await make(there, "orders")
        assert again.id != made.id
        assert not set(again.streams()) & set(made.streams())
        with pytest.raises(NoSuchTopic):
            await here.grow(made, 9)
        assert await stores.check_at_rest() == {"orders": again}

    run(scenario)


def test_a_topic_grows_and_keeps_its_streams() -> None:
    async def scenario(stores: TopicStores) -> None:
        topics = stores.registry()
        made = await make(topics, "orders", 2)
        await make(topics, "between", 1)
        grown = await topics.grow(made, 5)
        assert grown.streams()[:2] == made.streams()
        assert grown.partition_count == 5
        assert len(grown.spans) == 2
        for count, reason in ((5, "already has 5"), (4, "would not be an increase")):
            with pytest.raises(InvalidPartitions, match=reason):
                await topics.grow(made, count)
        with pytest.raises(TooLarge):
            await topics.grow(made, PARTITIONS_MAX + 1)
        assert (await topics.grow(made, 7, validate_only=True)).partition_count == 5
        assert set(await stores.check_at_rest()) == {"orders", "between"}

    run(scenario)


def test_brokers_that_let_a_topic_grow_at_once_agree_in_the_end() -> None:
    async def scenario(stores: TopicStores) -> None:
        made = await make(stores.registry(), "orders", 1)
        brokers = [stores.registry() for _ in range(4)]
        await asyncio.gather(
            *(broker.grow(made, 2 + number % 3) for number, broker in enumerate(brokers)),
            return_exceptions=True,
        )
        topics = await stores.check_at_rest()
        assert topics["orders"].partition_count == 4

    run(scenario)


def test_deletion_while_partitions_are_made_leaves_nothing() -> None:
    async def scenario(stores: TopicStores) -> None:
        async def late(made: Topic, delay: int) -> None:
            for _ in range(delay):
                await asyncio.sleep(0)
            await stores.registry().delete(made)

        grown = []
        for delay in range(40):
            made = await make(stores.registry(), "orders", 1)
            growth, deletion = await asyncio.gather(
                stores.registry().grow(made, 9), late(made, delay), return_exceptions=True
            )
            assert deletion is None
            assert isinstance(growth, Topic | NoSuchTopic)
            grown.append(isinstance(growth, Topic))
            assert await stores.check_at_rest() == {}
        assert set(grown) == {False, True}

    run(scenario)


def test_configs_are_altered_from_what_they_are_now() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = stores.registry(), stores.registry()
        made = await make(here, "orders", segment_ms="1")
        await asyncio.gather(
            here.alter(made, lambda old: {**old, "retention.ms": "7"}),
            there.alter(made, lambda old: {**old, "retention.bytes": "8"}),
        )
        changed = (await stores.check_at_rest())["orders"]
        assert changed.configs == {
            "segment.ms": "1",
            "retention.ms": "7",
            "retention.bytes": "8",
        }
        checked = await here.alter(made, lambda _: {}, validate_only=True)
        assert checked.configs == {}
        assert (await stores.check_at_rest())["orders"] == changed
        with pytest.raises(InvalidConfig):
            await here.alter(made, lambda _: {"nosuch": "1"})

    run(scenario)


def test_settings_of_stored_topics_follow_the_brokers_defaults() -> None:
    async def scenario(_: TopicStores) -> None:
        stores = TopicStores(TopicDefaults(retention_ms=77))
        made = await make(stores.registry(), "orders")
        assert made.settings.retention_ms == 77
        assert made.configs == {}
        found = await stores.registry().find("orders")
        assert found is not None
        assert found.settings.retention_ms == 77

    run(scenario)


def test_deletion_succeeds_once_nobody_sees_the_topic_and_frees_it_later() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        made = await make(topics, "orders")
        steps.names.clear()
        steps.taken = 0
        steps.faults = {3: Fault.UNAVAILABLE}  # get, put DELETING, revision, drop
        await topics.delete(made)
        assert steps.names[3] == "drop"
        key = await stores.key("orders")
        assert key is not None
        assert key.state is TopicState.DELETING
        assert topics.cached("orders") is None
        await stores.settle(stores.registry())
        assert await stores.check_at_rest() == {}

    run(scenario)


def test_a_creation_that_was_cut_short_succeeds_when_it_is_asked_for_again() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        steps.faults = {4: Fault.LOST}  # get, counter get and put, put CREATING, create
        with pytest.raises(OutcomeUnknown):
            await make(topics, "orders")
        assert steps.names[4] == "create"
        with pytest.raises(TopicExists):
            await make(stores.registry(), "orders")
        made = await make(topics, "orders")
        with pytest.raises(TopicExists):
            await make(topics, "orders")
        assert await stores.check_at_rest() == {"orders": made}

    run(scenario)


def test_another_shape_is_not_taken_for_the_creation_that_was_cut_short() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        steps.faults = {4: Fault.LOST}
        with pytest.raises(OutcomeUnknown):
            await make(topics, "orders", 3)
        with pytest.raises(TopicExists):
            await make(topics, "orders", 4)

    run(scenario)


def test_a_growth_that_was_cut_short_succeeds_when_it_is_asked_for_again() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        made = await make(topics, "orders", 1)
        steps.names.clear()
        steps.taken = 0
        steps.faults = {4: Fault.UNAVAILABLE}
        with pytest.raises(Unavailable):
            await topics.grow(made, 3)
        assert steps.names[4] == "create"
        assert (await stores.registry().grow(made, 3)).partition_count == 3
        with pytest.raises(InvalidPartitions):
            await topics.grow(made, 3)
        await stores.check_at_rest()

    run(scenario)
