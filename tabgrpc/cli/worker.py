"""`tabgrpc worker`: one worker process, for a pool that something else starts."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated

import typer

from tabgrpc.cli import options
from tabgrpc.cli.errors import Mistake
from tabgrpc.scheduler import devices

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def worker(
    bind: Annotated[
        str,
        typer.Option(
            envvar="TABGRPC_WORKER_BIND", metavar="ADDRESS", help="HOST:PORT or unix:/path of its private service."
        ),
    ] = "127.0.0.1:50061",
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = 1,
    memory: Annotated[
        str,
        typer.Option(
            envvar="TABGRPC_MEMORY", metavar="BYTES", help="What models may take, such as 8G; 0 lets the worker decide."
        ),
    ] = "0",
    trusted_network: Annotated[
        str,
        typer.Option(
            envvar="TABGRPC_TRUSTED_NETWORK",
            metavar="HOST",
            help="This machine's address on a network that nobody else can reach. Collectives, which have no authentication, may use it.",
        ),
    ] = "",
) -> None:
    """Run one worker; `tabgrpc serve --attach ADDRESS` takes it into a pool."""
    where = devices.chosen(device.value)
    arguments = ["--bind", bind, "--device", where, "--threads", str(threads), "--memory", str(bytes_of(memory))]
    if trusted_network:
        arguments += ["--trusted-network", trusted_network]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "tabgrpc_workers", *arguments])


def bytes_of(text: str) -> int:
    """ "8G" as 8589934592. Raises Mistake."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise Mistake(f"--memory: {text!r} is not a number of bytes such as 8589934592 or 8G")
    return int(float(found[1]) * UNITS[found[2].upper()])
