"""The pool behind a command: a running one by its address, or local workers for the time of the command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tabgrpc.cli.errors import TERMINATED, Mistake
from tabgrpc.cli.progress import Reporter

if TYPE_CHECKING:
    from tabgrpc.client import Client


@dataclass(frozen=True)
class PoolChoice:
    """Which pool a command uses. address: of a running one; else local workers on `device`, `threads` each."""

    address: str | None
    workers: int | None
    device: str
    threads: int
    timeout: float = 60.0


@dataclass(frozen=True)
class ModelPlace:
    """Where a model is: `name` in the folder `store`, a local pool's store. None: in the pool's own."""

    name: str
    store: Path | None


def model_place(text: str, pool: str | None) -> ModelPlace:
    """The place that MODEL means: a path without --pool, a name with it. Raises Mistake if it is neither."""
    from tabgrpc.store.model import check_name

    path = Path(text)
    name = path.name if pool is None else text
    try:
        check_name(name)
    except ValueError as error:
        raise Mistake(str(error)) from None
    if pool is not None:
        return ModelPlace(name, None)
    store = path.absolute().parent
    if not store.is_dir():
        raise Mistake(f"{text}: no folder {store}")
    return ModelPlace(name, store)


@contextmanager
def client_of(choice: PoolChoice, store: Path | None, reporter: Reporter) -> Iterator[Client]:
    """A client of the pool, and the pool itself if it is a local one, closed at the end of the block.

    SIGTERM ends the block as an exception would, so that temporary files go and workers are stopped in order.
    """
    from tabgrpc.client import Client, LocalPool

    with _terminable():
        if choice.address is not None:
            client = Client(choice.address, timeout=choice.timeout)
            try:
                yield client
            finally:
                client.close()
            return
        reporter.line("pool        starting local workers")
        with LocalPool(choice.workers, device=choice.device, store=store, threads=choice.threads) as pool:
            yield pool.client


@contextmanager
def _terminable() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the rest is the tidying up
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
