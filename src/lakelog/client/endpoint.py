"""Where a broker listens, as users and brokers write it. Pure."""

import re
from dataclasses import dataclass
from typing import Final

PORT_DEFAULT: Final = 9092
PORT_MAX: Final = 65_535
_WRITTEN: Final = re.compile(
    r"(?:\w+://)?(?:\[(?P<bracketed>[^\s/@\[\]]+)\]|(?P<host>[^\s/@\[\]:]+))(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A host, by name or by number, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Read `host:port`, `host` (port 9092), `[::1]:port` or `PROTOCOL://host:port`."""
        found = _WRITTEN.fullmatch(text.strip())
        port = int(found["port"] or PORT_DEFAULT) if found is not None else 0
        if found is None or not 0 < port <= PORT_MAX:
            raise ValueError(f"{text!r} is no address; write host:port, or [::1]:port")
        return cls(found["bracketed"] or found["host"], port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
