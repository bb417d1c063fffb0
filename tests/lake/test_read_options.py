"""The options of a read: what Spark's Kafka source takes and refuses, and what is ours."""

import pickle
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config.named_options import BadOption
from lakelog.lake.read.read_options import parse_read
from lakelog.lake.read.read_request import (
    Assigned,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Matching,
    PartitionName,
    ReadRequest,
    Subscribed,
    TimestampStrategy,
)

SERVER = {"lakelog.server": "http://h:8080"}


def parsed(streaming: bool = False, /, **options: str) -> ReadRequest:
    return parse_read({**SERVER, "subscribe": "t", **options}, streaming=streaming)


def refused(options: Mapping[str, str], *, streaming: bool = False) -> BadOption:
    with pytest.raises(BadOption) as caught:
        parse_read({**SERVER, **options}, streaming=streaming)
    assert caught.value.option.lower() in str(caught.value).lower()
    return caught.value


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    batch, stream = parsed(), parsed(True)
    assert (batch.starting, batch.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert (stream.starting, stream.ending) == (Edge.LATEST, Edge.LATEST)
    for one in (batch, stream):
        assert one.fail_on_data_loss
        assert not one.include_headers
        assert one.max_trigger_delay_ms == 900_000
        assert one.min_partitions is one.max_records_per_partition is None
        assert one.max_offsets_per_trigger is one.min_offsets_per_trigger is None
    assert batch.connection.servers == ("h:8080",)


def test_names_have_any_case_and_values_are_read() -> None:
    found = parse_read(
        {
            "LAKELOG.SERVER": "http://a:1, http://[::1]:2/",
            "SUBSCRIBE": " a, b ,,a",
            "StartingOffsets": " EARLIEST ",
            "MINPARTITIONS": "12",
            "maxrecordsperpartition": "5000",
            "maxOffsetsPerTrigger": "10",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "90s",
            "failOnDataLoss": "False",
            "includeHeaders": "TRUE",
        },
        streaming=True,
    )
    assert found.topics == Subscribed(("a", "b"))
    assert found.connection.servers == ("a:1", "[::1]:2")
    assert found.starting is Edge.EARLIEST
    assert (found.min_partitions, found.max_records_per_partition) == (12, 5000)
    assert (found.min_offsets_per_trigger, found.max_offsets_per_trigger) == (10, 10)
    assert found.max_trigger_delay_ms == 90_000
    assert not found.fail_on_data_loss
    assert found.include_headers


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("15m", 900_000),
        ("1min", 60_000),
        ("7", 7),
        ("2h", 7_200_000),
        ("5000us", 5),
        ("1d", 86_400_000),
    ],
)
def test_a_delay_is_a_time_string_of_spark(text: str, expected_ms: int) -> None:
    assert parsed(True, maxTriggerDelay=text).max_trigger_delay_ms == expected_ms


def test_topics_are_named_in_exactly_one_way() -> None:
    assert parse_read(
        {**SERVER, "assign": '{"b":[1,0,1],"a":[3]}'}, streaming=False
    ).topics == Assigned((PartitionName("a", 3), PartitionName("b", 0), PartitionName("b", 1)))
    assert parse_read({**SERVER, "subscribePattern": " t.* "}, streaming=False).topics == Matching(
        "t.*"
    )
    refused({})
    refused({"subscribe": "t", "assign": '{"t":[0]}'})
    refused({"subscribe": "t", "subscribePattern": "t"})
    for name, text in (
        ("subscribe", " , "),
        ("subscribePattern", " "),
        ("subscribePattern", "("),
        ("assign", "t"),
        ("assign", "{}"),
        ("assign", '{"t":0}'),
        ("assign", '{"t":[-1]}'),
        ("assign", '{"t":[2147483648]}'),
    ):
        assert refused({name: text}).option == name


def test_a_start_is_an_end_an_offset_or_a_time_and_a_time_wins() -> None:
    offsets = '{"t":{"0":23,"1":-2}}'
    assert parsed(startingOffsets=offsets).starting == AtOffsets(
        {PartitionName("t", 0): 23, PartitionName("t", 1): -2}
    )
    times = {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsets": "earliest"}
    assert parsed(**times).starting == AtTimestamps({PartitionName("t", 0): 7})
    strategy = {"startingOffsetsByTimestampStrategy": "LATEST"}
    assert parsed(startingTimestamp=" 5 ", **times, **strategy).starting == AtTimestamp(
        5, TimestampStrategy.LATEST
    )
    assert parsed(endingTimestamp="9").ending == AtTimestamp(9)
    assert parsed(endingOffsetsByTimestamp='{"t":{"0":7}}').ending == AtTimestamps(
        {PartitionName("t", 0): 7}
    )
    assert parsed(True, startingOffsets='{"t":{"0":-1}}').starting == AtOffsets(
        {PartitionName("t", 0): -1}
    )


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":-1}}'},
        {"startingOffsets": '{"t":{"0":-3}}'},
        {"startingOffsets": '{"t":{"x":1}}'},
        {"startingOffsets": '{"t":{"0":1.5}}'},
        {"startingOffsets": '{"t":{"0":9223372036854775808}}'},
        {"startingOffsets": "first"},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "1" * 30},
        {"startingOffsetsByTimestamp": "7"},
        {"startingOffsetsByTimestampStrategy": "never"},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"t":{"0":-2}}'},
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
        {"minPartitions": "0"},
        {"minPartitions": "2147483648"},
        {"maxRecordsPerPartition": "-1"},
        {"maxOffsetsPerTrigger": "1e3"},
        {"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"},
        {"maxTriggerDelay": "soon"},
        {"failOnDataLoss": "yes"},
        {"includeHeaders": ""},
        {"kafka.auto.offset.reset": "earliest"},
        {"kafka.key.deserializer": "x"},
        {"kafka.value.deserializer": "x"},
        {"kafka.enable.auto.commit": "true"},
        {"kafka.interceptor.classes": "x"},
        {"lakelog.server": "h:8080"},
        {"lakelog.server": "https://h:8080"},
        {"lakelog.server": "http://h:x"},
        {"lakelog.server": "http://h:1/path"},
        {"lakelog.server": "http://me:secret@h:1"},
        {"lakelog.server": ","},
        {"lakelog.config": " "},
    ],
    ids=str,
)
def test_what_cannot_be_followed_is_refused_by_name(options: dict[str, str]) -> None:
    refused({"subscribe": "t", **options})


def test_start_and_end_name_the_same_partitions() -> None:
    one, two = '{"t":{"0":1}}', '{"t":{"0":1,"1":2}}'
    with pytest.raises(BadOption, match="t-1"):
        parsed(startingOffsets=one, endingOffsets=two)
    with pytest.raises(BadOption, match="t-1"):
        parsed(startingOffsetsByTimestamp=two, endingOffsetsByTimestamp=one)


def test_a_stream_has_no_end() -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp"):
        assert refused({"subscribe": "t", name: '{"t":{"0":1}}'}, streaming=True).option == name
    assert any("endingTimestamp" in note for note in parsed(True, endingTimestamp="5").notes)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribepatern", "subscribePattern"),
        ("topic", "subscribe"),
        ("bootstrap.servers", "lakelog.server"),
        ("lakelog.servers", "lakelog.server"),
    ],
)
def test_an_unknown_option_is_refused_with_what_may_be_meant(name: str, meant: str) -> None:
    assert str(refused({"subscribe": "t", name: "x"})).endswith(f"did you mean {meant}?")


def test_options_of_a_consumer_are_accepted_and_noted() -> None:
    found = parsed(
        **{
            "kafka.bootstrap.servers": "b:9092",
            "kafka.group.id": "g",
            "kafkaConsumer.pollTimeoutMs": "512",
            "groupIdPrefix": "p",
            "maxOffsetsPerTrigger": "5",
        }
    )
    for name in ("bootstrap", "group.id", "pollTimeoutMs", "groupIdPrefix", "maxOffsetsPerTrigger"):
        assert sum(name in note for note in found.notes) == 1


def test_who_names_only_a_bootstrap_server_hears_what_to_set() -> None:
    options = {"subscribe": "t", "kafka.bootstrap.servers": "b:9092"}
    with pytest.raises(BadOption, match=r"set lakelog\.server to http://HOST:PORT") as caught:
        parse_read(options, streaming=False)
    assert caught.value.option == "lakelog.server"
    assert parse_read({**options, "lakelog.config": "f.toml"}, streaming=False).connection.config


def test_an_option_given_twice_must_say_the_same() -> None:
    same = parse_read({**SERVER, "subscribe": "t", "SUBSCRIBE": "t"}, streaming=False)
    assert same.topics == Subscribed(("t",))
    refused({"subscribe": "t", "SUBSCRIBE": "u"})


def test_a_refusal_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(BadOption("a", "a is b")))
    assert (error.option, str(error)) == ("a", "a is b")
    request = parsed(startingOffsets='{"t":{"0":23}}', endingOffsets="latest")
    assert pickle.loads(pickle.dumps(request)) == request
    assert len(pickle.dumps(request)) < 10_000


@given(
    st.dictionaries(
        st.sampled_from(
            ["assign", "startingOffsets", "endingOffsetsByTimestamp", "subscribePattern"]
        ),
        st.text() | st.from_regex(r"\{.*\}", fullmatch=True) | st.sampled_from(['{"a":{"0":1}}']),
    ),
    st.booleans(),
)
def test_any_text_is_read_or_refused(options: dict[str, str], streaming: bool) -> None:
    with suppress(BadOption):
        assert parse_read({**SERVER, **options}, streaming=streaming).is_stream is streaming


@given(
    st.dictionaries(
        st.tuples(st.text(min_size=1, max_size=5), st.integers(0, (1 << 31) - 1)),
        st.integers(-2, (1 << 63) - 1),
        max_size=6,
    )
)
def test_offsets_come_back_as_they_were_written(offsets: dict[tuple[str, int], int]) -> None:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, {})[str(partition)] = offset
    text = msgspec.json.encode(by_topic).decode()
    found = parsed(True, startingOffsets=text).starting
    assert found == AtOffsets({PartitionName(*place): offset for place, offset in offsets.items()})
