"""The pages about tables, for `lakelog tables`.

/admin/tables            a row for each topic's table
/admin/tables/TOPIC      one table with its partitions and snapshots
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lakelog.model.failures import Failure, NotFound

Listed: TypeAlias = Callable[[], Awaitable[list[dict[str, object]]]]
"""A row for each table."""

Described: TypeAlias = Callable[[str], Awaitable[dict[str, object]]]
"""The table of a topic; raises NotFound."""


def table_routes(listed: Listed, described: Described) -> list[BaseRoute]:
    """The routes of the pages."""

    async def tables(_: Request) -> Response:
        try:
            return JSONResponse(await listed())
        except Failure as reason:
            return JSONResponse({"error": str(reason)}, status_code=503)

    async def table(request: Request) -> Response:
        try:
            return JSONResponse(await described(request.path_params["topic"]))
        except NotFound as reason:
            return JSONResponse({"error": str(reason)}, status_code=404)
        except Failure as reason:
            return JSONResponse({"error": str(reason)}, status_code=503)

    return [Route("/admin/tables", tables), Route("/admin/tables/{topic}", table)]
