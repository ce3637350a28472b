"""A worker's life: it tells when it is ready, ends when it is told to, and never outlives the parent that spawned it."""

from __future__ import annotations

import os
import resource
import select
import signal
import threading
from collections.abc import Callable


def die_with_parent() -> None:
    """Ends this process when the parent does, whatever kills it.

    The parent holds the other end of standard input and never writes: end of file means that it is gone, also if it was gone before we
    looked. (The kernel's parent-death signal is no substitute: it follows the thread that spawned us, not the process.)
    """
    threading.Thread(target=_watch_stdin, name="parent-watch", daemon=True).start()


def _watch_stdin() -> None:
    while True:
        select.select([0], [], [])
        if not os.read(0, 1):
            os._exit(1)


def announce(handle: int, address: str) -> None:
    """Writes the address to a pipe that the parent reads, once, and closes it."""
    with os.fdopen(handle, "w") as pipe:
        pipe.write(address + "\n")


def on_termination(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT call ``stop`` once; a second one ends the process at once."""
    asked = threading.Event()

    def handler(number: int, _frame: object) -> None:
        if asked.is_set():
            os._exit(128 + number)
        asked.set()
        threading.Thread(target=stop, name="stop", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def many_files() -> None:
    """Lets this process hold as many files open as it may: models that are served from their files hold one for each chunk."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
