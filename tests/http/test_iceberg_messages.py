"""Paths, pages and bodies, as strangers send them."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.http.iceberg_messages import (
    CommitRequest,
    IcebergError,
    Paging,
    VendOptions,
    page,
    paging,
    parse,
    path_segments,
    vend_options,
)

T = TypeVar("T")


def read_or_refused(read: Callable[[], T]) -> T | None:
    """What was read, or None for a 400; nothing else may happen."""
    code = 0
    try:
        return read()
    except IcebergError as error:
        code = error.code
    assert code == 400
    return None


def test_an_encoded_slash_separates_nothing() -> None:
    assert path_segments(b"/v1/a%2Fb/c+d/%1F/%E2%82%AC/") == ("v1", "a/b", "c d", "\x1f", "€")


@given(st.binary(max_size=40))
def test_any_path_is_read_or_refused(raw: bytes) -> None:
    found = read_or_refused(lambda: path_segments(raw))
    assert found is None or all(isinstance(part, str) for part in found)


@given(
    st.sets(st.text(min_size=1, max_size=5), max_size=9),
    st.integers(1, 4),
)
def test_pages_show_every_name_once(names: set[str], count: int) -> None:
    everything = sorted(names)
    shown: list[str] = []
    asked = paging({"pageSize": str(count)})
    for _ in range(len(everything) + 1):
        some, token = page(everything, asked)
        assert len(some) <= count
        shown += some
        if token is None:
            break
        asked = paging({"pageToken": token, "pageSize": str(count)})
    assert shown == everything


def test_who_names_no_page_gets_everything() -> None:
    assert paging({}) == Paging(None, None)
    assert paging({"pageToken": ""}) == Paging(None, 1000)
    assert paging({"pageSize": "5000"}) == Paging(None, 1000)


@given(st.text(max_size=20))
def test_any_token_is_read_or_refused(token: str) -> None:
    found = read_or_refused(lambda: paging({"pageToken": token}))
    assert found is None or found.count is not None


@given(st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-16")))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    with pytest.raises(IcebergError) as caught:
        parse(body, CommitRequest)
    assert caught.value.code == 400
    assert caught.value.response().status_code == 400


OPTIONS = {
    "AWS_ACCESS_KEY_ID": "id",
    "aws_secret_access_key": "hidden",
    "session_token": "also hidden",
    "region": "eu-1",
    "endpoint": "http://s3:9000",
}
PLACE = {
    "s3.endpoint": "http://s3:9000",
    "s3.region": "eu-1",
    "client.region": "eu-1",
    "s3.path-style-access": "true",
}
KEYS = {
    "s3.access-key-id": "id",
    "s3.secret-access-key": "hidden",
    "s3.session-token": "also hidden",
}


def test_settings_of_s3_get_icebergs_names() -> None:
    found = vend_options("s3://bucket/prefix", OPTIONS, vend=True)
    assert found.properties == PLACE | KEYS
    assert found.told("vended-credentials") == (PLACE | KEYS, True)
    assert found.told("remote-signing,Vended-Credentials ") == (PLACE | KEYS, True)


def test_keys_stay_here_unless_turned_on_and_asked_for() -> None:
    off = vend_options("s3://bucket", OPTIONS, vend=False)
    assert off.told("vended-credentials") == (PLACE, False)
    on = vend_options("s3://bucket", OPTIONS, vend=True)
    for header in ("", "remote-signing", "vended-credential", "x-vended-credentials"):
        assert on.told(header) == (PLACE, False)
    assert VendOptions(vend=True, properties=PLACE).told("vended-credentials") == (PLACE, False)


def test_addressing_by_host_is_told_and_amazon_itself_needs_no_endpoint() -> None:
    hosted = {**OPTIONS, "aws_virtual_hosted_style_request": "true"}
    assert vend_options("s3://b", hosted, vend=False).public()["s3.path-style-access"] == "false"
    amazon = vend_options("s3a://b", {"aws_region": "eu-1"}, vend=False)
    assert amazon.public() == {"s3.region": "eu-1", "client.region": "eu-1"}


def test_other_stores_are_told_by_their_urls_alone() -> None:
    for url in ("file:///data", "memory:", "gs://bucket", "az://container"):
        assert vend_options(url, OPTIONS, vend=True) == VendOptions(vend=True)
