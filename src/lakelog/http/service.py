"""The HTTP server inside the broker's own loop.

The socket is bound early and cheaply, so that a port in use is known at start; the server itself,
whose libraries take a while to import, follows when the Kafka port already serves.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

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
