"""Reading tables is light: it must not make a broker slow to start or large."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.http.iceberg_kit import Stores, small

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_metadata, open_objects

READING = """
import asyncio, sys
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_metadata, open_objects
from lakelog.http.iceberg_routes import iceberg_routes, open_iceberg

async def asked(routes, method, path, query=b"", body=b""):
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": query, "headers": [], "root_path": "",
    }
    sent = []
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}
    async def send(message):
        sent.append(message)
    scope["path_params"] = {}
    await routes[0].app(scope, receive, send)
    return sent[0]["status"]

async def run(folder):
    clock = SystemClock()
    meta = await open_metadata(f"sqlite:{folder}/meta.db", clock)
    objects = await open_objects(f"file:{folder}/objects", {}, clock, SystemEntropy())
    pages = open_iceberg(meta, objects, clock)
    routes = iceberg_routes(pages)
    table = "/iceberg/v1/namespaces/lakelog/tables/orders"
    assert await asked(routes, "GET", "/iceberg/v1/config") == 200
    assert await asked(routes, "GET", table) == 200
    assert await asked(routes, "GET", table, b"snapshots=refs") == 200
    assert await asked(routes, "HEAD", table) == 204
    report = b'{"report-type":"x"}'
    assert await asked(routes, "POST", table + "/metrics", b"", report) == 204
    commit = b'{"requirements":[],"updates":[{"action":%s}]}'
    foreign = commit % b'"add-snapshot","snapshot":{}'
    assert await asked(routes, "POST", table, b"", foreign) == 403
    heavy = {"pyiceberg", "pyarrow", "numpy", "pydantic"} & set(sys.modules)
    assert not heavy, heavy
    allowed = commit % b'"set-properties","updates":{"a":"b"}'
    assert await asked(routes, "POST", table, b"", allowed) == 200
    assert "pyiceberg" in sys.modules
    await pages.close()
    await meta.close()
    await objects.close()

asyncio.run(run(sys.argv[1]))
"""


def test_reading_loads_neither_pyiceberg_nor_pyarrow(tmp_path: Path) -> None:
    async def made() -> None:
        clock = SystemClock()
        meta = await open_metadata(f"sqlite:{tmp_path}/meta.db", clock)
        objects = await open_objects(f"file:{tmp_path}/objects", {}, clock, SystemEntropy())
        await small(Stores(meta, objects))
        await objects.close()
        await meta.close()

    asyncio.run(made())
    done = subprocess.run(
        [sys.executable, "-c", READING, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
