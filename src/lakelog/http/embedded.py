"""The HTTP port as part of a broker: pages, health and server put together."""

import math
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from lakelog.clock import Clock, Tasks
from lakelog.http.app import IndexOf, Pages, make_app
from lakelog.http.health import PATIENCE_S, Check, Health
from lakelog.http.service import serve

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
