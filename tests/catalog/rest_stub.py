"""A small REST catalog on loopback, with PyIceberg's models, as a stranger would run it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from pydantic import TypeAdapter
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

_REQUIREMENTS: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])
_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])


class State:
    """What the catalog holds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.namespaces: set[str] = set()
        self.tables: dict[tuple[str, str], tuple[TableMetadata, int]] = {}
        self.lost: set[str] = set()
        """Methods whose work is done and whose answer is an error of a proxy."""
        self.paths: list[str] = []


class Handler(BaseHTTPRequestHandler):
    """One request."""

    state: State

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        self.state.paths.append(self.path)
        parts = [unquote(part) for part in self.path.partition("?")[0].strip("/").split("/")[1:]]
        with self.state.lock:
            status, answer = self._answer(method, parts, body)
        if method in self.state.lost:
            status, answer = 502, error("BadGateway")
        content = b"" if method == "HEAD" or status == 204 else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, method: str, parts: list[str], body: Any) -> tuple[int, Any]:
        match method, parts:
            case "GET", ["config"]:
                # A server that would choose the code that touches files.
                return 200, {"defaults": {}, "overrides": {"py-io-impl": "no.such.FileIO"}}
            case "POST", ["namespaces"]:
                self.state.namespaces.add(body["namespace"][0])
                return 200, {"namespace": body["namespace"], "properties": {}}
            case (("GET" | "HEAD"), ["namespaces", space]):
                known = space in self.state.namespaces
                return (200, {"namespace": [space], "properties": {}}) if known else no_namespace()
            case _, ["namespaces", space, "tables"] if space not in self.state.namespaces:
                return no_namespace()
            case "GET", ["namespaces", space, "tables"]:
                found = [name for one, name in self.state.tables if one == space]
                named = [{"namespace": [space], "name": name} for name in found]
                return 200, {"identifiers": named}
            case "POST", ["namespaces", space, "tables"]:
                return self._create(space, body)
            case _, ["namespaces", space, "tables", name] if (space, name) in self.state.tables:
                return self._table(method, (space, name), body)
        return 404, error("NoSuchTableException")

    def _create(self, space: str, body: Any) -> tuple[int, Any]:
        key = (space, body["name"])
        if key in self.state.tables:
            return 409, error("AlreadyExistsException")
        made = new_table_metadata(
            Schema.model_validate(body["schema"]),
            PartitionSpec.model_validate(body["partition-spec"]),
            SortOrder.model_validate(body["write-order"]),
            body["location"],
            {**body["properties"], "format-version": "2"},
        )
        self.state.tables[key] = (made, 0)
        return 200, self._loaded(key)

    def _table(self, method: str, key: tuple[str, str], body: Any) -> tuple[int, Any]:
        if method == "DELETE":
            assert "purgeRequested=true" not in self.path.lower()
            del self.state.tables[key]
            return 204, None
        if method == "POST":
            metadata, version = self.state.tables[key]
            try:
                for requirement in _REQUIREMENTS.validate_python(body["requirements"]):
                    requirement.validate(metadata)
            except CommitFailedException as refused:
                return 409, error("CommitFailedException", str(refused))
            updates = _UPDATES.validate_python(body["updates"])
            changed = update_table_metadata(metadata, updates, enforce_validation=True)
            self.state.tables[key] = (changed, version + 1)
        return 200, self._loaded(key)

    def _loaded(self, key: tuple[str, str]) -> Any:
        metadata, version = self.state.tables[key]
        place = f"{metadata.location}/metadata/{version:05}.metadata.json"
        return {"metadata-location": place, "metadata": json.loads(metadata.model_dump_json())}


def error(kind: str, message: str = "as the test wants it") -> Any:
    return {"error": {"message": message, "type": kind, "code": 400}}


def no_namespace() -> tuple[int, Any]:
    return 404, error("NoSuchNamespaceException")


@contextmanager
def rest_catalog() -> Iterator[tuple[str, State]]:
    """The address of a catalog that runs, and what it holds."""
    state = State()
    handler = type("Bound", (Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
