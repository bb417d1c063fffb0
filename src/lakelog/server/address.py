"""Where a port is: a host and a number, as users write them. Pure."""

import ipaddress
from dataclasses import dataclass

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
