"""The scheduler's parts put together: what the public services call."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tabgrpc.backbones.shapes import shape_of
from tabgrpc.data import UserError
from tabgrpc.scheduler import jobs, loading, placing
from tabgrpc.scheduler.about import TASKS
from tabgrpc.scheduler.answers import Asked, query_rows
from tabgrpc.scheduler.calls import Scope
from tabgrpc.scheduler.models import Model, Registry
from tabgrpc.scheduler.operations import Operation, Operations
from tabgrpc.scheduler.predict import Predictor
from tabgrpc.scheduler.shelf import Shelf
from tabgrpc.scheduler.tables import Tables
from tabgrpc.scheduler.workers import WorkerPool
from tabgrpc.store.model import MANIFEST, check_name
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import AlreadyExists, InvalidArgument, NotFound, ServiceError

logger = logging.getLogger("tabgrpc")

_REPAIR_AGAIN_SECONDS = 5.0


class Scheduler:
    """One pool's scheduler. Holds no GPU and computes nothing but preprocessing and sums over members."""

    def __init__(self, pool: WorkerPool, store: Path) -> None:
        """store: directory of the models."""
        self.pool, self.store = pool, store
        self.tables, self.models, self.operations = Tables(), Registry(), Operations()
        self.shelf = Shelf(store, self.models, pool)
        self._predictor = Predictor(pool)
        self._repairing = threading.Lock()
        self._busy: set[str] = set()
        self._busy_lock = threading.Lock()
        self.draining = False
        pool.on_change = self._repair

    # --- fit ---

    def plan(self, request: pb.PlanModelRequest) -> pb.PlanModelResponse:
        """What a fit would cost."""
        prepared = jobs.prepare(self.tables.committed(request.table), request.options, self.pool, Scope())
        plan = prepared.plan
        return pb.PlanModelResponse(
            rows=prepared.geometry.rows,
            features=prepared.geometry.groups,
            members=len(prepared.members),
            placement=plan.placement,
            resident_bytes=plan.resident_bytes,
            peak_bytes=plan.peak_bytes,
            fit_seconds=plan.fit_seconds,
            predict_seconds=plan.predict_seconds,
            contexts=plan.contexts,
            why=plan.why,
            checkpoint=f"{prepared.checkpoint.name} {prepared.checkpoint.sha256}",
            task=TASKS[prepared.schema.task],
            workers=len(self.pool.serving()),
            tier="memory",
            classes=[str(label) for label in prepared.schema.classes],
            class_counts=prepared.class_counts,
            warnings=prepared.warnings,
            save=prepared.saving.kind,
            stored_bytes=prepared.saving.stored_bytes,
            load_seconds=prepared.saving.load_seconds,
        )

    def fit(self, request: pb.CreateModelRequest) -> Operation:
        """Starts a fit. Raises InvalidArgument, NotFound at once; what is wrong with the table is the operation's error."""
        name = self._model_name(request.model)
        self.tables.committed(request.table)

        def work(operation: Operation) -> pb.Model:
            def progress(stage: str, done: int, total: int) -> None:
                operation.progress = pb.FitProgress(stage=stage, done=done, total=total, rows=table.num_rows)

            table = self.tables.committed(request.table)
            progress("prepare", 0, 1)
            prepared = jobs.prepare(table, request.options, self.pool, operation.scope)
            with self._alone(name):
                model = jobs.fit(name, prepared, request.options, self.pool, self.store, operation.scope, progress)
                self._serve(model)
            self._repair()
            return model.to_proto()

        return self.operations.start(request.request_id, work)

    def load(self, request: pb.LoadModelRequest, scope: Scope) -> Model:
        """Serves a model of the store, or of a directory in it."""
        name = self._model_name(request.model)
        path = self.store / name
        if request.directory:
            path = (self.store / request.directory).resolve()
            if not path.is_relative_to(self.store.resolve()):
                raise InvalidArgument(f"{request.directory!r} is not in the pool's store")
        if not (path / MANIFEST).is_file():
            raise NotFound(f"{path} is not a model: it has no {MANIFEST}")
        notes: list[str] = []
        with self._alone(name), self._repairing:
            model = loading.load(name, path, self.pool, scope, request.strict_bits, notes.append, self.models.find(name))
            self._serve(model)
        for note in notes:
            logger.warning("%s", note)
        self._repair()
        return model

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """One fit or load of a model at a time: two would write the same version. Raises AlreadyExists for the second."""
        with self._busy_lock:
            if name in self._busy:
                raise AlreadyExists(f"models/{name} is being fitted or loaded already")
            self._busy.add(name)
        try:
            yield
        finally:
            with self._busy_lock:
                self._busy.discard(name)

    def _serve(self, model: Model) -> None:
        old = self.models.put(model)
        if old is not None and old is not model:
            if old.pinned:
                self._inherit_pin(old, model)
            old.retire(lambda: placing.drop(old.shards_name, self.pool.serving(), self.pool.groups))

    def _inherit_pin(self, old: Model, model: Model) -> None:
        """A pin is the name's. The new version may not fit beside the old one, which still serves: then it is told and not pinned."""
        try:
            placing.pin(old.shards_name, old.placement, False, Scope(60))
            placing.pin(model.shards_name, model.placement, True, Scope(600))
            model.pinned = True
        except ServiceError as error:
            logger.warning("%s is not pinned as its former version was: %s", model.version_name, error)

    def pin(self, resource: str, pinned: bool, scope: Scope) -> pb.Model:
        """Keeps a model in the fastest memory, or no longer. Raises OutOfMemory if it doesn't fit beside what is pinned."""
        name = self._model_name(resource)
        with self._alone(name), self._repairing:
            model = self.models.get(resource)
            placing.pin(model.shards_name, model.placement, pinned, scope)
            model.pinned = pinned
        return self.shelf.get(resource)

    def delete(self, name: str) -> None:
        """Frees a model everywhere and removes its files."""
        plain = self._model_name(name)
        with self._alone(plain):
            if self.models.find(plain) is None and (self.store / plain / MANIFEST).is_file():  # stored, but not served
                shutil.rmtree(self.store / plain)
                return
            model = self.models.remove(f"models/{plain}")
            model.retire(lambda: placing.drop(model.shards_name, self.pool.serving(), self.pool.groups))
            if model.directory.path == self.store / plain:  # one that was loaded from another's directory owns no files
                shutil.rmtree(model.directory.path, ignore_errors=True)

    @staticmethod
    def _model_name(resource: str) -> str:
        prefix, _, name = resource.partition("/")
        try:
            if prefix != "models":
                raise ValueError(f"{resource!r} is not of the form models/NAME")
            return check_name(name)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error

    # --- predict ---

    def predict(self, model: Model, request: pb.PredictRequest, scope: Scope) -> pa.Table:
        """Answers for the rows of one request, in their order. The caller holds ``model.used()``."""
        asked = Asked.of(model, request)
        try:
            rows = query_rows(model, request)
        except UserError as error:
            raise InvalidArgument(str(error)) from error
        shape = shape_of(model.checkpoint.config)
        if not len(rows):  # one row's answer has the columns, and none of its rows is wanted
            rows = np.zeros((1, rows.shape[1]))
            return asked.answer(self._predictor.predict(model, shape, rows, asked.head, scope)).slice(0, 0)
        return asked.answer(self._predictor.predict(model, shape, rows, asked.head, scope))

    # --- the pool ---

    def _repair(self) -> None:
        again = False
        with self._repairing:
            for model in self.models.all():
                try:
                    loading.repair(model, self.pool)
                except ServiceError as error:
                    logger.warning("%s can't be repaired yet: %s", model.version_name, error)
                    again = True
        if again and not self.draining:
            timer = threading.Timer(_REPAIR_AGAIN_SECONDS, self._repair)
            timer.daemon = True
            timer.start()

    def drain(self) -> None:
        """Gives up running fits; predicts in flight go on."""
        self.draining = True
        for operation in self.operations.running():
            operation.scope.cancel()

    def close(self, grace: float = 35.0) -> None:
        """Stops everything that this scheduler started."""
        self.drain()
        self._predictor.close()
        self.pool.close(grace)
        self.tables.close()


def callers_scope(remaining: float | None, on_cancel: Callable[[Callable[[], None]], bool]) -> Scope:
    """A scope that ends with a caller's deadline, and when the caller goes away."""
    scope = Scope(remaining)
    if not on_cancel(scope.cancel):
        scope.cancel()
    return scope

