"""What a cluster is asked: offsets and commits, of a broker of ours."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.client.feeding import FIRST_MS, Fed, create_topic, feed
from tests.lake.running import running_broker

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.kafka_client.admin import (
    EARLIEST_MS,
    LATEST_MS,
    LogBounds,
    OffsetOrFailure,
    TopicPartition,
    ask_offsets,
    at_coordinator,
    commit,
    find_ends,
    find_topics,
    list_offsets,
    load_committed,
)
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import BrokerError, UnknownTopic
from lakelog.kafka_client.settings import ClientSettings
from lakelog.model.errors import ErrorCode
from lakelog.retry import RetryDeadline

T = TypeVar("T")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(Path(tmp_path_factory.mktemp("broker"))) as broker:
        found = str(broker.running.address)
        create_topic(found, "t", 3)
        feed(found, "t", [Fed(at % 2, FIRST_MS + at * 10) for at in range(20)])
        yield found


def ask(bootstrap: str, work: Callable[[KafkaCluster, RetryDeadline], Awaitable[T]]) -> T:
    """Let something be done with a cluster."""

    async def run() -> T:
        settings = ClientSettings.parse({"bootstrap.servers": bootstrap, "retry.backoff.ms": 5})
        cluster = KafkaCluster(settings, clock=SystemClock(), entropy=SystemEntropy())
        await cluster.start()
        try:
            return await work(cluster, RetryDeadline(SystemClock(), 10.0))
        finally:
            await cluster.close()

    return asyncio.run(run())


def place(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def test_the_ends_of_logs_are_found(bootstrap: str) -> None:
    async def work(
        cluster: KafkaCluster, deadline: RetryDeadline
    ) -> dict[TopicPartition, LogBounds]:
        return await find_ends(cluster, [place(0), place(1), place(2)], deadline)

    assert ask(bootstrap, work) == {
        place(0): LogBounds(0, 10),
        place(1): LogBounds(0, 10),
        place(2): LogBounds(0, 0),
    }


def test_times_are_found_and_none_is_minus_one(bootstrap: str) -> None:
    wanted = {place(0): FIRST_MS + 101, place(1): FIRST_MS + 10**9}

    async def work(cluster: KafkaCluster, deadline: RetryDeadline) -> dict[TopicPartition, int]:
        return await list_offsets(cluster, wanted, deadline)

    assert ask(bootstrap, work) == {place(0): 6, place(1): -1}


def test_a_topic_that_is_not_there_is_named(bootstrap: str) -> None:
    async def work(cluster: KafkaCluster, deadline: RetryDeadline) -> object:
        return await find_topics(cluster, ["t", "none"], deadline)

    with pytest.raises(UnknownTopic, match="'none'"):
        ask(bootstrap, work)


def test_a_partition_that_is_not_there_is_an_error_in_time(bootstrap: str) -> None:
    async def work(cluster: KafkaCluster, _: RetryDeadline) -> object:
        short = RetryDeadline(SystemClock(), 1.0)
        return await list_offsets(cluster, {place(7): LATEST_MS, place(0): EARLIEST_MS}, short)

    with pytest.raises(BrokerError, match=r"t \[7\]: LEADER_NOT_AVAILABLE"):
        ask(bootstrap, work)


def test_a_commit_is_found_again_and_nothing_else(bootstrap: str) -> None:
    async def work(cluster: KafkaCluster, deadline: RetryDeadline) -> dict[TopicPartition, int]:
        places = [place(0), place(1)]
        assert await load_committed(cluster, "some", places, deadline) == {}
        await commit(cluster, "some", {place(1): 4}, deadline)
        return await load_committed(cluster, "some", places, deadline)

    assert ask(bootstrap, work) == {place(1): 4}


def test_a_commit_to_a_topic_that_is_not_there_is_an_error(bootstrap: str) -> None:
    async def work(cluster: KafkaCluster, _: RetryDeadline) -> None:
        await commit(cluster, "some", {place(9): 4}, RetryDeadline(SystemClock(), 1.0))

    with pytest.raises(BrokerError, match=r"group 'some' in t \[9\]: UNKNOWN_TOPIC_OR_PARTITION"):
        ask(bootstrap, work)


def test_all_commits_of_a_group_are_found_without_naming_them(bootstrap: str) -> None:
    async def work(cluster: KafkaCluster, deadline: RetryDeadline) -> dict[TopicPartition, int]:
        assert await load_committed(cluster, "all", None, deadline) == {}
        await commit(cluster, "all", {place(0): 1, place(2): 0}, deadline)
        return await load_committed(cluster, "all", None, deadline)

    assert ask(bootstrap, work) == {place(0): 1, place(2): 0}


def test_a_partition_that_cannot_be_asked_does_not_stop_the_others(bootstrap: str) -> None:
    async def work(
        cluster: KafkaCluster, deadline: RetryDeadline
    ) -> dict[TopicPartition, OffsetOrFailure]:
        return await ask_offsets(cluster, {place(7): LATEST_MS, place(0): LATEST_MS}, deadline)

    found = ask(bootstrap, work)
    assert found[place(0)] == 10
    assert str(found[place(7)]) == "t [7]: LEADER_NOT_AVAILABLE"


def test_a_coordinator_that_loads_is_asked_again_and_one_that_refuses_is_not(
    bootstrap: str,
) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]

    async def talk(_: BrokerConnection) -> str:
        if codes:
            raise BrokerError(codes.pop(), "group")
        return "answer"

    async def work(cluster: KafkaCluster, deadline: RetryDeadline) -> str:
        found = await at_coordinator(cluster, "group", talk, deadline)
        assert cluster.known_coordinator("group") is not None
        codes.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            await at_coordinator(cluster, "group", talk, deadline)
        return found

    assert ask(bootstrap, work) == "answer"
