"""A pool of this process's own: worker processes on this machine, the scheduler in this process, gRPC over private unix sockets."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

from tabgrpc.client.client import Client
from tabgrpc.wire.channels import private_directory


class LocalPool:
    """Starts workers, serves them, stops them. Nothing is left running when it is closed, at interpreter exit, or after a kill."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        device: str = "auto",
        store: Path | str | None = None,
        threads: int = 1,
        memory: int = 0,
        exchange: str = "auto",
    ) -> None:
        """workers: processes, None is one a GPU, or two on a CPU. device: auto, cpu or cuda. store: directory of the models, None is a
        temporary one. threads: quanta a CPU worker computes at once. memory: bytes that a worker's shards may take, 0 is a share of what
        is free. exchange: how workers that own rows of the same member exchange, auto, grpc or collective; it never changes a bit.

        Raises tabgrpc.wire.errors.Unavailable, saying why, if a worker doesn't start.
        """
        from tabgrpc.scheduler.scheduler import Scheduler
        from tabgrpc.scheduler.server import Server
        from tabgrpc.scheduler.starting import start

        self._own_store = store is None
        self.store = Path(tempfile.mkdtemp(prefix="tabgrpc-store-")) if store is None else Path(store)
        self._sockets = private_directory()
        try:
            pool = start(workers, device, threads=threads, memory=memory, exchange=exchange)
        except BaseException:
            self._remove()
            raise
        self._server = Server(Scheduler(pool, self.store), f"unix:{self._sockets}/pool.sock")
        self.address = self._server.address
        self.client = Client(self.address)
        self._closed = False
        self._pid = os.getpid()
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self  # scikit-learn copies an estimator's parameters deeply; a pool's processes can't be

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self.address,)  # in a pickle it is its address, which is what another process can use of it

    def close(self) -> None:
        """Stops everything; a second time does nothing, nor does a forked child, whose parent's it is."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._pid != os.getpid():
            return
        self.client.close()
        self._server.stop(5.0)
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._sockets, ignore_errors=True)
        if self._own_store:
            shutil.rmtree(self.store, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
