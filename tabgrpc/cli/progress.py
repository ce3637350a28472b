"""What a command tells on stderr while it works: lines, warnings, and a bar with stage, rows a second and time left."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

KIB = 1024.0


def bytes_text(count: float) -> str:
    """1536 as "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < KIB:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= KIB
    return f"{count:.1f} TiB"


def seconds_text(seconds: float) -> str:
    """0.42 as "0.4 s", 3700 as "1 h 1 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Reporter:
    """Lines and warnings on stderr. Quiet: none of them. The warnings of reading a table are taken in too, each once.

    Warnings before `release` wait, so that an error before it is the only line.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.warnings: list[str] = []
        self._held = True
        self._shown = 0

    def line(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """One warning line, unless the same one was there before."""
        text = " ".join(text.split())
        if text not in self.warnings:
            self.warnings.append(text)
        if not self._held:
            self.release()

    def release(self) -> None:
        """Shows the warnings that waited; later ones are shown at once."""
        self._held = False
        for text in self.warnings[self._shown :]:
            self.line(f"warning: {text}")
        self._shown = len(self.warnings)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the place of Python's own display of warnings: those about the data are told, others are not."""

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if category.__name__ == "DataWarning":
                self.warn(str(message))

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            yield

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """A sign of life while the block runs, where stderr is a terminal."""
        from rich.console import Console

        console = Console(stderr=True)
        if self.quiet or not console.is_terminal:
            yield
            return
        with console.status(what):
            yield

    @contextmanager
    def bar(self, rows: int | None) -> Iterator[Bar]:
        """A bar while the block runs; nothing is drawn where stderr is no terminal.

        rows: of the table, None where they aren't known.
        """
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        columns: list[Any] = [TextColumn("{task.description:8}"), BarColumn(), TaskProgressColumn()]
        columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()]
        hidden = self.quiet or not console.is_terminal
        with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            yield Bar(progress, rows)


class Bar:
    """One bar, from the block's start to its end."""

    def __init__(self, progress: Progress, rows: int | None) -> None:
        self._progress, self._rows = progress, rows
        self._task = progress.add_task("start", total=None, rate="")
        self._began = time.monotonic()

    def stage(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` units of all the work, which goes over all rows; `stage` is what it is at."""
        rate = self._rate(self._rows * done / total) if self._rows and total else ""
        self._progress.update(self._task, description=stage, completed=done, total=total or None, rate=rate)

    def rows(self, stage: str, done: int) -> None:
        """`done` rows of a stage that streams them."""
        rate = self._rate(done)
        self._progress.update(self._task, description=stage, completed=done, total=self._rows, rate=rate)

    def _rate(self, rows: float) -> str:
        seconds = time.monotonic() - self._began
        return f"{rows / seconds:,.0f} rows/s" if seconds > 0.2 and rows else ""
