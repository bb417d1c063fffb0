"""What Spark is told: where it runs, how large it is, and what it may not be asked for. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from lakelog.model.failures import Refused

ATTEMPTS: Final = 4
"""How often Spark tries a task whose process was lost; the same as on a cluster."""

_LOCAL: Final = re.compile(r"local(\[(?P<cores>\d+|\*)(\s*,\s*(?P<attempts>\d+))?\])?")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """A Spark session: of a master that this process drives, or a remote one."""

    master: str = "local[*]"
    remote: str = ""
    """Of Spark Connect, `sc://HOST:PORT`; then the master is the server's business."""
    driver_memory_bytes: int = 1 << 30
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark; they win over ours."""

    jobs_max: int = 16
    """The most jobs at the same time; further ones wait."""
    probe_s: float = 40.0
    """How often executors are looked at. Spark ends Python workers after 60 s without work, and a
    new one takes seconds to load what it needs: this also keeps them."""
    cancel_s: float = 10.0
    """How long a job that was cancelled is waited for."""

    @property
    def is_connect(self) -> bool:
        """Whether somebody else runs the driver."""
        return bool(self.remote)

    @property
    def is_local(self) -> bool:
        """Whether every executor is on this machine, and sees its files."""
        if self.remote:
            server = urlsplit(self.remote)
            return self.remote.startswith("local") or server.hostname in _LOOPBACK
        return self.master.startswith("local")

    def full_master(self) -> str:
        """The master as Spark is told it.

        Spark gives up at once on a lost Python worker for `local[N]` but not for `local[N,F]`.
        """
        found = _LOCAL.fullmatch(self.master)
        if found is None or found["attempts"]:
            return self.master
        return f"local[{found['cores'] or 1},{ATTEMPTS}]"


def check_reach(options: SparkOptions, objects_url: str) -> None:
    """Raises `Refused` when executors could not see the objects."""
    scheme = objects_url.partition(":")[0]
    where = options.remote or options.master
    if scheme == "memory":
        raise Refused(
            "the objects are in the memory of one process, and Spark's workers are others:"
            " set objects.url to a directory (file:PATH) or a bucket (s3://BUCKET)"
        )
    if scheme == "file" and not options.is_local:
        raise Refused(
            f"{where} runs on other machines, and {objects_url} is a directory of this one:"
            " set objects.url to a bucket (s3://BUCKET), or use --master 'local[*]'"
        )
