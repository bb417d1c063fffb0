"""What the Kafka port is told, its address and its limits; and how the port is taken."""

import errno
import ipaddress
import socket
from dataclasses import dataclass

from lakelog.model.failures import Refused

PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 asks the system for a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `host:port`, `[::1]:port` or `:port` (every interface)."""
        host, colon, number = text.strip().rpartition(":")
        host = host.removeprefix("PLAINTEXT://")
        if not colon or not number.isascii() or not number.isdigit() or int(number) > PORT_MAX:
            raise ValueError(f"is {text!r}, but must be host:port, for example 127.0.0.1:9092")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"is {text!r}, but an IPv6 address stands in brackets: [{host}]")
        return cls(host or "0.0.0.0", int(number))  # noqa: S104 - the user left the host out

    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def is_every_interface(self) -> bool:
        """Whether it stands for all addresses of the machine, so that no client can dial it."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bind(address: Address) -> socket.socket:
    """A socket that has the port; nobody can connect before it listens."""
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # Of a name with several addresses the IPv4 one: `localhost` means 127.0.0.1 to most clients.
    family, kind, protocol, _, where = min(found, key=lambda each: each[0] != socket.AF_INET)
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind(where)
    except OSError:
        taken.close()
        raise
    taken.setblocking(False)
    return taken


def refusal(address: Address, error: OSError) -> Refused:
    """What a user hears when the port cannot be had."""
    match error.errno:
        case errno.EADDRINUSE:
            return Refused(
                f"port {address.port} on {address.host} is in use: is a broker running there"
                " already? Stop it, or choose another port"
            )
        case errno.EACCES | errno.EPERM:
            return Refused(f"port {address.port} needs privileges: choose one above 1023")
        case errno.EADDRNOTAVAIL:
            return Refused(f"{address.host} is no address of this machine")
        case _:
            reason = error.strerror or str(error)
            return Refused(f"cannot listen on {address}: {reason}")


KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How much of each thing the Kafka port takes before it makes clients wait or go.

    A limit on bytes or requests makes the port stop reading; TCP then makes the client wait.
    What a socket's buffer has room for is copied into it in one turn of the loop: 2 ms for 4 MiB,
    which is what a system gives a quick client by itself. Measured beside a catch-up of 1.5 GB/s:
    p50 of a tail 4.4 ms with 128 KiB and 6.3 without, p99 9.5 and 15. For clients that are far away
    a larger one is quicker: so much is on the way in each round trip.
    """

    connections_max: int = 20_000
    backlog: int = 4_096  # connections that wait to be accepted; the system may allow fewer
    connection_requests_max: int = 1_024  # received on one connection and not answered yet
    connection_bytes_max: int = 32 * MIB  # of such requests; one larger request alone still passes
    total_bytes_max: int = 512 * MIB  # the same over all connections, half-sent requests included
    address_share_max: float = 0.25  # of the total, for half-sent requests from one address
    send_buffer_bytes: int = 128 * KIB  # of a socket, as Kafka's `socket.send.buffer.bytes`
    unsent_bytes_max: int = 1 * MIB  # answers that a client does not read; then its requests wait
    idle_timeout_s: float = 600.0  # without a request, or without reading what it asked for
    frame_timeout_s: float = 60.0  # a half-sent request keeps the least rate over each such time
    frame_rate_min_bytes: int = 16 * KIB  # a second: the slowest client that is waited for
    drain_timeout_s: float = 10.0  # for the answers that are owed when the broker stops
    produce_rows: bool = True  # plain Produce requests are taken many at a time

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name != "produce_rows" and getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0")
        if self.connection_bytes_max > self.total_bytes_max:
            raise ValueError("connection_bytes_max must not be greater than total_bytes_max")
        if self.address_share_max > 1:
            raise ValueError("address_share_max must not be greater than 1")
