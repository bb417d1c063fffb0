"""Trying again: one call until its deadline, and one broker's connection after it was lost.

Rules: a call is tried again until its deadline, which also counts the failures so far. Whoever asks
for a broker's connection at the same time gets the same one: the one that lives, or the next one
when it is gone. After a failure the next attempt waits, longer each time, with chance in it. A
connection that ended soon after it began counts as a failure too, so that a broker that takes
everybody and drops everybody is not stormed.
"""

import asyncio

from lakelog.clock import Clock
from lakelog.kafka_client.connection import Connection
from lakelog.kafka_client.dialing import Dialer
from lakelog.kafka_client.failures import ClientFailure, Closed
from lakelog.kafka_client.setting_keys import BrokerAddress


class RetryDeadline:
    """A moment until which something is tried."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._end_s = clock.monotonic_s() + timeout_s
        self._failures = 0

    def left_s(self) -> float:
        """Seconds until then; never less than 0."""
        return max(0.0, self._end_s - self._clock.monotonic_s())

    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.left_s() <= 0

    def failed(self) -> int:
        """Count one failure more; returns how many there are."""
        self._failures += 1
        return self._failures


class Link:
    """One broker's connection, made when it is needed."""

    def __init__(self, dialer: Dialer, clock: Clock, closing: "asyncio.Future[None]") -> None:
        self._dialer = dialer
        self._clock = clock
        self._closing = closing  # done when the cluster is closed
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._began_s = 0.0
        self._failures = 0  # in a row
        self._not_before_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that may be used."""
        return self._connection is not None and self._connection.is_open

    async def connection(self, endpoint: BrokerAddress) -> Connection:
        """The connection to this address; raises what `Dialer.connect` raises, or Closed."""
        async with self._turn:
            current = self._connection
            if current is not None:
                if current.is_open and current.endpoint == endpoint:
                    return current
                self._drop(current)
            await self._wait()
            return await self._dial(endpoint)

    async def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def _drop(self, ended: Connection) -> None:
        """Forget a connection that is over, or that leads to where the broker was."""
        ended.abort()
        self._connection = None
        settled_s = self._dialer.settings.reconnect_backoff_max_ms / 1000
        if self._clock.monotonic_s() - self._began_s < settled_s:
            self._failed()
        else:
            self._failures = 0

    def _failed(self) -> None:
        self._failures += 1
        delay_s = self._dialer.settings.reconnect_backoff.delay_s(
            self._failures, self._dialer.entropy
        )
        self._not_before_s = self._clock.monotonic_s() + delay_s

    async def _wait(self) -> None:
        delay_s = self._not_before_s - self._clock.monotonic_s() if self._failures else 0.0
        if delay_s > 0:
            await asyncio.wait([self._closing], timeout=delay_s)
        if self._closing.done():
            raise Closed("the client was closed")

    async def _dial(self, endpoint: BrokerAddress) -> Connection:
        try:
            made = await self._dialer.connect(endpoint)
        except ClientFailure:
            self._failed()
            raise
        if self._closing.done():
            made.abort()
            raise Closed("the client was closed")
        self._began_s = self._clock.monotonic_s()
        self._connection = made
        return made
