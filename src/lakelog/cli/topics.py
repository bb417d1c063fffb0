"""`lakelog topics`: create, list, describe, alter, delete."""

import base64
from typing import Final

import click

from lakelog.cli.command import (
    broker_option,
    check,
    converse,
    json_option,
    show,
    show_json,
    show_rows,
)
from lakelog.model.errors import ErrorCode
from lakelog.server.client import Client, KafkaFailure
from lakelog.server.options import Address
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
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

TIMEOUT_MS: Final = 30_000
TOPIC_RESOURCE: Final = 2
SET, DELETE = 0, 1
EARLIEST: Final = -2
LATEST: Final = -1
CONSUMER: Final = -1
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
@broker_option
@json_option
def create(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    names: tuple[str, ...],
    partitions: int,
    replicas: int,
    configs: tuple[str, ...],
    if_not_exists: bool,
    broker: Address,
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
    answer = converse(broker, lambda client: client.call(request, CreateTopicsResponse))
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
@broker_option
@json_option
def list_topics(broker: Address, as_json: bool) -> None:
    """List the topics."""
    answer = converse(
        broker, lambda client: client.call(MetadataRequest(topics=None), MetadataResponse)
    )
    rows = [
        {"topic": topic.name, "partitions": len(topic.partitions), "id": _id(topic.topic_id)}
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
    ]
    show_rows(("topic", "partitions", "id"), rows, as_json=as_json)


@topics.command()
@click.argument("name")
@broker_option
@json_option
def describe(name: str, broker: Address, as_json: bool) -> None:
    """Show a topic's partitions, offsets and configs with their sources."""
    found = converse(broker, lambda client: _describe(client, name))
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
@broker_option
@json_option
def delete(names: tuple[str, ...], yes: bool, broker: Address, as_json: bool) -> None:
    """Delete topics with all their records."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)} and all records in it?", abort=True, err=True)
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name) for name in names),
        topic_names=names,
        timeout_ms=TIMEOUT_MS,
    )
    answer = converse(broker, lambda client: client.call(request, DeleteTopicsResponse))
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
@broker_option
def alter(
    name: str,
    configs: tuple[str, ...],
    unset: tuple[str, ...],
    partitions: int | None,
    broker: Address,
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

    async def talk(client: Client) -> None:
        if changes:
            await _alter_configs(client, name, changes)
        if partitions is not None:
            await _grow(client, name, partitions)

    converse(broker, talk)
    show(f"{name} altered")


async def _alter_configs(
    client: Client, name: str, changes: list[IncrementalAlterConfigsAlterableConfig]
) -> None:
    resource = IncrementalAlterConfigsResource(TOPIC_RESOURCE, name, tuple(changes))
    answer = await client.call(
        IncrementalAlterConfigsRequest((resource,)), IncrementalAlterConfigsResponse
    )
    for result in answer.responses:
        check(result.error_code, result.error_message, about=name)


async def _grow(client: Client, name: str, count: int) -> None:
    answer = await client.call(
        CreatePartitionsRequest((CreatePartitionsTopic(name, count, None),), TIMEOUT_MS),
        CreatePartitionsResponse,
    )
    for result in answer.results:
        check(result.error_code, result.error_message, about=name)


async def find_topic(client: Client, name: str, *, create: bool = False) -> MetadataResponseTopic:
    """A topic's metadata; raises KafkaFailure if it is not there."""
    answer = await client.call(
        MetadataRequest((MetadataRequestTopic(name=name),), allow_auto_topic_creation=create),
        MetadataResponse,
    )
    topic = answer.topics[0]
    check(topic.error_code, about=name)
    return topic


async def list_offsets(
    client: Client, name: str, partitions: list[int], timestamp: int
) -> dict[int, int]:
    """For each partition the offset that a time, or -1 and -2, stands for."""
    wanted = tuple(ListOffsetsPartition(index, timestamp=timestamp) for index in partitions)
    answer = await client.call(
        ListOffsetsRequest(
            CONSUMER, topics=(ListOffsetsTopic(name, wanted),), timeout_ms=TIMEOUT_MS
        ),
        ListOffsetsResponse,
    )
    found = {}
    for each in answer.topics[0].partitions:
        check(each.error_code, about=f"{name}, partition {each.partition_index}")
        found[each.partition_index] = each.offset
    return found


async def _describe(client: Client, name: str) -> dict[str, object]:
    topic = await find_topic(client, name)
    indexes = sorted(partition.partition_index for partition in topic.partitions)
    starts = await list_offsets(client, name, indexes, EARLIEST)
    ends = await list_offsets(client, name, indexes, LATEST)
    leaders = {each.partition_index: each.leader_id for each in topic.partitions}
    resource = DescribeConfigsResource(TOPIC_RESOURCE, name, None)
    answer = await client.call(DescribeConfigsRequest((resource,)), DescribeConfigsResponse)
    result = answer.results[0]
    check(result.error_code, result.error_message, about=name)
    return {
        "topic": topic.name,
        "id": _id(topic.topic_id),
        "partitions": [
            {"partition": at, "leader": leaders[at], "start": starts[at], "end": ends[at]}
            for at in indexes
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
            raise click.UsageError(f"{config!r} is no KEY=VALUE")
        pairs.append((key, value))
    return pairs


def _said(code: int, message: str | None) -> str:
    return str(KafkaFailure(code, message))


def _id(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
