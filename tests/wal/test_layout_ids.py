"""WAL ids are ordered by time, and keys and ids say the same."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.ids import DomainId, WalId
from lakelog.wal.layout import (
    TIME_MS_END,
    WalPlace,
    make_wal_id,
    object_key,
    parse_object_key,
    wal_id_time_ms,
)

times = st.integers(0, TIME_MS_END - 1)
tokens = st.binary(min_size=10, max_size=10)
ID = make_wal_id(1_794_717_942_231, bytes(range(10)))
KEY = "wal/v1/zone=az-1/domain=3/date=2026/11/15/01a1dd86-81d7-7001-8203-040506070809.wo"


def test_an_id_is_a_uuid_of_version_7() -> None:
    uuid = UUID(bytes=bytes(ID))
    assert str(uuid) == "01a1dd86-81d7-7001-8203-040506070809"
    assert uuid.version == 7


@given(time_ms=times, token=tokens)
def test_the_time_comes_back(time_ms: int, token: bytes) -> None:
    assert wal_id_time_ms(make_wal_id(time_ms, token)) == time_ms


@given(earlier=times, later=times, one=tokens, other=tokens)
def test_ids_sort_by_time_whatever_chance_says(
    earlier: int, later: int, one: bytes, other: bytes
) -> None:
    if earlier < later:
        assert make_wal_id(earlier, one) < make_wal_id(later, other)


def test_the_key_is_the_documents_path() -> None:
    assert object_key("az-1", DomainId(3), ID) == KEY
    assert parse_object_key(KEY) == WalPlace("az-1", DomainId(3), ID)


@given(time_ms=times, token=tokens, zone=st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True))
def test_every_key_is_parsed_back(time_ms: int, token: bytes, zone: str) -> None:
    wal_id = make_wal_id(time_ms, token)
    key = object_key(zone, DomainId(7), wal_id)
    assert parse_object_key(key) == WalPlace(zone, DomainId(7), wal_id)


@pytest.mark.parametrize(
    "key",
    [
        "",
        KEY + "x",
        KEY.removesuffix(".wo"),
        KEY.replace("11/15", "11/16"),
        KEY.replace("domain=3", "domain=03"),
        KEY.replace("domain=3", "domain=-3"),
        KEY.replace("domain=3", "domain=٣"),
        KEY.replace("az-1", ".."),
        KEY.replace("az-1", "a b"),
        KEY.replace("az-1", ""),
        KEY.replace("-7001-", "-4001-"),
        KEY.replace("-8203-", "-0203-"),
        KEY.replace("01a1dd86", "01A1DD86"),
        KEY.replace("01a1dd86-81d7", "01a1dd8681d7-"),
        KEY.replace("01a1dd86", "ffffffff"),
        KEY.replace("wal/v1", "wal/v2"),
        "x" + KEY,
    ],
)
def test_a_key_that_we_do_not_make_is_nobodys(key: str) -> None:
    assert parse_object_key(key) is None


@pytest.mark.parametrize("zone", ["", "a/b", "..", "a b", "x" * 64])
def test_a_zone_that_could_leave_its_place_is_a_bug(zone: str) -> None:
    with pytest.raises(AssertionError):
        object_key(zone, DomainId(0), ID)


def test_times_that_no_date_can_name_are_a_bug() -> None:
    for time_ms in (-1, TIME_MS_END):
        with pytest.raises(AssertionError):
            make_wal_id(time_ms, bytes(10))
    with pytest.raises(AssertionError):
        make_wal_id(0, bytes(9))
    assert object_key("z", DomainId(0), WalId(make_wal_id(TIME_MS_END - 1, bytes(10))))
