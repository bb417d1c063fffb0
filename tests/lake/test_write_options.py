"""The options of a write: what Spark's Kafka sink takes, and what is ours."""

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lakelog.config.named_options import BadOption, ClusterOptions
from lakelog.lake.write.commit_client import Transaction
from lakelog.lake.write.write_options import WriteRequest, parse_write
from lakelog.records.codecs import Codec

SERVER = {"lakelog.server": "http://h:8080"}


def parsed(streaming: bool = False, /, **options: str) -> WriteRequest:
    return parse_write({**SERVER, **options}, streaming=streaming)


def refused(options: Mapping[str, str], *, streaming: bool = False) -> BadOption:
    with pytest.raises(BadOption) as caught:
        parse_write(options, streaming=streaming)
    assert caught.value.option.lower() in str(caught.value).lower()
    return caught.value


def test_without_options_rows_name_their_topics_and_the_writer_chooses() -> None:
    assert parsed() == WriteRequest(connection=ClusterOptions(("h:8080",)))


def test_names_have_any_case_and_values_are_read() -> None:
    found = parse_write(
        {
            "LAKELOG.server": "http://a:1, http://b:2",
            "TOPIC": " orders ",
            "Kafka.Compression.Type": "ZSTD",
            "txnappid": "nightly load",
            "TXNVERSION": "12",
        },
        streaming=False,
    )
    assert found.topic == "orders"
    assert found.codec is Codec.ZSTD
    assert found.transaction == Transaction("nightly load", 12)
    assert found.connection == ClusterOptions(("a:1", "b:2"))


def test_a_job_for_kafka_needs_only_the_place_added() -> None:
    found = parsed(
        **{
            "kafka.bootstrap.servers": "k:9092",
            "kafka.acks": "all",
            "topic": "t",
            "includeHeaders": "true",
        }
    )
    assert found.topic == "t"
    assert [note.split()[0] for note in found.notes] == ["kafka.bootstrap.servers", "kafka.acks"]


def test_what_spark_passes_on_and_what_reads_need_is_no_error() -> None:
    found = parsed(
        True, checkpointLocation="c", path="p", queryName="q", subscribe="a", startingOffsets="x"
    )
    assert found.notes == (
        "subscribe is ignored: it is an option of reads",
        "startingOffsets is ignored: it is an option of reads",
    )


def test_headers_are_written_whatever_the_option_says() -> None:
    assert parsed(includeHeaders="true").notes == ()
    assert "always written" in parsed(includeHeaders="false").notes[0]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"topik": "t"}, "did you mean topic?"),
        ({"txnAppid ": "t"}, "did you mean txnAppId?"),
        ({"compression": "lz4"}, "did you mean kafka.compression.type?"),
        ({"topic": "  "}, "must name a topic"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"kafka.compression.type": "lzo"}, "none, gzip, snappy, lz4, zstd"),
        ({"kafka.key.serializer": "x"}, "DataFrame operations"),
        ({"kafka.transactional.id": "x"}, "txnAppId"),
        ({"txnAppId": "a"}, "needs txnVersion"),
        ({"txnVersion": "1"}, "needs txnAppId"),
        ({"txnAppId": "", "txnVersion": "1"}, "1 to 255"),
        ({"txnAppId": "é" * 128, "txnVersion": "1"}, "256 bytes"),
        ({"txnAppId": "a\nb", "txnVersion": "1"}, "must be a name"),
        ({"txnAppId": "\ud800", "txnVersion": "1"}, "must be a name"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "from 0 on"),
        ({"txnAppId": "a", "txnVersion": "one"}, "whole number"),
        ({"txnAppId": "a", "txnVersion": str(1 << 63)}, "whole number"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(options: Mapping[str, str], hint: str) -> None:
    assert hint in str(refused({**SERVER, **options}))


def test_a_stream_has_its_own_transactions() -> None:
    options = {**SERVER, "txnAppId": "a", "txnVersion": "1"}
    assert "query's id" in str(refused(options, streaming=True))


def test_kafkas_address_alone_is_not_enough() -> None:
    error = refused({"kafka.bootstrap.servers": "k:9092", "topic": "t"})
    assert error.option == "lakelog.server"
    assert "kafka.bootstrap.servers alone" in str(error)


def test_an_error_travels_between_processes() -> None:
    error = refused({"topik": "t"})
    again = pickle.loads(pickle.dumps(error))
    assert (again.option, str(again)) == (error.option, str(error))


kinds: dict[str, SearchStrategy[str]] = {
    "topic": st.sampled_from(["t", " t ", " "]),
    "txnAppId": st.just("job"),
    "txnVersion": st.sampled_from(["7", "-7", "x"]),
    "includeHeaders": st.sampled_from(["true", "false", "x"]),
    "kafka.compression.type": st.sampled_from(["zstd", "NONE", "x"]),
}
likely = st.fixed_dictionaries({"lakelog.server": st.just("http://h:8080")}, optional=kinds)
names = st.sampled_from([*kinds, "lakelog.server"]) | st.text(max_size=8)


@given(likely | st.dictionaries(names, st.text(max_size=12)), st.booleans())
def test_any_options_are_parsed_or_refused_by_name(
    options: dict[str, str], streaming: bool
) -> None:
    found = request_or_failure(options, streaming=streaming)
    if isinstance(found, BadOption):
        assert found.option.lower() in str(found).lower()
        return
    topic = options.get("topic")
    assert found.topic == (None if topic is None else topic.strip())
    assert found.topic != ""
    assert (found.transaction is not None) == ({"txnAppId", "txnVersion"} <= options.keys())
    assert found.transaction is None or not streaming
    assert found.connection.servers


def request_or_failure(options: Mapping[str, str], *, streaming: bool) -> WriteRequest | BadOption:
    try:
        return parse_write(options, streaming=streaming)
    except BadOption as failure:
        return failure
