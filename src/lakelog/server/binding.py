"""Taking a port, early and without serving it, and saying why it cannot be had."""

import errno
import socket

from lakelog.model.failures import Refused
from lakelog.server.address import Address


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
