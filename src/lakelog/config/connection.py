"""How a user's process reaches a cluster: the two options that say it, for reads and writes. Pure.

`lakelog.server` names the HTTP ports of brokers, `lakelog.config` a configuration file. Kafka's own
`kafka.bootstrap.servers` may stand beside them, so that a job need not be changed, and means
nothing: rows do not pass a broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from lakelog.config.named_options import BadOption

SERVER: Final = "lakelog.server"
CONFIG: Final = "lakelog.config"
BOOTSTRAP: Final = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Connection:
    """How the topics are reached: the HTTP ports of brokers, a configuration file, or both."""

    servers: tuple[str, ...] = ()
    config: str = ""


def parse_connection(given: Mapping[str, str], *, has_bootstrap: bool) -> Connection:
    """What the two options, by their own spelling, say; raises `BadOption`."""
    found = servers(SERVER, given[SERVER]) if SERVER in given else ()
    config = given.get(CONFIG, "").strip()
    if CONFIG in given and not config:
        raise BadOption(CONFIG, f"{CONFIG} is empty, but must name a configuration file")
    if not found and not config:
        instead = f"{BOOTSTRAP} alone does not tell where the index is: " if has_bootstrap else ""
        raise BadOption(
            SERVER,
            f"{instead}set {SERVER} to http://HOST:PORT, the HTTP port of a broker, or {CONFIG} to"
            " its configuration file",
        )
    return Connection(found, config)


def has_bootstrap(options: Mapping[str, str]) -> bool:
    """Whether Kafka's own address is among the options."""
    return any(name.lower() == BOOTSTRAP for name in options)


def servers(option: str, text: str) -> tuple[str, ...]:
    """The HTTP ports of brokers as `http://HOST:PORT`, with commas between them, as host:port."""
    found = []
    for url in filter(None, (one.strip() for one in text.split(","))):
        address = _address(url)
        if address is None:
            raise BadOption(
                option,
                f"{option} names {url!r}, but takes http://HOST:PORT of a broker's HTTP port",
            )
        found.append(address)
    if not found:
        raise BadOption(option, f"{option} is empty, but must name http://HOST:PORT")
    return tuple(found)


def _address(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme != "http" or not parts.hostname or not bare:
        return None
    return parts.netloc if port is not None else f"{parts.netloc}:80"
