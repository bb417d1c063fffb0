"""A bar on the terminal while history is read: how much, how fast, and until when.

rich draws it, and only when somebody asks: it is not imported before.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


class PrimingBar:
    """The bar; a context manager, so that the terminal is put back in order."""

    def __init__(self, total: int, *, console: "Console | None" = None) -> None:
        from rich.progress import (  # noqa: PLC0415 - only when somebody wants a bar
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rows]:,} rows"),
            TextColumn("{task.fields[held]:,} held"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task("priming", total=max(total, 1), rows=0, held=0)
        self._total = max(total, 1)

    def __enter__(self) -> "PrimingBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, *, done: int, rows: int, held: int) -> None:
        """Draw how many offsets of the history are behind us."""
        self._progress.update(self._task, completed=min(done, self._total), rows=rows, held=held)

    def finish(self, *, rows: int) -> None:
        """Draw the end."""
        self._progress.update(self._task, completed=self._total, rows=rows, held=0)
