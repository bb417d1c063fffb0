"""Options that a user gives by name to one read or write, and those that name the cluster. Pure.

Names are case-insensitive. An option that nobody knows is an error, because one that is ignored in
silence does the wrong thing; every refusal names the option.

`lakelog.server` names the HTTP ports of brokers, `lakelog.config` a configuration file. Kafka's own
`kafka.bootstrap.servers` may stand beside them, so that a job need not be changed, and means
nothing: rows do not pass a broker.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from lakelog.model.failures import Failure

INT32_END: Final = 1 << 31
INT64_END: Final = 1 << 63

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class BadOption(Failure):
    """An option that cannot be followed; the text names it and says what to do."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(text)
        self.option = option

    def __reduce__(self) -> tuple[type["BadOption"], tuple[str, str]]:
        return BadOption, (self.option, str(self))


class NamedOptions:
    """The names that are known, by their own spelling, and those that are often meant by others."""

    def __init__(self, known: tuple[str, ...], meant: Mapping[str, str]) -> None:
        self._names = {name.lower(): name for name in known}
        self._meant = meant

    def spelled(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options by their own spelling; raises `BadOption` for others, and for two of one."""
        given: dict[str, str] = {}
        for name, text in options.items():
            known = self._names.get(name.lower())
            if known is None:
                raise BadOption(name, f"{name} is not an option{self._suggestion(name.lower())}")
            if known in given and given[known] != text:
                raise BadOption(known, f"{known} is given twice: {given[known]!r} and {text!r}")
            given[known] = text
        return given

    def _suggestion(self, name: str) -> str:
        meant = self._meant.get(name)
        close = [meant] if meant else difflib.get_close_matches(name, self._names, n=1, cutoff=0.6)
        return f"; did you mean {self._names.get(close[0], close[0])}?" if close else ""


def boolean(option: str, text: str) -> bool:
    """True or false, in any case."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise BadOption(option, f"{option} is {text!r}, but must be true or false")
    return found


def positive(option: str, text: str, *, end: int = INT64_END) -> int:
    """A whole number above zero and below `end`."""
    number = whole(option, text)
    if not 0 < number < end:
        raise BadOption(option, f"{option} is {text!r}, but must be a number from 1 to {end - 1}")
    return number


def whole(option: str, text: str) -> int:
    """A whole number of 64 bits."""
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is not None:
        number = int(stripped)
        if -INT64_END <= number < INT64_END:
            return number
    raise BadOption(option, f"{option} is {text!r}, but must be one whole number")


SERVER: Final = "lakelog.server"
CONFIG: Final = "lakelog.config"
BOOTSTRAP: Final = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How the topics are reached: the HTTP ports of brokers, a configuration file, or both."""

    servers: tuple[str, ...] = ()
    config: str = ""


def parse_cluster(given: Mapping[str, str], *, has_bootstrap: bool) -> ClusterOptions:
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
    return ClusterOptions(found, config)


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
