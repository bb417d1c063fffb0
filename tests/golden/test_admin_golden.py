"""What a real Kafka 4.1.1 broker answered to admin requests, and what we answer to the same bytes.

The requests of `admin.jsonl` are replayed in the order they were recorded, on one broker: later
ones speak of topics that earlier ones made. Both answers are decoded and brought to one form
(`normal`): what differs from run to run goes. What is left must be equal, except for the rows of
`DIFFERENT`, each with its reason and with what we answer instead.

Left out of the recording: the loggers and the texts of a Java broker's own configs. The path of its
log directory was replaced.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec import Struct
from tests.broker.admin_stage import AdminStage, Scene, run

from lakelog.broker.api import dispatch
from lakelog.broker.call import BrokerOptions, Call, Later, NoAnswer
from lakelog.model.errors import ErrorCode
from lakelog.topics.config_values import ConfigSource
from lakelog.wire.apis import APIS, ApiKey, response_header_version
from lakelog.wire.codec import decode, encode
from lakelog.wire.framing import parse_request_header
from lakelog.wire.messages.create_topics import CreateTopicsResponse
from lakelog.wire.messages.describe_configs import DescribeConfigsResponse


class Row(NamedTuple):
    row: int
    api: str
    key: int
    version: int
    request: str
    response: str


ROWS = [
    Row(**json.loads(line))
    for line in (Path(__file__).parent / "admin.jsonl").read_text().splitlines()
]
SOME_ID = b"\xff" * 16
LEAST_RANDOM_ID = bytes(15) + b"\xff"  # ids below were made up by the test that recorded

Plain = Any  # an answer as dicts and lists


def plain(answer: Struct) -> Plain:
    """The answer as dicts and lists, with ids that are not random and lists that are sorted."""
    return _plain(msgspec.to_builtins(answer, builtin_types=(bytes,)))


def _plain(value: Plain) -> Plain:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return sorted((_plain(part) for part in value), key=repr)
    if isinstance(value, bytes):
        return SOME_ID if len(value) == 16 and value > LEAST_RANDOM_ID else value
    return value


def recorded(row: Row) -> Struct:
    api = APIS[row.key]
    data = memoryview(bytes.fromhex(row.response))
    found, end = decode(
        api.response, row.version, data, 4 + response_header_version(api, row.version)
    )
    assert end == len(data)
    return found


async def answered(scene: Scene, row: Row) -> Struct:
    frame = memoryview(bytes.fromhex(row.request))
    header = parse_request_header(frame)
    asked = Call(
        version=row.version,
        client_id=header.client_id,
        client_host="127.0.0.1",
        server_host="127.0.0.1",
        server_port=39092,
        connection=1,
        arrived_s=scene.broker.clock.monotonic_s(),
        request_bytes=len(frame),
    )
    found = await dispatch(scene.broker, row.key, asked, frame[header.body_start :])
    assert not isinstance(found, Later | NoAnswer)
    data = memoryview(b"".join(encode(found, row.version)))
    return decode(APIS[row.key].response, row.version, data)[0]


def normal(row: Row, answer: Plain) -> Plain:
    """Without what belongs to one run or one machine."""
    if row.key in {ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER} and answer["cluster_id"]:
        answer["cluster_id"] = "cluster"
    if row.key == ApiKey.DESCRIBE_LOG_DIRS:
        for result in answer["results"]:
            result.update(log_dir="", total_bytes=-1, usable_bytes=-1)
            for partition in (p for topic in result["topics"] for p in topic["partitions"]):
                partition["partition_size"] = 0
    for item in answer.get("results", []) + answer.get("topics", []):
        if "configs" in item and item.get("resource_type", 2) == 2:
            item["configs"] = kafka_configs(item["configs"])
    return answer


def kafka_configs(configs: list[Plain]) -> list[Plain]:
    """Configs without ours, and without the two that the recorded broker did not leave alone.

    It ran with `log.segment.bytes` set, and Kafka itself sets `min.insync.replicas` for the cluster
    when eligible leader replicas are on.
    """
    special = {"segment.bytes", "min.insync.replicas"}
    return [
        config
        for config in configs
        if not config["name"].startswith("lakelog.") and config["name"] not in special
    ]


def code_of(expected: ErrorCode, place: str) -> Callable[[Plain, Plain], None]:
    """We give another code; everything but code and message is the same."""

    def check(theirs: Plain, ours: Plain) -> None:
        (their_item,), (our_item,) = theirs[place], ours[place]
        assert our_item["error_code"] == expected
        for item in (their_item, our_item):
            item["error_code"], item["error_message"] = 0, ""
        assert ours == theirs

    return check


def made_at_once(theirs: Plain, ours: Plain) -> None:
    (topic,) = ours["topics"]
    assert (topic["error_code"], len(topic["partitions"])) == (0, 3)
    assert ours["brokers"] == theirs["brokers"]


def any_replication(_: Plain, ours: Plain) -> None:
    (topic,) = ours["topics"]
    assert (topic["error_code"], topic["num_partitions"], topic["replication_factor"]) == (0, 1, 3)


def invalid_topics(theirs: Plain, ours: Plain) -> None:
    assert [topic["error_code"] for topic in ours["topics"]] == [ErrorCode.INVALID_REQUEST]
    theirs["topics"][0]["error_code"] = ErrorCode.INVALID_REQUEST
    ours["error_code"] = theirs["error_code"]
    assert ours == theirs


def configs_of_groups(theirs: Plain, ours: Plain) -> None:
    (our_result,) = ours["results"]
    newer = [config for config in our_result["configs"] if "assignment" in config["name"]]
    assert [config["value"] for config in newer] == ["1000"]
    our_result["configs"] = [config for config in our_result["configs"] if config not in newer]
    assert len(our_result["configs"]) == 2
    fewer_configs(theirs, ours)


def fewer_configs(theirs: Plain, ours: Plain) -> None:
    (their_result,), (our_result,) = theirs["results"], ours["results"]
    assert all(config in their_result["configs"] for config in our_result["configs"])
    their_result["configs"] = our_result["configs"]
    assert ours == theirs


def our_ranges(theirs: Plain, ours: Plain) -> None:
    ranges = {entry["api_key"]: entry for entry in theirs["api_keys"]}
    assert (theirs["error_code"], ours["error_code"]) == (0, 0)
    for entry in ours["api_keys"]:
        recorded_range = ranges[entry["api_key"]]
        assert entry["min_version"] == recorded_range["min_version"]
        newer = entry["api_key"] in {
            ApiKey.LIST_OFFSETS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
        }
        assert entry["max_version"] - recorded_range["max_version"] == newer
    names = {feature["name"] for feature in theirs["supported_features"]}
    assert {feature["name"] for feature in ours["supported_features"]} <= names


DIFFERENT: dict[int, tuple[str, Callable[[Plain, Plain], None]]] = {
    1: ("a topic that is asked for is made before the answer (row 28)", made_at_once),
    15: ("we advertise what we serve, in the ranges of 4.3", our_ranges),
    16: ("we advertise what we serve, in the ranges of 4.3", our_ranges),
    23: ("there are no dynamic broker configs", fewer_configs),
    26: ("groups have the configs of 4.3, without share and streams", configs_of_groups),
    27: ("our message says what is wrong", code_of(ErrorCode.INVALID_REQUEST, "results")),
    29: ("client metrics are not served", fewer_configs),
    40: ("any replication factor is accepted and reported (3.1, #41)", any_replication),
    177: ("neither name nor id is the client's fault, not ours", invalid_topics),
    324: (
        "an unknown operation is the client's fault, not ours",
        code_of(ErrorCode.INVALID_REQUEST, "responses"),
    ),
}


async def compare(scene: Scene, row: Row) -> None:
    theirs = normal(row, plain(recorded(row)))
    ours = normal(row, plain(await answered(scene, row)))
    if row.row in DIFFERENT:
        DIFFERENT[row.row][1](theirs, ours)
    else:
        assert ours == theirs, row.row


def test_every_recorded_request_is_answered_as_kafka_does_or_differs_for_a_reason() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for row in ROWS:
            await compare(scene, row)
            if row.row == 40:  # Kafka did not make this one
                made = await scene.broker.topics.find("zzr")
                assert made is not None
                await scene.broker.topics.delete(made)

    run(scenario, AdminStage(options=BrokerOptions(num_partitions=3)))


def test_every_difference_is_about_a_row_that_is_replayed() -> None:
    assert set(DIFFERENT) <= {row.row for row in ROWS}


@pytest.mark.parametrize("kind", [CreateTopicsResponse, DescribeConfigsResponse])
def test_our_configs_are_those_of_the_recorded_broker_and_four_more(kind: type[Struct]) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        place, item = ("topics", 31) if kind is CreateTopicsResponse else ("results", 24)
        rows = {row.row: row for row in ROWS}
        await answered(scene, rows[1])
        theirs = plain(recorded(rows[item]))[place][0]["configs"]
        ours = plain(await answered(scene, rows[item]))[place][0]["configs"]
        their_names = {config["name"] for config in theirs}
        assert {config["name"] for config in ours} - their_names == {
            "lakelog.format",
            "lakelog.snapshots.history.ms",
            "lakelog.table.freshness.ms",
            "lakelog.table.retention.ms",
        }
        assert their_names <= {config["name"] for config in ours}
        assert {config["config_source"] for config in ours} == {ConfigSource.DEFAULT}

    run(scenario)
