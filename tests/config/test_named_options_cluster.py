"""How a cluster is reached, by options."""

import pytest

from lakelog.config.named_options import (
    BadOption,
    ClusterOptions,
    has_bootstrap,
    parse_cluster,
    servers,
)


def test_servers_and_a_file_say_where_the_cluster_is() -> None:
    given = {"lakelog.server": "http://a:1,http://[::1]:2/ , http://b", "lakelog.config": " f "}
    found = parse_cluster(given, has_bootstrap=True)
    assert found == ClusterOptions(("a:1", "[::1]:2", "b:80"), "f")
    assert parse_cluster({"lakelog.config": "f"}, has_bootstrap=False) == ClusterOptions((), "f")


def test_one_of_them_must_be_there() -> None:
    with pytest.raises(BadOption, match=r"^set lakelog\.server to") as caught:
        parse_cluster({}, has_bootstrap=False)
    assert caught.value.option == "lakelog.server"
    with pytest.raises(BadOption, match=r"^kafka\.bootstrap\.servers alone"):
        parse_cluster({}, has_bootstrap=True)
    with pytest.raises(BadOption, match=r"lakelog\.config is empty"):
        parse_cluster({"lakelog.config": " "}, has_bootstrap=False)


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
