"""The Iceberg REST catalog: topics' tables for Spark, Trino, DuckDB, PyIceberg and others.

Served below `/iceberg`, which is what an engine is given as the catalog's URI:

GET  /v1/config                                    what is served here
GET  /v1/namespaces                                ?parent= &pageToken= &pageSize=
GET  /v1/namespaces/{namespace}                    HEAD too
GET  /v1/namespaces/{namespace}/tables             ?pageToken= &pageSize=
GET  /v1/namespaces/{namespace}/tables/{table}     ?snapshots=all|refs, If-None-Match; HEAD too
POST /v1/namespaces/{namespace}/tables/{table}     a commit: columns, properties, tags, branches
POST …/tables/{table}/metrics                      taken and forgotten

Tables and namespaces come and go with topics, so that nothing here makes or drops one. Whoever
reaches the port may read and send changes: a token that is sent is not looked at.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakelog.catalog.port import TableName
from lakelog.clock import Clock
from lakelog.http.iceberg_messages import (
    CommitRequest,
    IcebergError,
    MetricsReport,
    VendOptions,
    bad_request,
    forbidden,
    no_namespace,
    no_table,
    of_commit,
    of_read,
    page,
    paging,
    parse,
    path_segments,
    unsupported,
)
from lakelog.http.iceberg_tables import (
    IcebergLimits,
    IcebergTables,
    commit_result,
    etag,
    load_result,
    matches,
    only_referenced,
)
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Failure
from lakelog.objects.port import ObjectStore
from lakelog.telemetry import event

BODY_BYTES_MAX: Final = 1 << 20
"""A commit from outside is a few kilobytes: columns, properties, tags."""

DRAINED_BYTES_MAX: Final = 32 << 20
"""So much of a body that is too large is read all the same: who still sends hears no answer."""

BODY_S: Final = 20.0


async def read_body(request: Request) -> bytes:
    """The whole body; one that is too large or too slow is a 400."""
    kept: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size_bytes += len(part)
                if size_bytes <= BODY_BYTES_MAX:
                    kept.append(part)
                elif size_bytes > DRAINED_BYTES_MAX:
                    break
    except TimeoutError as error:
        raise bad_request(f"the body did not arrive within {BODY_S:.0f} seconds") from error
    if size_bytes > BODY_BYTES_MAX:
        raise bad_request(f"the body is larger than {BODY_BYTES_MAX} bytes")
    return b"".join(kept)


PATH: Final = "/iceberg"
"""Where the catalog is below the HTTP port."""

log = logging.getLogger("lakelog.http")

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_TOPICS: Final = "tables come and go with their topics"
_SPACES: Final = "namespaces come and go with their tables, and have no properties"
_NAMESPACE: Final = "namespaces/{namespace}"
_TABLE: Final = f"{_NAMESPACE}/tables/{{table}}"
_REFUSED: Final[Mapping[tuple[str, str], str]] = {
    ("POST", "namespaces"): _SPACES,
    ("DELETE", _NAMESPACE): _SPACES,
    ("POST", f"{_NAMESPACE}/properties"): _SPACES,
    ("POST", f"{_NAMESPACE}/tables"): _TOPICS,
    ("POST", f"{_NAMESPACE}/register"): _TOPICS,
    ("DELETE", _TABLE): f"{_TOPICS}; delete the topic",
    ("POST", "tables/rename"): "a table has the name of its topic",
    ("POST", "transactions/commit"): "a commit is of one table",
}
"""What the protocol knows and this catalog never does, and why."""

_JSON: Final = "application/json"
Names: TypeAlias = tuple[str, ...]
Handler: TypeAlias = "Callable[[IcebergPages, Request, Names], Awaitable[Response]]"


@dataclass(frozen=True, slots=True)
class IcebergPages:
    """The catalog's answers."""

    tables: IcebergTables
    vend: VendOptions
    namespace: str | None
    """The namespace of topics' tables, which is there while it has no table, too."""

    async def config(self, _: Request, __: Names) -> Response:
        """What is served: a client does not ask for anything else then."""
        served = [f"{method} /v1/{{prefix}}/{path}" for method, path in _SERVED]
        return JSONResponse({"defaults": {}, "overrides": {}, "endpoints": served})

    async def namespaces(self, request: Request, _: Names) -> Response:
        """The namespaces; none has another in it."""
        asked = paging(request.query_params)
        found = await self._namespaces()
        parent = request.query_params.get("parent")
        if parent:
            if parent not in found:
                raise no_namespace(parent)
            found = []
        shown, token = page(found, asked)
        return JSONResponse({"namespaces": [[name] for name in shown], "next-page-token": token})

    async def namespace_of(self, request: Request, names: Names) -> Response:
        """One namespace: that it is there."""
        if names[0] not in await self._namespaces():
            raise no_namespace(names[0])
        if request.method == "HEAD":
            return Response(status_code=204)
        return JSONResponse({"namespace": [names[0]], "properties": {}})

    async def _namespaces(self) -> list[str]:
        home = () if self.namespace is None else (self.namespace,)
        return sorted({*await self.tables.namespaces(), *home})

    async def table_names(self, request: Request, names: Names) -> Response:
        """The tables of a namespace."""
        asked = paging(request.query_params)
        namespace = names[0]
        found = await self.tables.names(namespace)
        if not found and namespace != self.namespace:
            raise no_namespace(namespace)
        shown, token = page(found, asked)
        tables = [{"namespace": [namespace], "name": name} for name in shown]
        return JSONResponse({"identifiers": tables, "next-page-token": token})

    async def table_exists(self, _: Request, names: Names) -> Response:
        """Whether a table is there, in the code alone."""
        if not await self.tables.exists(TableName(*names)):
            raise no_table(*names)
        return Response(status_code=204)

    async def load_table(self, request: Request, names: Names) -> Response:
        """A table's metadata, and how to reach its files."""
        mode = request.query_params.get("snapshots", "all").lower()
        if mode not in ("all", "refs"):
            raise bad_request(f"snapshots is 'all' or 'refs', not {mode[:50]!r}")
        table = await self.tables.load(TableName(*names))
        if table is None:
            raise no_table(*names)
        config, keyed = self.vend.told(request.headers.get("x-iceberg-access-delegation", ""))
        # Whether there are keys in an answer is part of its name, the keys are not.
        tag = etag(table, mode, sorted(self.vend.public().items()), keyed)
        if matches(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers={"etag": tag})
        metadata = table.metadata if mode == "all" else only_referenced(table)
        # DuckDB takes a lone credential for the table's own folder, where its data files are not.
        below = (self.tables.root, f"{self.tables.root}tables/") if keyed else ()
        body = load_result(table, metadata, config, credentials_below=below)
        return Response(body, media_type=_JSON, headers={"etag": tag})

    async def commit(self, request: Request, names: Names) -> Response:
        """A change of a table."""
        sent = parse(await read_body(request), CommitRequest)
        meant = sent.identifier
        if meant is not None and (*meant.namespace, meant.name) != names:
            raise bad_request("the identifier in the body is not the table in the path")
        try:
            table = await self.tables.commit(TableName(*names), sent.requirements, sent.updates)
        except Failure as failure:
            raise of_commit(failure) from failure
        return Response(commit_result(table, table.metadata), media_type=_JSON)

    async def metrics(self, request: Request, names: Names) -> Response:
        """Take what an engine measured, for which it waits, and forget it."""
        parse(await read_body(request), MetricsReport)
        if not await self.tables.exists(TableName(*names)):
            raise no_table(*names)
        return Response(status_code=204)

    async def answer(self, request: Request) -> Response:
        """Whatever is asked for below the catalog's path."""
        try:
            handler, names = _asked(request)
            return await handler(self, request, names)
        except IcebergError as error:
            return error.response()
        except ClientDisconnect:
            return bad_request("the body did not arrive").response()
        except (Failure, TimeoutError) as failure:
            told = of_read(failure)
            if told.code == 500:
                path = request.url.path
                event(log, "catalog_failed", logging.ERROR, path=path, reason=repr(failure))
            return told.response()

    async def close(self) -> None:
        """End the threads of commits; the stores are the caller's."""
        await self.tables.close()


_SERVED: Final[Mapping[tuple[str, str], Handler]] = {
    ("GET", "namespaces"): IcebergPages.namespaces,
    ("GET", _NAMESPACE): IcebergPages.namespace_of,
    ("HEAD", _NAMESPACE): IcebergPages.namespace_of,
    ("GET", f"{_NAMESPACE}/tables"): IcebergPages.table_names,
    ("GET", _TABLE): IcebergPages.load_table,
    ("HEAD", _TABLE): IcebergPages.table_exists,
    ("POST", _TABLE): IcebergPages.commit,
    ("POST", f"{_TABLE}/metrics"): IcebergPages.metrics,
}
"""What is served and announced, by method and path below the version."""


def _asked(request: Request) -> tuple[Handler, Names]:
    """Who answers, and the names in the path; raises the error for what nobody answers."""
    raw_path = request.scope.get("raw_path") or request.scope["path"].encode(errors="replace")
    segments = path_segments(raw_path.removeprefix(PATH.encode()))
    if segments[0] != "v1":
        raise IcebergError(404, "NotFoundException", "the paths of this catalog begin with /v1")
    rest = segments[1:]
    if rest == ("config",) and request.method in ("GET", "HEAD"):
        return IcebergPages.config, ()
    for (method, template), handler in _SERVED.items():
        names = _names(template, rest)
        if method == request.method and names is not None:
            return handler, names
    raise _nobody(request.method, rest)


def _nobody(method: str, rest: Names) -> IcebergError:
    for (refused, template), reason in _REFUSED.items():
        if refused == method and _names(template, rest) is not None:
            return forbidden(reason)
    known = any(_names(template, rest) is not None for _, template in (*_SERVED, *_REFUSED))
    if known or rest == ("config",):
        return unsupported(f"{method} is not done here", code=405)
    return IcebergError(404, "NotFoundException", "this catalog has no such path")


def _names(template: str, segments: Names) -> Names | None:
    """The names in a path, if it is of this form."""
    parts = template.split("/")
    if len(parts) != len(segments):
        return None
    pairs = list(zip(parts, segments, strict=True))
    if any(part[0] != "{" and part != segment for part, segment in pairs):
        return None
    names = tuple(segment for part, segment in pairs if part[0] == "{")
    return names if all(names) else None


def open_iceberg(
    meta: MetadataStore,
    objects: ObjectStore,
    clock: Clock,
    *,
    vend: VendOptions | None = None,
    namespace: str | None = None,
    limits: IcebergLimits | None = None,
) -> IcebergPages:
    """The catalog over a cluster's stores; close it when the port is closed."""
    tables = IcebergTables(meta, objects, clock, limits)
    return IcebergPages(tables, vend or VendOptions(), namespace)


def iceberg_routes(catalog: IcebergPages) -> list[Route]:
    """The routes of the catalog, for the application of the HTTP port."""
    return [Route(f"{PATH}/{{path:path}}", catalog.answer, methods=list(_METHODS))]
