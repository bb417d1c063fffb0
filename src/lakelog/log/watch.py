"""Who wants to hear when a stream changes: parked fetches, woken by what was applied."""

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from lakelog.domain.commit_event import Commit, Write
from lakelog.domain.events import Drop, Event, Trim


def changed_streams(event: Event) -> list[int]:
    """The streams that an event may have changed for those who fetch."""
    match event:
        case Commit():
            columns = [event.stream]
        case Write():
            columns = [commit.stream for commit in event.commits]
        case Trim() | Drop():
            columns = [event.streams]
        case _:
            columns = []
    return [stream for column in columns for stream in column.tolist()]


class FetchWaiter:
    """Hears of changes of some streams from its making until its exit; none is missed."""

    __slots__ = ("_board", "_event", "_everything", "_heard", "_streams")

    def __init__(self, board: "FetchWaiters", streams: Sequence[int]) -> None:
        self._board = board
        self._streams = streams
        self._event = asyncio.Event()
        self._heard: dict[int, None] = {}
        self._everything = False

    def __enter__(self) -> Self:
        self._board.add(self, self._streams)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._board.remove(self, self._streams)

    @property
    def changed(self) -> bool:
        """Whether something changed since the last `take`."""
        return self._event.is_set()

    def notify(self, stream: int | None) -> None:
        """This stream changed; None: every stream may have changed."""
        if stream is None:
            self._everything = True
        else:
            self._heard[stream] = None
        self._event.set()

    def take(self) -> Sequence[int]:
        """The streams that changed since the last call, in the order in which they did."""
        changed = self._streams if self._everything else list(self._heard)
        self._everything = False
        self._heard.clear()
        self._event.clear()
        return changed

    async def wait(self, timeout_s: float) -> bool:
        """Whether something changed since the last `take`, or does within the time."""
        if not self._event.is_set() and timeout_s > 0:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        return self._event.is_set()


class FetchWaiters:
    """The watches by stream."""

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        # Dictionaries for their order: a set would wake by address.
        self._watches: dict[int, dict[FetchWaiter, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, watch: FetchWaiter, streams: Iterable[int]) -> None:
        """Begin to tell this watch of these streams."""
        for stream in streams:
            watches = self._watches.get(stream)
            if watches is None:
                self._watches[stream] = {watch: None}
            else:
                watches[watch] = None

    def remove(self, watch: FetchWaiter, streams: Iterable[int]) -> None:
        """Tell it no more."""
        for stream in streams:
            watches = self._watches.get(stream)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._watches[stream]

    def notify(self, streams: Iterable[int]) -> None:
        """These streams changed."""
        for stream in streams:
            for watch in self._watches.get(stream, ()):
                watch.notify(stream)

    def notify_all(self) -> None:
        """Everything may have changed: after a reload, and when the broker stops."""
        for watches in self._watches.values():
            for watch in watches:
                watch.notify(None)
