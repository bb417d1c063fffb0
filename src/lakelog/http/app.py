"""The pages of the HTTP port.

/healthz       the process runs and its loop turns
/readyz        every part is fit; names the one that is not, with 503
/metrics       Prometheus' text form, rendered off the loop
/admin/index   a partition's offset index: ?topic=NAME&partition=N

What else is served, other modules bring as routes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from lakelog.http.health import Health
from lakelog.model.failures import Failure, NotFound

IndexOf: TypeAlias = Callable[[str, int], Awaitable[list[dict[str, object]]]]
"""The index of a topic's partition, entry by entry; raises NotFound."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What the pages show."""

    health: Health
    registry: CollectorRegistry
    index_of: IndexOf
    renderer: Executor  # rendering thousands of series would stop the loop for 100 ms

    async def healthz(self, _: Request) -> Response:
        """Alive."""
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        """Ready, or why not."""
        states = self.health.states()
        ready = all(state.ok for state in states.values())
        body = {"ready": ready, "parts": {name: asdict(each) for name, each in states.items()}}
        return JSONResponse(body, status_code=200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        """All counters."""
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self.renderer, generate_latest, self.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def index(self, request: Request) -> Response:
        """The offset index of one partition."""
        topic = request.query_params.get("topic", "")
        number = request.query_params.get("partition", "")
        if not topic or not number.isascii() or not number.isdigit() or len(number) > 9:
            return JSONResponse({"error": "needs ?topic=NAME&partition=NUMBER"}, status_code=400)
        try:
            entries = await self.index_of(topic, int(number))
        except NotFound as reason:
            return JSONResponse({"error": str(reason)}, status_code=404)
        except Failure as reason:
            return JSONResponse({"error": str(reason)}, status_code=503)
        return JSONResponse({"topic": topic, "partition": int(number), "entries": entries})


def make_app(pages: Pages, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The application with all pages, and with these routes too."""
    return Starlette(
        routes=[
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/metrics", pages.metrics),
            Route("/admin/index", pages.index),
            *routes,
        ]
    )
