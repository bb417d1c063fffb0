"""What a Python worker of Spark keeps from task to task: a loop, the object store, a thread.

Rules: opened once per process, for a worker that Spark uses again must not pay twice; files that
are built lie where Spark has its own temporary files; on a cluster the credentials that the
executor finds around itself win over those that travelled.
"""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_objects
from lakelog.objects.port import ObjectStore
from lakelog.records import kernels

T = TypeVar("T")

_SECRET_WORDS: Final = ("access_key", "secret", "session_token", "token", "sas", "credential")
_OWN_CREDENTIALS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How a worker gets at the objects."""

    url: str
    options: tuple[tuple[str, str], ...]
    is_elsewhere: bool
    """The worker runs on another machine, which may have credentials of its own."""


class WorkerPlace:
    """The loop, the store and the thread of this process."""

    def __init__(self, address: StoreAddress, environment: Mapping[str, str]) -> None:
        kernels.load()
        options = worker_options(address, environment)
        self._runner = asyncio.Runner()
        try:
            self.objects: ObjectStore = self._runner.run(
                open_objects(address.url, options, SystemClock(), SystemEntropy())
            )
        except BaseException:
            self._runner.close()
            raise
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="lakelog-rows")
        """One thread: a worker has one slot, and its loop reads meanwhile."""
        self.directory = _directory(environment)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it to its end on the loop of this process."""
        return self._runner.run(work)

    def close(self) -> None:
        """End the loop, the store and the thread; a worker that Spark ends does not bother."""
        self._runner.run(self.objects.close())
        self._runner.close()
        self.pool.shutdown()


_places: dict[StoreAddress, WorkerPlace] = {}


def place_of(address: StoreAddress) -> WorkerPlace:
    """That of this process, opened when it is first asked for; raises `Refused`."""
    place = _places.get(address)
    if place is None:
        environment = os.environ  # noqa: TID251 - Spark tells its workers by the environment
        place = _places[address] = WorkerPlace(address, environment)
    return place


def worker_options(address: StoreAddress, environment: Mapping[str, str]) -> dict[str, str]:
    """The store's options as this worker uses them."""
    options = dict(address.options)
    if not address.is_elsewhere or not any(environment.get(name) for name in _OWN_CREDENTIALS):
        return options
    return {
        name: value
        for name, value in options.items()
        if not any(word in name.lower() for word in _SECRET_WORDS)
    }


def _directory(environment: Mapping[str, str]) -> str | None:
    """The first of Spark's own directories that is there, None for the system's."""
    for directory in environment.get("SPARK_LOCAL_DIRS", "").split(","):
        if directory and os.access(directory, os.W_OK):
            return directory
    return None
