"""A client's configuration by librdkafka's names, and the waits between attempts."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.kafka_client.failures import BadConfig
from lakelog.kafka_client.setting_keys import ALIASES, IGNORED, KEYS, REFUSED, BrokerAddress
from lakelog.kafka_client.settings import ClientSettings

LEAST: dict[str, object] = {"bootstrap.servers": "a:1"}
SASL: dict[str, object] = {
    **LEAST,
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "hunter2",
}


def parse(**more: object) -> ClientSettings:
    return ClientSettings.parse({**LEAST, **{k.replace("_", "."): v for k, v in more.items()}})


def refused(config: dict[str, object]) -> BadConfig:
    with pytest.raises(BadConfig) as found:
        ClientSettings.parse(config)
    return found.value


def test_the_least_that_must_be_said_is_where_the_cluster_is() -> None:
    settings = ClientSettings.parse(LEAST)
    assert settings == ClientSettings((BrokerAddress("a", 1),))
    assert refused({}).key == "bootstrap.servers"
    assert refused({"bootstrap.servers": " , "}).reason == (
        "is empty, but needs at least one host:port"
    )
    assert refused({"bootstrap.servers": "a:x"}).key == "bootstrap.servers"


def test_servers_come_as_a_text_or_a_list_each_of_them_once() -> None:
    expected = (BrokerAddress("a", 1), BrokerAddress("::1", 9092))
    for written in ("a:1, [::1],a:1", ["a:1", "[::1]"], ("PLAINTEXT://a:1", "[::1]:9092")):
        assert parse(bootstrap_servers=written).bootstrap_servers == expected


def test_every_field_has_its_key_and_every_key_its_field() -> None:
    fields = {field.name for field in dataclasses.fields(ClientSettings)} - {"ignored"}
    assert fields == {key.replace(".", "_") for key in KEYS}
    assert set(ALIASES.values()) <= set(KEYS)
    assert not set(KEYS) & (set(ALIASES) | IGNORED | set(REFUSED))


@pytest.mark.parametrize("written", [4096, "4096", 4096.0])
def test_a_number_may_come_as_text(written: object) -> None:
    assert parse(fetch_max_bytes=written).fetch_max_bytes == 4096


@pytest.mark.parametrize("written", ["many", "", True, 1.5, None.__class__, "9" * 5000, [1]])
def test_what_is_no_number_is_refused_by_name(written: object) -> None:
    failure = refused({**LEAST, "fetch.max.bytes": written})
    assert failure.key == "fetch.max.bytes"
    assert "whole number" in failure.reason
    assert len(failure.reason) < 200


def test_a_number_has_its_bounds() -> None:
    assert "0 to 300000" in refused({**LEAST, "fetch.wait.max.ms": -1}).reason
    assert "is 2147483648" in refused({**LEAST, "fetch.max.bytes": 2**31}).reason


@pytest.mark.parametrize(
    ("written", "expected"),
    [(True, True), ("true", True), ("False", False), (0, False), ("1", True), (" no ", False)],
)
def test_a_boolean_may_come_as_a_word(written: object, expected: bool) -> None:
    assert parse(check_crcs=written).check_crcs is expected


def test_what_is_no_boolean_is_refused() -> None:
    assert "true or false" in refused({**LEAST, "check.crcs": "maybe"}).reason
    assert "true or false" in refused({**LEAST, "check.crcs": 2}).reason


def test_a_word_is_read_whatever_its_case_and_spelling() -> None:
    assert parse(auto_offset_reset="Smallest").auto_offset_reset == "earliest"
    assert parse(auto_offset_reset="end").auto_offset_reset == "latest"
    assert parse(security_protocol="ssl").has_tls
    assert not parse(isolation_level="READ_UNCOMMITTED").is_read_committed
    failure = refused({**LEAST, "isolation.level": "serializable"})
    assert "must be one of: read_committed, read_uncommitted" in failure.reason


def test_nothing_is_skipped_in_silence_by_default() -> None:
    settings = ClientSettings.parse(LEAST)
    assert settings.auto_offset_reset == "error"
    assert settings.check_crcs
    assert settings.is_read_committed
    assert not settings.allow_auto_create_topics


def test_other_names_mean_the_same() -> None:
    settings = parse(**{"fetch.message.max.bytes": 7, "topic.metadata.refresh.interval.ms": "5000"})
    assert settings.max_partition_fetch_bytes == 7
    assert settings.metadata_max_age_ms == 5000
    assert parse(fetch_message_max_bytes=7, max_partition_fetch_bytes=7) == parse(
        fetch_message_max_bytes=7
    )
    both: dict[str, object] = {
        **LEAST,
        "fetch.message.max.bytes": 7,
        "max.partition.fetch.bytes": 8,
    }
    assert "something else than fetch.message.max.bytes" in refused(both).reason


def test_an_unknown_name_is_an_error_that_names_the_nearest() -> None:
    assert "did you mean sasl.username?" in refused({**LEAST, "sasl.user.name": "x"}).reason
    assert "did you mean enable.auto.commit?" in refused({**LEAST, "auto.commit": "x"}).reason
    assert refused({**LEAST, 5: "x"}).key == "5"  # type: ignore[dict-item]  # a user's mistake


def test_what_librdkafka_knows_is_accepted_and_listed() -> None:
    settings = ClientSettings.parse(
        {**LEAST, "queued.min.messages": 5, "log_level": 7, "enable.auto.commit": False, "debug": 1}
    )
    assert settings.ignored == ("debug", "enable.auto.commit", "log_level", "queued.min.messages")


def test_what_would_promise_security_that_is_not_there_is_refused() -> None:
    failure = refused({**LEAST, "ssl.crl.location": "/x"})
    assert failure.key == "ssl.crl.location"
    assert "not supported" in failure.reason


def test_nothing_stands_for_the_default() -> None:
    assert parse(fetch_max_bytes=None, client_id=None) == replace_ignored(parse())
    assert parse(**{"ssl.crl.location": None}).ignored == ("ssl.crl.location",)


def replace_ignored(settings: ClientSettings) -> ClientSettings:
    return dataclasses.replace(settings, ignored=())


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.username", "sasl.password"])
def test_sasl_needs_a_mechanism_a_name_and_a_password(key: str) -> None:
    assert refused({name: value for name, value in SASL.items() if name != key}).key == key


def test_a_mechanism_that_is_not_spoken_is_refused() -> None:
    failure = refused({**SASL, "sasl.mechanism": "GSSAPI"})
    assert "plain, scram-sha-256, scram-sha-512" in failure.reason
    settings = ClientSettings.parse({**SASL, "sasl.mechanisms": "PLAIN"})
    assert settings.sasl_mechanism == "PLAIN"


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800"])
def test_credentials_that_cannot_be_sent_are_refused_without_showing_them(bad: str) -> None:
    failure = refused({**SASL, "sasl.password": bad})
    assert failure.key == "sasl.password"
    assert bad not in str(failure)


def test_no_secret_is_ever_shown() -> None:
    settings = ClientSettings.parse(
        {
            **SASL,
            "ssl.key.password": "key-secret",
            "ssl.key.pem": "PRIVATE",
            "ssl.certificate.pem": "x",
        }
    )
    for secret in ("hunter2", "key-secret", "PRIVATE"):
        assert secret not in repr(settings)
        assert secret not in str(settings)
    assert "hunter2" not in str(refused({**SASL, "sasl.password": ["hunter2"]}))


def test_certificates_come_from_one_place_and_with_their_key() -> None:
    assert refused({**SASL, "ssl.ca.pem": "x", "ssl.ca.location": "y"}).key == "ssl.ca.pem"
    assert refused({**SASL, "ssl.key.location": "y"}).key == "ssl.certificate.location"
    assert refused({**SASL, "ssl.certificate.pem": "y"}).key == "ssl.key.pem"


@pytest.mark.parametrize(
    "config",
    [
        {"reconnect.backoff.ms": 200, "reconnect.backoff.max.ms": 100},
        {"retry.backoff.ms": 200, "retry.backoff.max.ms": 100},
        {"heartbeat.interval.ms": 6000, "session.timeout.ms": 6000},
        {"fetch.wait.max.ms": 1000, "socket.timeout.ms": 1000},
    ],
)
def test_limits_that_contradict_each_other_are_refused(config: dict[str, object]) -> None:
    assert refused({**LEAST, **config}).key in config


def test_an_answer_may_be_as_large_as_what_is_asked_for() -> None:
    assert parse(fetch_max_bytes=2_000_000_000).frame_bytes_max == 2_000_000_512
    assert parse().frame_bytes_max == 256 * 1024 * 1024


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.text()),
)


@given(st.dictionaries(st.sampled_from(sorted({*KEYS, *ALIASES, *REFUSED, "x"})), VALUES))
def test_any_configuration_is_settings_or_a_named_refusal(config: dict[str, object]) -> None:
    try:
        settings = ClientSettings.parse({**config, **LEAST})
    except BadConfig as failure:
        known = {*KEYS, *ALIASES, *REFUSED, "x"}
        if failure.key not in known:
            raise
        return
    assert settings.bootstrap_servers
