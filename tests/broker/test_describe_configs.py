import pytest
from tests.broker.admin_stage import AdminStage, Scene, run
from tests.topics.stepped_stores import Fault, make

from lakelog.broker.call import BrokerOptions
from lakelog.broker.config_resources import ResourceType
from lakelog.broker.describe_configs import ANSWER_BYTES_MAX
from lakelog.coordinator.options import GroupOptions
from lakelog.model.errors import ErrorCode
from lakelog.topics.broker_configs import READ_ONLY
from lakelog.topics.config_values import ConfigSource, ConfigType
from lakelog.topics.settings import TopicDefaults
from lakelog.wire.codec import encode
from lakelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


async def describe(
    scene: Scene,
    kind: int,
    name: str,
    keys: tuple[str, ...] | None = None,
    *,
    version: int = 4,
    texts: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest((DescribeConfigsResource(kind, name, keys),), texts, texts)
    return (await scene.ask(request, DescribeConfigsResponse, version)).results[0]


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == ErrorCode.NONE
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_configs_are_described_in_every_version(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders", retention_ms="9")
        found = by_name(await describe(scene, ResourceType.TOPIC, "orders", version=version))
        own = found["retention.ms"]
        assert (own.value, own.config_source, own.read_only) == ("9", ConfigSource.TOPIC, False)
        assert own.documentation is None
        assert found["max.message.bytes"].config_source == ConfigSource.STATIC

    run(scenario, AdminStage(defaults=TopicDefaults(max_message_bytes=5_000)))


def test_synonyms_and_documentation_come_when_asked_for() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders", max_message_bytes="7")
        key = ("max.message.bytes", "unknown")
        (found,) = (await describe(scene, ResourceType.TOPIC, "orders", key, texts=True)).configs
        assert found.documentation
        assert [(s.name, s.value, s.source) for s in found.synonyms] == [
            ("max.message.bytes", "7", 1),
            ("message.max.bytes", "1048588", 5),
        ]

    run(scenario)


def test_this_broker_describes_itself() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker(7)
        found = by_name(await describe(scene, ResourceType.BROKER, "7", texts=True))
        assert {name for name, config in found.items() if config.read_only} == set(READ_ONLY)
        assert all(config.documentation for config in found.values())
        expected = {
            "node.id": ("7", ConfigType.INT, ConfigSource.STATIC),
            "num.partitions": ("6", ConfigType.INT, ConfigSource.STATIC),
            "auto.create.topics.enable": ("true", ConfigType.BOOLEAN, ConfigSource.DEFAULT),
            "background.threads": ("10", ConfigType.INT, ConfigSource.DEFAULT),
            "group.consumer.session.timeout.ms": ("45000", ConfigType.INT, ConfigSource.DEFAULT),
            "log.retention.ms": ("99", ConfigType.LONG, ConfigSource.STATIC),
            "log.retention.hours": ("168", ConfigType.INT, ConfigSource.DEFAULT),
            "log.flush.interval.ms": (None, ConfigType.LONG, ConfigSource.DEFAULT),
            "message.max.bytes": ("1048588", ConfigType.INT, ConfigSource.DEFAULT),
            "log.dirs": ("memory:///lake", ConfigType.STRING, ConfigSource.STATIC),
            "advertised.listeners": (None, ConfigType.STRING, ConfigSource.DEFAULT),
        }
        for name, facts in expected.items():
            config = found[name]
            assert (config.value, config.config_type, config.config_source) == facts
        assert list(found) == sorted(found)

    run(
        scenario,
        AdminStage(
            options=BrokerOptions(num_partitions=6), defaults=TopicDefaults(retention_ms=99)
        ),
    )


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceType.TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.TOPIC, "bad name!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.BROKER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "", ErrorCode.NONE),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.NONE),
        (ResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "m", ErrorCode.NONE),
        (ResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (-1, "x", ErrorCode.INVALID_REQUEST),
        (127, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_resources_have_nothing_to_show(kind: int, name: str, code: ErrorCode) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await describe(scene, kind, name)
        assert (found.error_code, found.configs) == (code, ())
        assert (found.resource_type, found.resource_name) == (kind, name)

    run(scenario)


def test_a_group_has_its_own_configs_then_the_operators_then_defaults() -> None:
    async def scenario(stage: AdminStage) -> None:
        other, scene = await stage.broker(2), await stage.broker(1)
        own = {"consumer.heartbeat.interval.ms": "6000"}
        await other.broker.group_configs.alter("g", lambda _: own)
        found = by_name(await describe(scene, ResourceType.GROUP, "g", texts=True))
        shown = {
            name: (config.value, config.config_source, len(config.synonyms))
            for name, config in found.items()
        }
        assert shown == {
            "consumer.assignment.interval.ms": ("0", ConfigSource.STATIC, 2),
            "consumer.heartbeat.interval.ms": ("6000", ConfigSource.GROUP, 2),
            "consumer.session.timeout.ms": ("45000", ConfigSource.DEFAULT, 1),
        }
        for config in found.values():
            assert (config.config_type, config.read_only) == (ConfigType.INT, False)
            assert config.documentation
        synonyms = found["consumer.heartbeat.interval.ms"].synonyms
        assert [(one.name, one.value, one.source) for one in synonyms] == [
            ("consumer.heartbeat.interval.ms", "6000", ConfigSource.GROUP),
            ("group.consumer.heartbeat.interval.ms", "5000", ConfigSource.DEFAULT),
        ]
        assert found["consumer.assignment.interval.ms"].synonyms[0].name == (
            "group.consumer.assignment.interval.ms"
        )

    run(scenario, AdminStage(groups=GroupOptions(assignment_interval_ms=0)))


def test_groups_of_one_request_do_not_share_what_they_set() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        key = "consumer.heartbeat.interval.ms"
        await scene.broker.group_configs.alter("g", lambda _: {key: "6000"})
        asked = tuple(
            DescribeConfigsResource(ResourceType.GROUP, name, (key, "nosuch"))
            for name in ("f", "g", "h")
        )
        answer = await scene.ask(DescribeConfigsRequest(asked), DescribeConfigsResponse, 4)
        values = [[config.value for config in result.configs] for result in answer.results]
        assert values == [["5000"], ["6000"], ["5000"]]

    run(scenario)


def test_without_the_store_a_group_is_not_called_free_of_configs() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 9), Fault.UNAVAILABLE)
        found = await describe(scene, ResourceType.GROUP, "g")
        assert (found.error_code, found.configs) == (ErrorCode.REQUEST_TIMED_OUT, ())

    run(scenario)


def test_an_answer_does_not_outgrow_its_limit() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "t")
        hostile = DescribeConfigsRequest(
            (DescribeConfigsResource(ResourceType.TOPIC, "t", None),) * 20_000, True, True
        )
        found = await scene.ask(hostile, DescribeConfigsResponse, 4)
        codes = [result.error_code for result in found.results]
        served = codes.count(0)
        assert codes == [0] * served + [ErrorCode.POLICY_VIOLATION] * (20_000 - served)
        assert served > 2_000
        size_bytes = sum(map(len, encode(found, 4)))
        assert ANSWER_BYTES_MAX * 0.7 < size_bytes < ANSWER_BYTES_MAX * 1.2

    run(scenario)


def test_without_the_store_a_broker_still_describes_itself() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "orders")
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 99), Fault.UNAVAILABLE)
        assert by_name(await describe(scene, ResourceType.BROKER, "1"))
        topic = await describe(scene, ResourceType.TOPIC, "orders")
        assert topic.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)
