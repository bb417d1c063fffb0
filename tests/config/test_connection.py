"""How a cluster is reached, by options."""

import pytest

from lakelog.config.connection import Connection, has_bootstrap, parse_connection, servers
from lakelog.config.named_options import BadOption


def test_servers_and_a_file_say_where_the_cluster_is() -> None:
    given = {"lakelog.server": "http://a:1,http://[::1]:2/ , http://b", "lakelog.config": " f "}
    found = parse_connection(given, has_bootstrap=True)
    assert found == Connection(("a:1", "[::1]:2", "b:80"), "f")
    assert parse_connection({"lakelog.config": "f"}, has_bootstrap=False) == Connection((), "f")


def test_one_of_them_must_be_there() -> None:
    with pytest.raises(BadOption, match=r"^set lakelog\.server to") as caught:
        parse_connection({}, has_bootstrap=False)
    assert caught.value.option == "lakelog.server"
    with pytest.raises(BadOption, match=r"^kafka\.bootstrap\.servers alone"):
        parse_connection({}, has_bootstrap=True)
    with pytest.raises(BadOption, match=r"lakelog\.config is empty"):
        parse_connection({"lakelog.config": " "}, has_bootstrap=False)


@pytest.mark.parametrize(
    "text",
    ["", " , ", "a:1", "https://a:1", "http://a:1/x", "http://u@a:1", "http://a:b", "http://"],
)
def test_what_is_no_http_port_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="HOST:PORT"):
        servers("o", text)


def test_kafkas_own_address_is_seen_in_any_case() -> None:
    assert has_bootstrap({"Kafka.Bootstrap.Servers": "x"})
    assert not has_bootstrap({"bootstrap.servers": "x"})
