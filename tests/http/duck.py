"""DuckDB with the extensions that its packages bring along: nothing is downloaded."""

import importlib.util
from pathlib import Path

import duckdb

EXTENSIONS = ("avro", "httpfs", "iceberg")


def connected(uri: str, *, delegation: bool = True) -> duckdb.DuckDBPyConnection:
    """A connection that has the catalog at the URI as `lake`.

    Without delegation, DuckDB reaches the files with secrets of its own; with it, it takes what the
    catalog says, be it without any key.
    """
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in EXTENSIONS:
        connection.execute(f"LOAD '{extension_file(name)}'")
    connection.execute("SET TimeZone = 'UTC'")
    mode = "vended_credentials" if delegation else "none"
    connection.execute(
        f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none',"
        f" ACCESS_DELEGATION_MODE '{mode}')"
    )
    return connection


def extension_file(name: str) -> Path:
    """Where the package `duckdb-extension-NAME` has put it."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert found is not None, f"pip install duckdb-extension-{name}"
    assert found.origin is not None, found
    version = f"v{duckdb.__version__}"
    return Path(found.origin).parent / "extensions" / version / f"{name}.duckdb_extension"
