"""Addresses as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.kafka_client.setting_keys import PORT_MAX, BrokerAddress


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        ("broker:9093", "broker", 9093),
        ("broker", "broker", 9092),
        (" 127.0.0.1:1 ", "127.0.0.1", 1),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]", "fe80::1%eth0", 9092),
        ("SASL_SSL://broker.example:65535", "broker.example", 65_535),
        ("PLAINTEXT://[::1]:9", "::1", 9),
    ],
)
def test_an_address_is_read_as_people_write_it(written: str, host: str, port: int) -> None:
    assert BrokerAddress.parse(written) == BrokerAddress(host, port)


@pytest.mark.parametrize(
    "written",
    [
        "",
        ":9092",
        "a:",
        "a:0",
        "a:65536",
        "a:x",
        "a b:1",
        "::1",
        "[::1",
        "[]:1",
        "a:1:2",
        "a/b:1",
        "a:\u0661",
        "user@a:1",
        "[::1]x:1",
        "a:000001",
        "://a:1",
    ],
)
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        BrokerAddress.parse(written)


@given(st.from_regex(r"[a-z0-9.:-]{1,40}", fullmatch=True), st.integers(1, PORT_MAX))
def test_an_address_reads_as_it_is_shown(host: str, port: int) -> None:
    endpoint = BrokerAddress(host, port)
    assert BrokerAddress.parse(str(endpoint)) == endpoint


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        found = BrokerAddress.parse(text)
    except ValueError:
        return
    assert found.host
    assert 0 < found.port <= PORT_MAX
