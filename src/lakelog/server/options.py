"""The limits of the Kafka port. Each has a unit, a name and a default."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How much of each thing the Kafka port takes before it makes clients wait or go.

    A limit on bytes or requests makes the port stop reading; TCP then makes the client wait.
    """

    connections_max: int = 20_000
    backlog: int = 4_096  # connections that wait to be accepted; the system may allow fewer
    connection_requests_max: int = 1_024  # received on one connection and not answered yet
    connection_bytes_max: int = 32 * MIB  # of such requests; one larger request alone still passes
    total_bytes_max: int = 512 * MIB  # the same over all connections, half-sent requests included
    address_share_max: float = 0.25  # of the total, for half-sent requests from one address
    unsent_bytes_max: int = 1 * MIB  # answers that a client does not read; then its requests wait
    idle_timeout_s: float = 600.0  # without a request, or without reading what it asked for
    frame_timeout_s: float = 60.0  # a half-sent request keeps the least rate over each such time
    frame_rate_min_bytes: int = 16 * KIB  # a second: the slowest client that is waited for
    drain_timeout_s: float = 10.0  # for the answers that are owed when the broker stops

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0")
        if self.connection_bytes_max > self.total_bytes_max:
            raise ValueError("connection_bytes_max must not be greater than total_bytes_max")
        if self.address_share_max > 1:
            raise ValueError("address_share_max must not be greater than 1")
