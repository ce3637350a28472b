"""A model that an estimator fitted: its name on the pool, and all that it takes to fit it there again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from tabgrpc.client.client import Progress
from tabgrpc.client.shared import Connection, connection_of
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import AlreadyExists, NotFound, NotReady

T = TypeVar("T")
NAME = re.compile(r"fit-[0-9a-f]{32}")
_WAIT_SECONDS = 600.0


class FittedModel:
    """What a fitted estimator holds. Its name is made of its content, so that whoever fits the same again finds it.

    data: the training table as an Arrow IPC stream; None where it wasn't kept. options: how it is fitted. served: what the pool said of it.
    """

    def __init__(self, data: bytes | None, options: pb.FitOptions, name: str | None = None) -> None:
        self.data, self.options = data, options
        self.name = name if name is not None else content_name(data or b"", options)
        self.served = pb.Model()
        self._connection: Connection | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def fit(self, pool: Any, device: str, progress: Progress | None = None) -> None:
        """Fits on a pool and holds the model there. One that this process holds already is not fitted again."""
        connection = connection_of(pool, device)
        connection.tidy()
        with connection.alone(self.name):
            if not (connection.held(self.name) and connection.serves(self.name)):
                self._fit(connection, progress)
            self.served = connection.client.model(self.name)
            self._hold(connection)

    def load(self, pool: Any, device: str) -> None:
        """Holds a model whose files lie in the pool's store. Raises NotFound, NotReady."""
        connection = connection_of(pool, device)
        with connection.alone(self.name):
            if not connection.held(self.name):
                connection.client.load(self.name)
            self.served = connection.client.model(self.name)
            self._hold(connection)

    def _fit(self, connection: Connection, progress: Progress | None) -> None:
        if self.data is None:
            raise NotReady(f"the pool has lost {self.name}, and its training data weren't kept: fit again")
        client = connection.client
        table = client.upload_stream(memoryview(self.data))
        end = time.monotonic() + _WAIT_SECONDS
        try:
            while True:
                try:
                    client.fit(self.name, table, self.options, progress=progress)
                    return
                except AlreadyExists:  # another process fits the same
                    if connection.serves(self.name):
                        return
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.2)
        finally:
            with contextlib.suppress(Exception):  # the pool forgets tables by itself; what the fit raised is what must be seen
                client.drop_table(table)

    def _hold(self, connection: Connection) -> None:
        if self._connection is connection and self._finalizer is not None:
            return
        self.release()
        connection.hold(self.name)
        self._connection = connection
        self._finalizer = weakref.finalize(self, connection.leave, self.name)
        self._finalizer.atexit = False  # the pool ends then too, or has other users

    def release(self) -> None:
        """The pool may drop the model. Twice does nothing."""
        connection, self._connection = self._connection, None
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None
        if connection is not None:
            connection.tidy()

    def call(self, pool: Any, device: str, function: Callable[[Connection], T]) -> T:
        """function(connection), once more after a reload or a refit if the pool has lost the model."""
        connection = connection_of(pool, device)
        connection.tidy()
        if self._connection is not connection:  # loaded from a pickle, or the shared pool is another one now
            self._recover(connection)
        try:
            return function(connection)
        except NotFound:
            self._recover(connection)
            return function(connection)

    def _recover(self, connection: Connection) -> None:
        with connection.alone(self.name):
            if not connection.serves(self.name):
                try:
                    connection.client.load(self.name)
                except (NotFound, NotReady, AlreadyExists):
                    self._fit(connection, None)
            self.served = connection.client.model(self.name)
            self._hold(connection)

    def answers(
        self, connection: Connection, tables: Iterator[pa.Table], width: int, wanted: pb.PredictRequest | None = None
    ) -> Iterator[pa.Table]:
        """Answers for tables of query rows, in order. width: columns that an answer has, about."""
        return connection.client.stream(self.name, tables, wanted or pb.PredictRequest(), width=width)

    def __getstate__(self) -> dict[str, Any]:
        protos = {"options": self.options.SerializeToString(), "served": self.served.SerializeToString()}
        return {"data": self.data, "name": self.name, **protos}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["data"], pb.FitOptions.FromString(state["options"]), state["name"])  # type: ignore[misc]
        self.served = pb.Model.FromString(state["served"])


def content_name(data: bytes, options: pb.FitOptions) -> str:
    """A name by the table's bytes and the options; a checkpoint file of this machine counts by its size and time too."""
    digest = hashlib.sha256(data)
    digest.update(options.SerializeToString(deterministic=True))
    with contextlib.suppress(OSError):
        found = os.stat(options.checkpoint)
        digest.update(f"{found.st_size} {found.st_mtime_ns}".encode())
    return f"fit-{digest.hexdigest()[:32]}"
