"""`lakelog topics`: create, list, describe, alter, delete."""

import base64
from typing import Final, TypeVar

import click
from msgspec import Struct

from lakelog.cli.command import (
    ClientConfig,
    check,
    converse,
    json_option,
    kafka_options,
    show,
    show_json,
    show_rows,
)
from lakelog.kafka_client.admin import TopicPartition, find_ends, find_topics
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import BrokerError, UnknownTopic
from lakelog.kafka_client.metadata import TopicMetadata
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lakelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from lakelog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

TIMEOUT_MS: Final = 30_000
CREATED_S_MAX: Final = 5.0
"""So long is waited for a topic that a broker makes by itself."""

TOPIC_RESOURCE: Final = 2
SET, DELETE = 0, 1
AnswerT = TypeVar("AnswerT", bound=Struct)

SOURCES: Final = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster (dynamic)",
    4: "broker (static)",
    5: "default",
}


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--partitions", "-p", type=int, default=-1, help="Default: what the broker says.")
@click.option("--replicas", "-r", type=int, default=-1, help="Accepted; storage replicates.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE")
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic is there already.")
@kafka_options("--command-config")
@json_option
def create(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    names: tuple[str, ...],
    partitions: int,
    replicas: int,
    configs: tuple[str, ...],
    if_not_exists: bool,
    kafka: ClientConfig,
    as_json: bool,
) -> None:
    """Create topics.

    \b
      lakelog topics create orders --partitions 6 --config retention.ms=86400000
    """
    pairs = _pairs(configs)
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name,
                partitions,
                replicas,
                configs=tuple(CreatableTopicConfig(key, value) for key, value in pairs),
            )
            for name in names
        ),
        timeout_ms=TIMEOUT_MS,
    )
    answer = converse(kafka, lambda cluster: _change(cluster, request, CreateTopicsResponse))
    rows = []
    failed = False
    for found in answer.topics:
        fine = not found.error_code or (
            if_not_exists and found.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        )
        failed = failed or not fine
        status = "OK" if not found.error_code else _said(found.error_code, found.error_message)
        rows.append({"topic": found.name, "status": status, "partitions": found.num_partitions})
    show_rows(("topic", "status"), rows, as_json=as_json)
    if failed:
        raise click.exceptions.Exit(1)


@topics.command(name="list")
@kafka_options()
@json_option
def list_topics(kafka: ClientConfig, as_json: bool) -> None:
    """List the topics."""
    found = converse(kafka, lambda cluster: cluster.topics(None))
    rows = [
        {"topic": topic.name, "partitions": len(topic.partitions), "id": _id(topic.topic_id)}
        for topic in sorted(found.values(), key=lambda topic: topic.name)
    ]
    show_rows(("topic", "partitions", "id"), rows, as_json=as_json)


@topics.command()
@click.argument("name")
@kafka_options()
@json_option
def describe(name: str, kafka: ClientConfig, as_json: bool) -> None:
    """Show a topic's partitions, offsets and configs with their sources."""
    found = converse(kafka, lambda cluster: _describe(cluster, name))
    if as_json:
        show_json(found)
        return
    show(f"Topic {found['topic']}  id {found['id']}\n")
    partitions, configs = found["partitions"], found["configs"]
    assert isinstance(partitions, list)
    assert isinstance(configs, list)
    show_rows(("partition", "leader", "start", "end"), partitions, as_json=False)
    show("")
    show_rows(("config", "value", "source"), configs, as_json=False)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@kafka_options()
@json_option
def delete(names: tuple[str, ...], yes: bool, kafka: ClientConfig, as_json: bool) -> None:
    """Delete topics with all their records."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)} and all records in it?", abort=True, err=True)
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name) for name in names),
        topic_names=names,
        timeout_ms=TIMEOUT_MS,
    )
    answer = converse(kafka, lambda cluster: _change(cluster, request, DeleteTopicsResponse))
    rows = [
        {
            "topic": found.name,
            "status": _said(found.error_code, found.error_message) if found.error_code else "OK",
        }
        for found in answer.responses
    ]
    show_rows(("topic", "status"), rows, as_json=as_json)
    if any(found.error_code for found in answer.responses):
        raise click.exceptions.Exit(1)


@topics.command()
@click.argument("name")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", help="Set.")
@click.option("--unset", "-u", multiple=True, metavar="KEY", help="Back to the default.")
@click.option("--partitions", "-p", type=int, help="Grow to this number.")
@kafka_options("--command-config")
def alter(
    name: str,
    configs: tuple[str, ...],
    unset: tuple[str, ...],
    partitions: int | None,
    kafka: ClientConfig,
) -> None:
    """Change a topic's configs, or give it more partitions.

    \b
      lakelog topics alter orders --config retention.ms=3600000 --unset max.message.bytes
    """
    changes = [
        *(
            IncrementalAlterConfigsAlterableConfig(key, SET, value)
            for key, value in _pairs(configs)
        ),
        *(IncrementalAlterConfigsAlterableConfig(key, DELETE, None) for key in unset),
    ]
    if not changes and partitions is None:
        raise click.UsageError("Say what to change: --config, --unset or --partitions.")

    async def talk(cluster: KafkaCluster) -> None:
        if changes:
            await _alter_configs(cluster, name, changes)
        if partitions is not None:
            await _grow(cluster, name, partitions)

    converse(kafka, talk)
    show(f"{name} altered")


async def _alter_configs(
    cluster: KafkaCluster, name: str, changes: list[IncrementalAlterConfigsAlterableConfig]
) -> None:
    resource = IncrementalAlterConfigsResource(TOPIC_RESOURCE, name, tuple(changes))
    request = IncrementalAlterConfigsRequest((resource,))
    answer = await _change(cluster, request, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        check(result.error_code, result.error_message, about=name)


async def _grow(cluster: KafkaCluster, name: str, count: int) -> None:
    request = CreatePartitionsRequest((CreatePartitionsTopic(name, count, None),), TIMEOUT_MS)
    answer = await _change(cluster, request, CreatePartitionsResponse)
    for result in answer.results:
        check(result.error_code, result.error_message, about=name)


async def _change(cluster: KafkaCluster, request: Struct, answer: type[AnswerT]) -> AnswerT:
    """Ask for a change, once: nobody knows whether one that was not answered was made."""
    connection = await cluster.controller()
    return await connection.call(request, answer)


async def find_topic(cluster: KafkaCluster, name: str) -> TopicMetadata:
    """A topic with its partitions; raises BrokerError if it is not there.

    Where the cluster may create topics by being asked, it makes this one now.
    """
    may_create = cluster.settings.allow_auto_create_topics
    deadline = cluster.deadline(CREATED_S_MAX if may_create else None)
    try:
        return (await find_topics(cluster, [name], deadline))[name]
    except UnknownTopic:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name) from None


async def _describe(cluster: KafkaCluster, name: str) -> dict[str, object]:
    topic = await find_topic(cluster, name)
    places = {TopicPartition(name, number): leader for number, leader in topic.leaders.items()}
    bounds = await find_ends(cluster, places, cluster.deadline())
    resource = DescribeConfigsResource(TOPIC_RESOURCE, name, None)
    answer = await cluster.call_any(DescribeConfigsRequest((resource,)), DescribeConfigsResponse)
    result = answer.results[0]
    check(result.error_code, result.error_message, about=name)
    return {
        "topic": topic.name,
        "id": _id(topic.topic_id),
        "partitions": [
            {
                "partition": place.partition,
                "leader": leader,
                "start": bounds[place].start,
                "end": bounds[place].end,
            }
            for place, leader in places.items()
        ],
        "configs": [
            {
                "config": config.name,
                "value": config.value,
                "source": SOURCES.get(config.config_source, str(config.config_source)),
            }
            for config in result.configs
        ],
    }


def _pairs(configs: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for config in configs:
        key, equals, value = config.partition("=")
        if not equals or not key:
            hint = "; the client's properties go with --command-config"
            raise click.UsageError(f"{config!r} is no KEY=VALUE{hint}")
        pairs.append((key, value))
    return pairs


def _said(code: int, message: str | None) -> str:
    return str(BrokerError(code, message=message))


def _id(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
