"""`python -m tests.compat.tables`: a topic's table read by Spark SQL, DuckDB and PyIceberg.

All of them through the Iceberg REST catalog; every partition must have the same rows in each. Then
Spark does what anybody may do with a table, and tries its maintenance procedures, which must change
nothing and say why. Without `--uri` a table is made for it, with ordinary and hostile records.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from tests.compat.clients import MissingError
from tests.compat.spark_runtime import find_runtime
from tests.compat.tables_figures import DUCKDB, SPARK, Figures, Report, figures, statement
from tests.http.duck import connected
from tests.http.iceberg_kit import NAMESPACE, served

LINE_CHARACTERS = 200
Reader = Callable[[str, str, str], Mapping[int, Figures]]


def read_duckdb(catalog_uri: str, namespace: str, table: str) -> Mapping[int, Figures]:
    """The figures as DuckDB reads them."""
    with connected(catalog_uri) as duck:
        query = statement(DUCKDB, f'lake."{namespace}"."{table}"')
        return figures(duck.execute(query).fetchall())


def read_pyiceberg(catalog_uri: str, namespace: str, table: str) -> Mapping[int, Figures]:
    """The figures of what PyIceberg reads, batch by batch; DuckDB only adds up."""
    with RestCatalog("lake", uri=catalog_uri) as catalog, connected(catalog_uri) as duck:
        rows = catalog.load_table((namespace, table)).scan().to_arrow_batch_reader()
        duck.register("read_rows", rows)
        return figures(duck.execute(statement(DUCKDB, "read_rows")).fetchall())


def read_spark(catalog_uri: str, namespace: str, table: str) -> Mapping[int, Figures]:
    """The figures as Spark SQL with Iceberg's runtime reads them."""
    query = statement(SPARK, f"lake.`{namespace}`.`{table}`")
    done = find_runtime().run(catalog_uri, [("figures", query)])["figures"]
    if done.error is not None:
        raise AssertionError(f"Spark cannot read {namespace}.{table}: {done.error}")
    return figures(done.rows)


READERS: Mapping[str, Reader] = {
    "Spark SQL": read_spark,
    "DuckDB": read_duckdb,
    "PyIceberg": read_pyiceberg,
}


def compare(
    catalog_uri: str, namespace: str, table: str, engines: Sequence[str] = tuple(READERS)
) -> Report:
    """Read the table with every engine; one that cannot be had is in `skipped`, by name."""
    read: dict[str, Mapping[int, Figures]] = {}
    skipped = {}
    for name in engines:
        try:
            read[name] = READERS[name](catalog_uri, namespace, table)
        except MissingError as reason:
            skipped[name] = str(reason)
    return Report(read, skipped)


def maintenance(namespace: str, table: str) -> Mapping[str, str]:
    """What would change a table's files, and must not, by the statement's name."""
    name, quoted = f"lake.`{namespace}`.`{table}`", f"`{namespace}`.`{table}`"
    late = "TIMESTAMP '2099-01-01 00:00:00'"
    return {
        "expire snapshots": (
            f"CALL lake.system.expire_snapshots(table => '{quoted}', older_than => {late}, "
            "retain_last => 1)"
        ),
        "rewrite data files": (
            f"CALL lake.system.rewrite_data_files(table => '{quoted}', "
            "options => map('rewrite-all', 'true'))"
        ),
        "rewrite manifests": f"CALL lake.system.rewrite_manifests('{quoted}')",
        "remove orphans": f"CALL lake.system.remove_orphan_files(table => '{quoted}')",
        "insert": f"INSERT INTO {name} SELECT * FROM {name} WHERE partition = 0",
        "delete": f"DELETE FROM {name} WHERE partition = 0",
        "drop": f"DROP TABLE {name}",
        "purge": f"DROP TABLE {name} PURGE",
        "collect": f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'true')",
        "upgrade": f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')",
        "drop column": f"ALTER TABLE {name} DROP COLUMN value",
    }


def changes(namespace: str, table: str) -> Mapping[str, str]:
    """What anybody may do with a table, by the statement's name; at the end it is as before."""
    name = f"lake.`{namespace}`.`{table}`"
    return {
        "set a property": f"ALTER TABLE {name} SET TBLPROPERTIES ('shop' = 'north')",
        "unset it": f"ALTER TABLE {name} UNSET TBLPROPERTIES ('shop')",
        "add a column": f"ALTER TABLE {name} ADD COLUMN price struct<amount: decimal(10, 2)>",
        "read it": f"SELECT price FROM {name} LIMIT 1",
        "drop it": f"ALTER TABLE {name} DROP COLUMN price",
        "make a tag": f"ALTER TABLE {name} CREATE TAG audit",
        "read the tag": f"SELECT count(*) FROM {name} VERSION AS OF 'audit'",
        "drop the tag": f"ALTER TABLE {name} DROP TAG audit",
        "list snapshots": f"SELECT count(*) FROM {name}.snapshots",
    }


def try_statements(catalog_uri: str, statements: Mapping[str, str]) -> Mapping[str, str | None]:
    """The reason that Spark hears for each statement; None for one that was done."""
    done = find_runtime().run(catalog_uri, list(statements.items()))
    return {name: outcome.error for name, outcome in done.items()}


@contextmanager
def catalog(options: argparse.Namespace) -> Iterator[str]:
    """Lend the URI of the catalog that the command line asks for."""
    if options.uri:
        yield options.uri
        return
    temporary = tempfile.TemporaryDirectory(prefix="lakelog-tables-")
    with temporary as folder, served(Path(folder)) as found:
        yield found.uri


def main(arguments: Sequence[str]) -> int:
    """Compare, try to break it, compare again; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.tables", description=__doc__)
    parser.add_argument("--uri", help="a running catalog, such as http://127.0.0.1:9093/iceberg")
    parser.add_argument("--namespace", default=NAMESPACE)
    parser.add_argument("--table", default="orders")
    options = parser.parse_args(arguments)
    place = (options.namespace, options.table)
    with catalog(options) as uri:
        before = compare(uri, *place)
        broken = show(before)
        if not before.skipped:
            allowed, refused = changes(*place), maintenance(*place)
            for name, reason in try_statements(uri, {**allowed, **refused}).items():
                wrong = (reason is None) == (name in refused)
                broken |= wrong
                print(f"{'WRONG ' * wrong}{name:20} {reason or 'done'}"[:LINE_CHARACTERS])
            broken |= compare(uri, *place).engines != before.engines
    print("differs" if broken else "the same in every engine, before and after")
    return 1 if broken else 0


def show(report: Report) -> bool:
    """Print what was read; True if something differs."""
    for name, reason in report.skipped.items():
        print(f"{name:12} skipped: {reason}")
    for name, read in report.engines.items():
        for number, one in read.items():
            print(f"{name:12} partition {number}: {one.rows:,} rows, {one.bytes:,} B, {one.hash}")
    for difference in report.differences():
        print(difference)
    return bool(report.differences())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
