"""A topic's table and its files in Iceberg's terms."""

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import _ConvertToIceberg, visit_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from tests.catalog.kit import DEFINITION, facts, memory, run

from lakelog.catalog.commit import column_ids, create_table, data_file, iceberg_schema
from lakelog.catalog.definition import table_properties
from lakelog.catalog.port import DataFileFacts
from lakelog.model.failures import Refused
from lakelog.records.table_schema import FIELD_IDS, table_schema

OWNED = replace(DEFINITION, properties={"owner": "me"})


def create(catalog: Catalog) -> Table:
    return create_table(catalog, OWNED, "memory:///tables/t")


def test_the_columns_are_those_that_the_files_have() -> None:
    written = visit_pyarrow(table_schema(), _ConvertToIceberg())
    assert isinstance(written, Schema)
    assert iceberg_schema().as_struct() == written.as_struct()


def test_a_new_table_keeps_the_ids_and_says_what_it_is() -> None:
    async def work() -> None:
        table = await memory().with_catalog(create)
        assert column_ids(table.schema()) == FIELD_IDS
        assert table.metadata.format_version == 2
        (partition,) = table.spec().fields
        assert (partition.name, str(partition.transform)) == ("partition", "identity")
        assert table.sort_order().fields[0].source_id == FIELD_IDS["offset"]
        assert table.properties == table_properties(OWNED)
        assert table.properties["commit.retry.num-retries"] == "0"
        assert table.properties["gc.enabled"] == "false"
        assert table.properties["lakelog.topic"] == DEFINITION.topic
        assert table.properties["lakelog.cluster_id"] == "cluster-1"
        assert table.properties["lakelog.schema_version"] == "1"
        assert table.properties["lakelog.offsets"] == "{}"

    run(work)


def test_a_data_file_is_described_without_reading_it() -> None:
    async def work() -> None:
        table = await memory().with_catalog(create)
        file = DataFileFacts(
            key="data/x.parquet",
            partition=3,
            offset_first=10,
            offset_end=20,
            row_count=8,
            size_bytes=4321,
            timestamp_min_us=-5,
            timestamp_max_us=2**62,
            column_sizes=(("value", 100), ("headers.element.key", 7)),
            row_group_starts=(4, 2000),
        )
        made = data_file(table, file, "memory:///data/x.parquet")
        assert (made.file_path, made.file_size_in_bytes) == ("memory:///data/x.parquet", 4321)
        assert (made.record_count, made.partition[0], made.split_offsets) == (8, 3, [4, 2000])
        assert made.column_sizes == {5: 100, 14: 7}
        assert made.value_counts == {1: 8, 2: 8, 3: 8}
        assert made.null_value_counts == {1: 0, 2: 0, 3: 0}
        assert bounds(table, made) == {1: (3, 3), 2: (10, 19), 3: (-5, 2**62)}
        assert (made.spec_id, made.sort_order_id) == (0, 1)

    run(work)


def bounds(table: Table, file: DataFile) -> dict[int, tuple[object, object]]:
    kinds = {number: table.schema().find_type(number) for number in file.lower_bounds}
    return {
        number: (
            from_bytes(kind, file.lower_bounds[number]),  # type: ignore[arg-type]  # primitives
            from_bytes(kind, file.upper_bounds[number]),  # type: ignore[arg-type]  # primitives
        )
        for number, kind in kinds.items()
    }


def test_the_ids_come_from_the_table_and_a_missing_column_is_refused() -> None:
    async def work() -> None:
        def change(catalog: Catalog) -> Table:
            table = create(catalog)
            with table.update_schema(allow_incompatible_changes=True) as schema:
                schema.delete_column("raw")
            with table.update_schema() as schema:
                schema.add_column("raw", iceberg_schema().find_type("raw"))
            return table

        table = await memory().with_catalog(change)
        assert column_ids(table.schema())["raw"] == 16

        def made(catalog: Catalog) -> Table:
            fresh = create(catalog)
            with fresh.update_schema(allow_incompatible_changes=True) as schema:
                schema.delete_column("headers")
            return fresh

        bare = await memory().with_catalog(made)
        with pytest.raises(Refused, match="headers"):
            data_file(bare, facts(0, 0, 1), "memory:///data/x")

    run(work)


def test_a_table_partitioned_otherwise_is_refused() -> None:
    async def work() -> None:
        def change(catalog: Catalog) -> Table:
            table = create(catalog)
            with table.update_spec() as spec:
                spec.add_field("timestamp", "day", "day")
            return table

        table = await memory().with_catalog(change)
        with pytest.raises(Refused, match="identity"):
            data_file(table, facts(0, 0, 1), "memory:///data/x")

    run(work)
