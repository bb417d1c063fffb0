"""Addresses as users write them."""

import pytest

from lakelog.server.options import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("[::1]:9092", "::1", 9092),
        (":9092", "0.0.0.0", 9092),
        ("broker.example:1", "broker.example", 1),
        ("PLAINTEXT://broker.example:9092", "broker.example", 9092),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", "9092", "host", "host:", "host:http", "host:65536", "::1:9"])
def test_what_is_no_address_is_refused_with_how_it_is_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|brackets"):
        Address.parse(text)


def test_an_address_knows_who_can_reach_it() -> None:
    assert Address("127.0.0.1", 1).is_loopback()
    assert Address("::1", 1).is_loopback()
    assert Address("localhost", 1).is_loopback()
    assert not Address("0.0.0.0", 1).is_loopback()
    assert not Address("broker.example", 1).is_loopback()
    assert Address("0.0.0.0", 1).is_every_interface()
    assert Address("::", 1).is_every_interface()
    assert not Address("10.0.0.1", 1).is_every_interface()


def test_an_address_is_written_as_it_is_read() -> None:
    for address in (Address("127.0.0.1", 9092), Address("::1", 9092)):
        assert Address.parse(str(address)) == address
