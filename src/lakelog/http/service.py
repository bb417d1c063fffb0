"""The HTTP port of a broker: its pages, whether it is fit to serve, and the server in its loop.

/healthz              the process runs and its loop turns
/readyz               every part is fit; names the one that is not, with 503
/metrics              Prometheus' text form, rendered off the loop
/admin/index          a partition's offset index: ?topic=NAME&partition=N
/admin/tables         a row for each topic's table, for `lakelog tables`
/admin/tables/TOPIC   one table with its partitions and snapshots

What else is served, other modules bring as routes. The socket is bound early and cheaply, so that a
port in use is known at start; the server itself, whose libraries take a while to import, follows
when the Kafka port already serves.

A part that fails is told at once, but the broker counts as not ready only when a part has failed
without a break for its patience: one slow put must not take a broker out of a load balancer. A
part with no patience (starting, draining) counts at once.
"""

import asyncio
import contextlib
import math
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from lakelog.clock import Clock, Tasks
from lakelog.model.failures import Failure, NotFound

Check: TypeAlias = Callable[[], str | None]
"""What is wrong with a part now, or None."""

PATIENCE_S: Final = 10.0
LOOK_S: Final = 1.0
"""Parts are looked at this often, however often somebody asks."""


@dataclass(slots=True)
class Part:
    """One thing a broker needs."""

    name: str
    check: Check
    patience_s: float
    reason: str | None = None
    failing_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class PartState:
    """How a part is."""

    ok: bool
    reason: str | None
    failing_s: float


class Health:
    """The parts of a broker and how long each has been failing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: list[Part] = []

    def add(self, name: str, check: Check, *, patience_s: float = PATIENCE_S) -> None:
        """One part more."""
        self._parts.append(Part(name, check, patience_s))

    def look(self) -> None:
        """Ask every part how it is."""
        now_s = self._clock.monotonic_s()
        for part in self._parts:
            part.reason = part.check()
            if part.reason is None:
                part.failing_since_s = None
            elif part.failing_since_s is None:
                part.failing_since_s = now_s

    def states(self) -> dict[str, PartState]:
        """How every part is; parts without patience are asked again."""
        now_s = self._clock.monotonic_s()
        found = {}
        for part in self._parts:
            if not part.patience_s:
                part.reason = part.check()
                part.failing_since_s = now_s if part.reason is not None else None
            failing_s = 0.0 if part.failing_since_s is None else now_s - part.failing_since_s
            ok = part.failing_since_s is None or failing_s < part.patience_s
            found[part.name] = PartState(ok, part.reason, failing_s)
        return found

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)


KEEP_ALIVE_S = 30
CONNECTIONS_MAX = 200
SHUTDOWN_S = 2


class _Embedded(uvicorn.Server):
    """A server that leaves signals to the broker."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


async def serve(app: Starlette, listening: socket.socket) -> None:
    """Serve until cancelled, then let open requests end."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_S,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=SHUTDOWN_S,
        server_header=False,
    )
    server = _Embedded(config)
    serving = asyncio.gather(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


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


PATIENCES_S: Final = {"broker": 0.0, "clock": math.inf}
"""A broker that starts or stops is not ready at once; a clock that is wrong is only told."""


async def serve_pages(
    listening: socket.socket,
    *,
    checks: Mapping[str, Check],
    registry: CollectorRegistry,
    index_of: IndexOf,
    clock: Clock,
    routes: Sequence[BaseRoute] = (),
) -> None:
    """Serve the pages, and these routes too, until cancelled."""
    health = Health(clock)
    for name, check in checks.items():
        health.add(name, check, patience_s=PATIENCES_S.get(name, PATIENCE_S))
    watching = Tasks()
    watching.spawn(health.watch(), name="health")
    with ThreadPoolExecutor(1, thread_name_prefix="lakelog-metrics") as renderer:
        try:
            pages = Pages(health, registry, index_of, renderer)
            await serve(make_app(pages, routes), listening)
        finally:
            await watching.close()
