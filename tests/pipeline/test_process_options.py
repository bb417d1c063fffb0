"""The keys of the section `compaction` do what they say: when a stream is compacted, into what."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.lake.running import running_broker
from tests.memory_cluster import batch
from tests.pipeline.pipeline_place import EAGER, Place, assert_exact, run

from lakelog.config.load import BadConfiguration, load
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.process import compaction_options

FRESH = "lakelog.table.freshness.ms"


def told(**given: str) -> PipelineOptions:
    """The options of a pipeline with these keys, and no patience after a failure."""
    flags = {f"compaction.{name}": value for name, value in given.items()}
    made = compaction_options(load(None, {}, flags), domains=1)
    return replace(made, retry_ms=1, retry_ms_max=1, upkeep_ms=0)


async def send(place: Place, *, entries: int, size_bytes: int) -> None:
    chance = Random(7)
    for _ in range(entries):
        sent = batch(chance.randbytes(size_bytes))
        await place.node.log.append([1], [sent], deadline_s=place.cluster.soon())


async def drained(place: Place, options: PipelineOptions) -> int:
    """How many files the table has once there is nothing left to do."""
    pipeline = place.pipeline(options=options)
    assert (await pipeline.drain(rounds_max=30)).is_idle
    await pipeline.close()
    return len(await place.files("orders", 0))


def test_the_defaults_are_those_of_the_page() -> None:
    made = compaction_options(load(None, {}, {}), domains=3)
    assert (made.domains, made.namespace) == (3, "lakelog")
    assert made.plan.object_age_ms_max == 600_000
    assert (made.plan.bytes_min, made.plan.bytes_target) == (128 << 20, 256 << 20)
    assert made.plan.bytes_max == 512 << 20
    assert (made.rewrite.bytes_target, made.rewrite.files_min) == (256 << 20, 8)
    assert made.rewrite.files_kept == 100


@pytest.mark.parametrize(("target", "files"), [("64KiB", 4), ("256MiB", 1)])
def test_files_are_about_as_large_as_the_target(target: str, files: int) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await send(place, entries=8, size_bytes=40 << 10)
        assert await drained(place, told(target_file_size_bytes=target)) == files
        sizes = [file.size_bytes for file in await place.files("orders", 0)]
        assert max(sizes) < 2 * min(sizes)
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


@pytest.mark.parametrize(("age", "files"), [("0", 1), ("10min", 0)])
def test_wal_objects_of_an_age_are_compacted_whatever_their_topic_says(
    age: str, files: int
) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1], freshness_ms=3_600_000)
        await place.produce(1)
        assert await drained(place, told(wal_max_age_ms=age)) == files

    run(scenario)


@pytest.mark.parametrize(("most", "files"), [("2", 2), ("3", 3), ("100", 5)])
def test_a_partition_has_no_more_small_files_than_it_may(most: str, files: int) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        for size_bytes in (200_000, 60_000, 20_000, 6_000, 1_000):  # nothing doubles anything
            await send(place, entries=1, size_bytes=size_bytes)
            await place.pipeline(options=replace(EAGER, upkeep_ms=3_600_000)).round()
        before = await place.rows(1)
        options = told(parquet_max_files_per_partition=most)
        assert await drained(place, options) == files
        assert await place.rows(1) == before
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def freshness(admin: AdminClient, topics: Sequence[str]) -> list[str]:
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = admin.describe_configs(asked)
    return [found[one].result(30)[FRESH].value for one in asked]


def test_a_topic_waits_for_the_interval_unless_it_says_otherwise(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"compaction.interval_ms": "5min"}) as broker:
        broker.create("silent")
        broker.create("own", lakelog_table_freshness_ms="1000")
        admin = AdminClient({"bootstrap.servers": str(broker.running.address)})
        assert freshness(admin, ["silent", "own"]) == ["300000", "1000"]
        topics = {one.name: one.freshness_ms for one in broker.topics()}
        assert topics == {"silent": 300_000, "own": 1000}


def test_all_that_is_wrong_is_said_at_once() -> None:
    flags = {
        "compaction.target_file_size_bytes": "1KiB",
        "compaction.wal_max_age": "1h",
        "compaction.interval_ms": "5 parsecs",
    }
    with pytest.raises(BadConfiguration) as caught:
        load(None, {"LAKELOG_COMPACTION__PARQUET_MAX_FILES_PER_PARTITION": "x"}, flags)
    said = str(caught.value)
    assert "4 problems" in said
    assert "wal_max_age (flag) is not a key; did you mean compaction.wal_max_age_ms?" in said
    assert "target_file_size_bytes must be from 65536 to 1073741824" in said
    assert "interval_ms (flag) has the unit 'parsecs'" in said
    assert "LAKELOG_COMPACTION__PARQUET_MAX_FILES_PER_PARTITION) needs a number" in said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("interval_ms", "-1"),
        ("wal_max_age_ms", "-1"),
        ("parquet_max_files_per_partition", "1"),
        ("target_file_size_bytes", "2GiB"),
    ],
)
def test_a_value_without_sense_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(BadConfiguration, match=f"{key} must be"):
        load(None, {}, {f"compaction.{key}": value})
