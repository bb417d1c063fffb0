"""The compiled kernels, loaded beside the work: everything goes on without them until then.

Loading takes a second, and the first time on a machine, when they are compiled, many. It happens
once in a process, on a thread that ends by itself; the interpreter waits for it at its exit,
because a compiler must not be stopped in its middle.
"""

import threading
from typing import Final

from lakelog.records import fetched_batches, ordering

_turn: Final = threading.Lock()


def load_aside() -> None:
    """Begin to load them, unless that was done or is being done."""
    if are_loaded() or not _turn.acquire(blocking=False):
        return
    threading.Thread(target=_load, name="lakelog-kernels", daemon=False).start()


def load() -> None:
    """Load them and wait until they are there: for benchmarks, and whoever has the time."""
    with _turn:
        _load_both()


def are_loaded() -> bool:
    """Whether all of them are in use."""
    return fetched_batches.loaded() is not None and ordering.loaded() is not None


def _load() -> None:
    try:
        _load_both()
    finally:
        _turn.release()


def _load_both() -> None:
    fetched_batches.load()
    ordering.load()
