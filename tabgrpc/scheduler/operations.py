"""Long work as operations: started once per request id, watched by name, given up by name."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from google.longrunning import operations_pb2

from tabgrpc.scheduler.calls import Scope
from tabgrpc.v1 import models_pb2
from tabgrpc.wire.errors import NotFound, ServiceError, known, to_status

MAX_KEPT = 256


@dataclass
class Operation:
    """One piece of long work and how it ended."""

    name: str
    scope: Scope
    progress: models_pb2.FitProgress = field(default_factory=models_pb2.FitProgress)
    result: models_pb2.Model | None = None
    error: ServiceError | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def to_proto(self) -> operations_pb2.Operation:
        operation = operations_pb2.Operation(name=self.name, done=self.done.is_set())
        operation.metadata.Pack(self.progress)
        if self.error is not None:
            operation.error.CopyFrom(to_status(self.error))
        elif self.result is not None:
            operation.response.Pack(self.result)
        return operation


class Operations:
    """Operations by name; the oldest finished ones are forgotten."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}
        self._requests: dict[str, str] = {}
        self._lock = threading.Lock()

    def start(self, request_id: str, work: Callable[[Operation], models_pb2.Model]) -> Operation:
        """Runs ``work`` on a thread of its own; the same request again finds the operation that it made."""
        with self._lock:
            known_name = self._requests.get(request_id) if request_id else None
            if known_name in self._operations:
                return self._operations[known_name]
            operation = Operation(f"operations/{uuid.uuid4().hex}", Scope())
            self._operations[operation.name] = operation
            if request_id:
                self._requests[request_id] = operation.name
            finished = [name for name, each in self._operations.items() if each.done.is_set()]
            for name in finished[: max(0, len(self._operations) - MAX_KEPT)]:
                del self._operations[name]
            self._requests = {key: name for key, name in self._requests.items() if name in self._operations}

        def run() -> None:
            try:
                operation.result = work(operation)
            except Exception as error:  # it belongs to whoever asks for the operation
                operation.error = known(error)
            finally:
                operation.done.set()

        threading.Thread(target=run, name=operation.name, daemon=True).start()
        return operation

    def get(self, name: str) -> Operation:
        """By name. Raises NotFound."""
        with self._lock:
            operation = self._operations.get(name)
        if operation is None:
            raise NotFound(f"no {name or 'operation without a name'}")
        return operation

    def running(self) -> list[Operation]:
        """Those that haven't ended."""
        with self._lock:
            return [operation for operation in self._operations.values() if not operation.done.is_set()]
