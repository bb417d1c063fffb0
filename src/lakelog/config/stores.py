"""Stores by their URL: with the test kit the only place that names a backend.

A backend's libraries are imported when it is asked for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lakelog.clock import Clock, Entropy
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Refused
from lakelog.objects.local_clock import JUMP_MAX_MS
from lakelog.objects.port import ObjectStore

REMOTE_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "azure")


async def open_metadata(url: str, clock: Clock) -> MetadataStore:
    """The metadata store of that URL; raises `Refused`."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        from lakelog.meta.memory import MemoryMetadataStore  # noqa: PLC0415 - only who asks for it

        return MemoryMetadataStore(clock)
    if scheme == "sqlite" and rest:
        from lakelog.meta.sqlite import SqliteMetadataStore  # noqa: PLC0415 - only who asks for it

        path = Path(rest.removeprefix("//"))
        _make_directory(path.parent)
        return await SqliteMetadataStore.open(path, clock)
    raise Refused(f"metadata.url is {url!r}, but must be memory: or sqlite:PATH")


async def open_objects(
    url: str,
    options: Mapping[str, str],
    clock: Clock,
    entropy: Entropy,
    *,
    clock_jump_max_ms: int = JUMP_MAX_MS,
) -> ObjectStore:
    """The object store of that URL, with the options of its kind; raises `Refused`."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        from lakelog.objects.memory import MemoryObjectStore  # noqa: PLC0415 - only who asks for it

        return MemoryObjectStore(clock)
    if scheme == "file" and rest:
        from lakelog.objects.local import LocalObjectStore  # noqa: PLC0415 - only who asks for it

        path = Path(rest.removeprefix("//"))
        return await LocalObjectStore.open(
            path, clock, entropy, clock_jump_max_ms=clock_jump_max_ms
        )
    if scheme in REMOTE_SCHEMES:
        from lakelog.objects.remote import open_remote  # noqa: PLC0415 - only who asks for it

        return open_remote(url, options, clock=clock, entropy=entropy)
    known = ", ".join(f"{name}://" for name in REMOTE_SCHEMES)
    raise Refused(f"objects.url is {url!r}, but must be memory:, file:PATH or one of {known}")


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(
            f"{directory}: cannot be made ({error.strerror}); name a directory that can be written"
            " with --data"
        ) from None
