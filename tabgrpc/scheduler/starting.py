"""Starting a pool where its user hasn't said on what: GPUs where workers start on them, else the CPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tabgrpc.scheduler import devices
from tabgrpc.scheduler.workers import WorkerPool
from tabgrpc.wire.errors import Unavailable

logger = logging.getLogger("tabgrpc")


def start(
    workers: int | None,
    device: str = "auto",
    attach: Sequence[str] = (),
    threads: int = 1,
    memory: int = 0,
    exchange: str = "auto",
) -> WorkerPool:
    """A pool of ``workers`` local ones; None is none beside attached ones, else one a GPU or two on a CPU.

    "auto" takes GPUs, and where no worker starts on them (an old driver, an old GPU) the CPU with one warning; what was asked for by name
    is had or refused. Raises as ``WorkerPool``.
    """

    def on(where: str) -> WorkerPool:
        count = workers if workers is not None else 0 if attach else devices.workers(where)
        return WorkerPool(count, attach, where, threads, memory, exchange)

    where = devices.chosen(device)
    if device != "auto" or where == "cpu":
        return on(where)
    try:
        return on(where)
    except Unavailable as error:
        logger.warning("no worker starts on a GPU (%s); `tabgrpc doctor` says more. The CPU computes instead", error)
        return on("cpu")
