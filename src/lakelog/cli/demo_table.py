"""The table of the demo: compacted by the pipeline as a user would run it, then queried.

Queries go through the broker's Iceberg catalog, as any engine's would: PyIceberg's, and DuckDB's
where it is installed with its extensions.
"""

import asyncio
import importlib.util
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakelog.cli.compose import Running
from lakelog.config.options import Options
from lakelog.model.failures import Corrupt, Unavailable

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.cli.demo_clients import Placed

SPARK_S_MAX: Final = 300.0
EXTENSIONS: Final = ("avro", "httpfs", "iceberg")


@dataclass(frozen=True, slots=True)
class TableFigures:
    """What the table came to."""

    files: int
    rows: int
    size_bytes: int
    spark_s: float
    query_s: float = 0.0
    consume_again_s: float = 0.0


async def compacted(running: Running, options: Options) -> TableFigures:
    """Run `lakelog pipeline --once` for this broker; what it wrote."""
    began_s = time.perf_counter()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lakelog.cli.main", "pipeline", "--once", "--json"),
        *("--data", options.broker.data, "--server", f"http://{running.http}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SPARK_S_MAX):
            answer, complaints = await child.communicate()
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()
    if child.returncode:
        raise Unavailable(f"the pipeline failed: {complaints.decode(errors='replace')[-500:]}")
    topics = json.loads(answer)
    return TableFigures(
        files=sum(topic["files"] for topic in topics),
        rows=sum(topic["rows"] for topic in topics),
        size_bytes=sum(topic["written_bytes"] for topic in topics),
        spark_s=time.perf_counter() - began_s,
    )


def same_rows(running: Running, namespace: str, topic: str, placed: "Placed") -> None:
    """Raise `Corrupt` unless the table has exactly these records; blocks while it is read."""
    from pyiceberg.catalog.rest import RestCatalog  # noqa: PLC0415 - slow to import, and an extra

    catalog = RestCatalog("demo", uri=f"http://{running.http}/iceberg")
    rows = catalog.load_table((namespace, topic)).scan().to_arrow()
    if rows.num_rows != len(placed):
        raise Corrupt(f"{len(placed)} records were produced, the table has {rows.num_rows} rows")
    for row in _rows(rows):
        partition, offset, *found = row
        record = placed.get((int(str(partition)), int(str(offset))))
        wanted = None if record is None else [record.timestamp_ms, record.key, record.value]
        if found != wanted:
            raise Corrupt(f"the row of offset {offset} of partition {partition} differs")


def duckdb_count(running: Running, namespace: str, topic: str) -> int | None:
    """How many rows DuckDB counts; None where it or an extension is not installed."""
    places = [importlib.util.find_spec(f"duckdb_extension_{name}") for name in EXTENSIONS]
    if importlib.util.find_spec("duckdb") is None or None in places:
        return None
    import duckdb  # noqa: PLC0415 - only where it is installed

    with duckdb.connect() as connection:
        for name, place in zip(EXTENSIONS, places, strict=True):
            assert place is not None, "looked at above"
            files = Path(str(place.origin)).parent / "extensions" / f"v{duckdb.__version__}"
            connection.execute(f"LOAD '{files / f'{name}.duckdb_extension'}'")
        connection.execute(
            f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT 'http://{running.http}/iceberg',"
            " AUTHORIZATION_TYPE 'none')"
        )
        counting = f'SELECT count(*) FROM lake."{namespace}"."{topic}"'  # noqa: S608 - names of ours
        found = connection.execute(counting).fetchone()
    assert found is not None, "a count is one row"
    return int(found[0])


def _rows(rows: "pa.Table") -> "list[tuple[object, ...]]":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    stamps = rows["timestamp"].cast(pa.int64()).to_numpy() // 1000
    columns = [rows[name].to_pylist() for name in ("partition", "offset", "key", "value")]
    return list(zip(columns[0], columns[1], stamps.tolist(), *columns[2:], strict=True))
