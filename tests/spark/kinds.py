"""Topics whose records lie in all kinds of objects, and rows in a form that can be compared."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from pyspark.sql import DataFrame, DataFrameReader, SparkSession, functions
from tests.compat.lake_log import send_hostile
from tests.lake.running import Broker

from lakelog.streams.objects import FileKind

ROUNDS_MAX = 4
HEADED = {"includeHeaders": "true"}


def reader(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrameReader:
    """The plain data source."""
    wanted = {"lakelog.server": broker.server, "subscribe": topic, **options}
    return spark.read.format("lakelog").options(**wanted)


def rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    """All rows; timestamps as microseconds, because Python's dates end with the year 9999."""
    columns = [
        functions.unix_micros(name).alias(name) if name == "timestamp" else functions.col(name)
        for name in frame.columns
    ]
    return Counter(_plain(row) for row in frame.select(*columns).collect())


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def damage(broker: Broker, mark: bytes) -> str:
    """Change a bit of the object that holds these bytes; returns its key."""
    folder = Path(broker.options.objects_url().removeprefix("file:").removeprefix("//"))
    (path,) = [one for one in folder.rglob("*") if one.is_file() and mark in one.read_bytes()]
    content = bytearray(path.read_bytes())
    content[content.index(mark)] ^= 1
    path.write_bytes(content)
    return str(path.relative_to(folder))


def configure(broker: Broker, topic: str, configs: Mapping[str, str]) -> None:
    """Change configs of a topic."""
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": str(broker.running.address)})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def all_kinds(broker: Broker, topic: str) -> None:
    """Two partitions in segments, data files and WAL objects; some records are hard on them."""
    anything = str((1 << 63) - 1)
    broker.create(
        topic,
        2,
        lakelog_format="kfs",
        lakelog_table_freshness_ms="0",
        message_timestamp_after_max_ms=anything,
        message_timestamp_before_max_ms=anything,
    )
    _some(broker, topic)
    broker.compact()
    configure(broker, topic, {"lakelog.format": "parquet"})
    _some(broker, topic)
    for _ in range(ROUNDS_MAX):  # at first, what is in segments gets its rows in the table
        broker.compact()
    _some(broker, topic)
    for kinds in broker.kinds(topic, 2):
        assert set(kinds) == set(FileKind), kinds


def _some(broker: Broker, topic: str) -> None:
    for partition in (0, 1):
        broker.produce(topic, [b"v%d" % at for at in range(50)], partition=partition)
    asyncio.run(send_hostile(str(broker.running.address), topic))
