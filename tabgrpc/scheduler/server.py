"""The scheduler as a server: in this process for a local pool (``start``), or until a signal for ``tabgrpc serve``."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tabgrpc.scheduler.scheduler import Scheduler
from tabgrpc.scheduler.services import ModelService, PoolService, TableService
from tabgrpc.scheduler.starting import start
from tabgrpc.v1 import models_pb2_grpc, pool_pb2_grpc, tables_pb2_grpc
from tabgrpc.wire import channels
from tabgrpc.wire.channels import SERVER_OPTIONS, AddressInUse
from tabgrpc.wire.errors import ServiceError

GRACE_SECONDS = 30.0
_THREADS = 64


class Server:
    """A scheduler and the server in front of it. ``address`` is the real one."""

    def __init__(self, scheduler: Scheduler, address: str) -> None:
        """Binds and serves at once. Raises AddressInUse."""
        self.scheduler = scheduler
        self.stopped = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, "grpc"), options=SERVER_OPTIONS, maximum_concurrent_rpcs=4 * _THREADS)
        tables_pb2_grpc.add_TableServiceServicer_to_server(TableService(scheduler), self._server)
        models_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(scheduler), self._server)
        pool_pb2_grpc.add_PoolServiceServicer_to_server(PoolService(scheduler), self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = channels.bind(self._server, address)
        self._server.start()
        self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Refuses new calls, lets those in flight end within ``grace`` seconds, stops the workers, then sets ``stopped``."""
        self.scheduler.drain()
        self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()
        self.scheduler.close(grace)
        self.stopped.set()


def serve(
    bind: str,
    workers: int | None,
    attach: Sequence[str],
    store: Path,
    device: str,
    threads: int = 1,
    memory: int = 0,
    exchange: str = "auto",
) -> int:
    """``tabgrpc serve``: prints its address, serves until SIGTERM or SIGINT, returns the exit code: 0, 2 or 3."""
    try:
        lock = _lock(store)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with lock:
        try:
            probe = grpc.server(ThreadPoolExecutor(1), options=SERVER_OPTIONS)
            address = _claim(probe, bind)  # before any worker is started: a taken port costs nothing
            pool = start(workers, device, attach, threads, memory, exchange)
        except (AddressInUse, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except ServiceError as error:
            print(f"error: {error}", file=sys.stderr)
            return 3
        probe.start()  # only a server that was started lets go of its port at once; the other takes a second
        probe.stop(None).wait()
        scheduler = Scheduler(pool, store)
        try:
            server = Server(scheduler, address)
        except (AddressInUse, OSError) as error:
            scheduler.close(0)
            print(f"error: {error}", file=sys.stderr)
            return 2
        _on_signals(server)
        print(f"serving on {server.address}", flush=True)
        server.stopped.wait()
    return 0


def _claim(probe: grpc.Server, address: str) -> str:
    real = channels.bind(probe, address)
    if address.startswith("unix:"):
        Path(address.removeprefix("unix:")).unlink(missing_ok=True)
    return real


def _on_signals(server: Server) -> None:
    asked = threading.Event()

    def handler(number: int, _frame: object) -> None:
        if asked.is_set():
            os._exit(128 + number)
        asked.set()
        threading.Thread(target=server.stop, name="stop").start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _lock(store: Path) -> IO[str]:
    """Locks a store for this scheduler alone. Raises OSError saying so when another one has it."""
    store.mkdir(parents=True, exist_ok=True)
    lock = (store / ".tabgrpc.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise OSError(f"another scheduler uses the store {store}") from error
    return lock
