"""`tabgrpc serve`: the scheduler with its public services, and its workers."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from tabgrpc.cli import options


def serve(
    bind: Annotated[
        str,
        typer.Option(
            envvar="TABGRPC_BIND", metavar="HOST:PORT", help="Address of the public services; port 0 takes a free one."
        ),
    ] = options.DEFAULT_ADDRESS,
    workers: options.Workers = None,
    attach: Annotated[
        list[str] | None,
        typer.Option(
            envvar="TABGRPC_ATTACH",
            metavar="ADDRESS",
            help="A worker that runs already; can be given again. Then none is started unless --workers says so.",
        ),
    ] = None,
    store: Annotated[
        Path, typer.Option(envvar="TABGRPC_STORE", metavar="DIR", help="Folder of the pool's models.")
    ] = Path("tabgrpc-models"),
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = 1,
    exchange: options.ExchangeOption = options.Exchange.auto,
    quiet: options.Quiet = False,
) -> None:
    """Run a pool until SIGTERM or Ctrl+C: running calls end, workers stop, exit code 0. A second Ctrl+C ends at once.

    Prints `serving on HOST:PORT` once it is ready. There is no authentication yet: keep it on a trusted network.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING if quiet else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        force=True,
    )
    from tabgrpc.scheduler.server import serve as run_scheduler

    raise typer.Exit(run_scheduler(bind, workers, attach or [], store, device.value, threads, exchange=exchange.value))
