"""The Kafka port: accepts connections, watches over them, and lets them go in good order."""

import asyncio
import logging
import socket
from typing import Any, Final

from prometheus_client import Counter, Gauge

from lakelog.broker.produce_rows import ProduceRows
from lakelog.clock import Clock, Tasks
from lakelog.server.connection import ClientConnection
from lakelog.server.options import Address, ServerOptions, bind, refusal
from lakelog.server.port import Dispatch, PortState, RateLimitedLog, log
from lakelog.telemetry import MetricsRegistry, event

SWEEPS_PER_TIMEOUT: Final = 10
SWEEP_S_MAX: Final = 5.0
"""Connections are looked at this often at least."""


class Listener:
    """One listening port and its connections."""

    def __init__(
        self, dispatch: Dispatch, *, clock: Clock, metrics: MetricsRegistry, options: ServerOptions
    ) -> None:
        self._options = options
        self._clock = clock
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._port = PortState(
            dispatch,
            options,
            clock,
            metrics,
            self._tasks,
            asyncio.get_running_loop(),
            RateLimitedLog(log, clock),
            Counter(
                "lakelog_request_failures",
                "Requests whose handler failed unforeseen",
                registry=metrics.registry,
            ),
            Counter(
                "lakelog_requests_stalled",
                "Connections closed because a request did not arrive in time",
                registry=metrics.registry,
            ),
        )
        self._measure(metrics)

    def _measure(self, metrics: MetricsRegistry) -> None:
        """Show what requests hold."""
        made: dict[str, Any] = {"registry": metrics.registry}
        held = Gauge("lakelog_request_bytes_held", "Memory of unanswered requests", **made)
        held.set_function(lambda: self._port.total_bytes)
        half_sent = Gauge("lakelog_half_sent_bytes", "Of that, of incomplete requests", **made)
        half_sent.set_function(lambda: self._port.unframed_bytes)
        waits = Gauge(
            "lakelog_address_waits", "Connections not read: their address holds its share", **made
        )
        waits.set_function(lambda: sum(share.waiting for share in self._port.half_sent.values()))

    def bind(self, address: Address) -> Address:
        """Take the port, without accepting anybody yet; returns it with its number."""
        try:
            self._socket = bind(address)
        except OSError as error:
            raise refusal(address, error) from None
        # Connections inherit it, where it is set before they are there.
        buffer_bytes = self._options.send_buffer_bytes
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        return Address(address.host, int(self._socket.getsockname()[1]))

    async def serve(self) -> None:
        """Accept clients."""
        assert self._socket is not None, "bind comes first"
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(self._port), sock=self._socket, backlog=self._options.backlog
        )
        self._tasks.spawn(self._sweep(), name="sweep")

    def take_rows(self, produce_rows: ProduceRows) -> None:
        """Let plain Produce requests become rows, on connections that are made from now on."""
        self._port.produce_rows = produce_rows

    async def start(self, address: Address) -> Address:
        """Take the port and accept clients."""
        taken = self.bind(address)
        await self.serve()
        return taken

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._port.connections)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that were received and not answered yet."""
        return self._port.total_bytes

    async def failed(self) -> None:
        """Wait until the port itself fails, then raise why."""
        await self._tasks.failed()

    async def drain(self) -> None:
        """Accept nobody, answer what was asked, close; give up after the drain time-out."""
        port = self._port
        port.draining = True
        self._stop_listening()
        for connection in list(port.connections):
            connection.drain()
        try:
            await asyncio.wait_for(port.empty.wait(), self._options.drain_timeout_s)
        except TimeoutError:
            event(log, "port_drain_timed_out", logging.WARNING, left=len(port.connections))

    async def close(self) -> None:
        """Close every connection at once and stop."""
        port = self._port
        port.draining = True
        self._stop_listening()
        for connection in list(port.connections):
            connection.abort()
        await self._tasks.close()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()

    async def _sweep(self) -> None:
        options = self._options
        shortest_s = min(options.idle_timeout_s, options.frame_timeout_s)
        pause_s = min(SWEEP_S_MAX, shortest_s / SWEEPS_PER_TIMEOUT)
        while True:
            await asyncio.sleep(pause_s)
            now_s = self._clock.monotonic_s()
            for connection in list(self._port.connections):
                connection.sweep(now_s)
