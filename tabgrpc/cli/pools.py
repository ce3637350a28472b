"""The pool behind a command: a running one by its address, or local workers for the time of the command."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tabgrpc.cli.errors import TERMINATED, Mistake, PoolFailure
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


def check_free(place: ModelPlace) -> None:
    """Raises Mistake if something is there that is neither an empty folder nor a model, fitted or unfinished, which gets a new version."""
    from tabgrpc.store.model import MANIFEST, RESUME

    if place.store is None:
        return
    folder = place.store / place.name
    if folder.exists() and not folder.is_dir():
        raise Mistake(f"{folder}: is a file, a model is a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file() and not (folder / RESUME / "fit.json").is_file():
        raise Mistake(f"{folder}: is a folder with other things in it, not a model")


@contextmanager
def client_of(choice: PoolChoice, store: Path | None, reporter: Reporter) -> Iterator[Client]:
    """A client of the pool, and the pool itself if it is a local one, closed at the end of the block.

    SIGTERM ends the block as an exception would, so that temporary files go and workers are stopped in order.
    """
    from tabgrpc.client import Client, LocalPool
    from tabgrpc.wire.errors import Unavailable

    with _terminable():
        if choice.address is not None:
            try:
                with Client(choice.address, timeout=choice.timeout) as client:
                    yield client
            except Unavailable as error:
                raise PoolFailure(f"pool {choice.address}: {error}") from error
            return
        with _forwarding(reporter):
            with reporter.waiting("starting local workers"):
                pool = LocalPool(choice.workers, device=choice.device, store=store, threads=choice.threads)
            with pool:
                yield pool.client


class _Forwarder(logging.Handler):
    """A local pool's warnings, such as "bits differ from where it was fitted", as a command's own."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:  # an error reaches the command as an exception
            self._reporter.warn(record.getMessage())


@contextmanager
def _forwarding(reporter: Reporter) -> Iterator[None]:
    logger, handler = logging.getLogger("tabgrpc"), _Forwarder(reporter)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


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
