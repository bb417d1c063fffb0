"""Locations and keys, and what is not touched."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.catalog.definition import Locations
from lakelog.model.failures import Refused

FILES = Locations.below("file:///data/the%20log")


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("file:///data/log", "file:///data/log/tables/a/b.json"),
        ("file:///data/the%20log%25", "file:///data/the log%/tables/a/b.json"),
        ("s3://bucket", "s3://bucket/tables/a/b.json"),
        ("s3://bucket/a/prefix/", "s3://bucket/a/prefix/tables/a/b.json"),
        ("memory:", "memory:///tables/a/b.json"),
    ],
)
def test_a_location_is_the_stores_place_and_the_key(url: str, location: str) -> None:
    locations = Locations.below(url)
    assert locations.location("tables/a/b.json") == location
    assert locations.key(location) == "tables/a/b.json"


@pytest.mark.parametrize(
    "location",
    [
        f"file:{slashes}data/{name}/x"
        for slashes in ("/", "///")
        for name in ("the log", "the%20log")
    ],
)
def test_a_file_may_be_spelled_as_java_does(location: str) -> None:
    assert FILES.key(location) == "x"


def test_hadoops_names_of_a_bucket_are_the_same_bucket() -> None:
    assert Locations.below("s3://b/p").key("s3a://b/p/x") == "x"
    assert Locations.below("s3://b/p").key("s3n://b/p/x") == "x"


@pytest.mark.parametrize(
    "location",
    [
        "",
        "x",
        "/data/the log/x",
        "file:///data/the log",
        "file:///data/the log/",
        "file:///data/the log//x",
        "file:///data/the log/../x",
        "file:///data/the log/a/../../x",
        "file:///data/the log/./x",
        "file:///data/the log/%2e%2e/x",
        "file:///data/the log/a\x00b",
        "file:///data/the logs/x",
        "file:///etc/passwd",
        "file://host/data/the log/x",
        "s3://bucket/data/the log/x",
        "memory:///x",
        "file:///data/the log/x?versionId=1",
        "file:///data/the log/x\n",
        "FILE:///data/the log/x",
        "file:///data/the log/" + "x" * 1000,
    ],
)
def test_what_is_not_plainly_below_the_root_is_refused(location: str) -> None:
    with pytest.raises(Refused, match="not touched"):
        FILES.key(location)


@given(st.text())
def test_no_text_leads_out(text: str) -> None:
    for location in (text, FILES.root + text):
        try:
            key = FILES.key(location)
        except Refused:
            continue
        assert (Path("/data/the log") / key).resolve().is_relative_to("/data/the log")
