"""From a table to a model that serves: schema, members, plan, fit, files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

import tabgrpc
from tabgrpc.backbones.shapes import shape_of
from tabgrpc.checkpoints import Checkpoint, CheckpointError
from tabgrpc.checkpoints.resolve import resolve
from tabgrpc.core.classes import contexts
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import PLACEMENTS
from tabgrpc.core.plan import DTYPE_BYTES, BackboneShape, Plan, PlanError, plan, typical
from tabgrpc.core.policy import NumericPolicy
from tabgrpc.core.saving import Saving, saving
from tabgrpc.data import DataWarning, Schema, UserError
from tabgrpc.data.fitting import fit_members
from tabgrpc.data.members import Members
from tabgrpc.internal.v1 import shards_pb2 as internal
from tabgrpc.scheduler import placing
from tabgrpc.scheduler.calls import Scope
from tabgrpc.scheduler.fit import Fit
from tabgrpc.scheduler.models import Model, Placement, model_spec
from tabgrpc.scheduler.workers import Worker, WorkerPool
from tabgrpc.store import rows
from tabgrpc.store.files import DamagedModel
from tabgrpc.store.journal import Journal, OtherFit
from tabgrpc.store.model import RESUME, BeingWritten, Manifest, ModelDirectory, UnknownFormat
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import AlreadyExists, InvalidArgument, NotReady, OutOfMemory, StaleEpoch, Unavailable

FIT_ATTEMPTS = 3
DTYPES = {"cpu": ("float32", "float64"), "cuda": ("float32", "float16", "bfloat16")}
KEEP_STAGES_SECONDS = 300.0
"""Estimated seconds from which a fit keeps its finished stages in files without being asked."""
SAVED = {"kv": internal.SAVED_KV, "repr": internal.SAVED_VECTORS, "data": internal.SAVED_NOTHING}
_PREPARING = ("pandas", "pyarrow", "scikit-learn")
_TASK_NAMES = {pb.TASK_UNSPECIFIED: "auto", pb.TASK_CLASSIFICATION: "classification", pb.TASK_REGRESSION: "regression"}

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Prepared:
    """Everything about a fit that needs no worker. x: (rows, F) encoded, y: (rows,) class codes or values."""

    schema: Schema
    members: Members
    checkpoint: Checkpoint
    shape: BackboneShape
    geometry: Geometry
    policy: NumericPolicy
    plan: Plan
    saving: Saving
    x: np.ndarray
    y: np.ndarray
    class_counts: tuple[int, ...]
    warnings: tuple[str, ...]


def prepare(table: pa.Table, options: pb.FitOptions, pool: WorkerPool, scope: Scope) -> Prepared:
    """Schema, members and plan of a table. Raises InvalidArgument for what the caller must mend, OutOfMemory when nothing fits."""
    dtype = options.dtype or "float32"
    device = pool.wait_serving(scope)[0].device  # not before one serves: a fit waits for a replacement
    if dtype not in DTYPES[device]:
        raise InvalidArgument(f"dtype {dtype!r} is not computed by this pool ({device}); {', '.join(DTYPES[device])} are")
    if options.n_estimators > 1024:
        raise InvalidArgument(f"{options.n_estimators} estimators are more than the limit of 1024")
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            schema = Schema.fit(table, options.target, _TASK_NAMES.get(options.task, "auto"), tuple(options.drop))
            x, y = schema.encode(table), schema.encode_target(table)
            checkpoint, note = resolve(options.checkpoint or "auto", schema.task, download=not options.no_download)
            classification = schema.task == "classification"
            members = fit_members(
                x,
                y,
                classification=classification,
                n_estimators=options.n_estimators or 8,
                norm_methods=list(options.norm_methods) or None,
                feat_shuffle_method=options.feat_shuffle_method or "latin",
                class_shuffle_method=options.class_shuffle_method or "shift",
                outlier_threshold=options.outlier_threshold or 4.0,
                random_state=options.random_state,
            )
        except (UserError, CheckpointError) as error:
            raise InvalidArgument(str(error)) from error
    notes += [str(each.message) for each in caught if issubclass(each.category, DataWarning)]
    if note:
        notes.append(note)
    shape = shape_of(checkpoint.config)
    geometry = Geometry.of(len(x), members.n_features, device)
    if (options.placement or "auto") not in PLACEMENTS:
        raise InvalidArgument(f"placement {options.placement!r} is none of {', '.join(PLACEMENTS)}")
    counts = tuple(int(n) for n in np.bincount(y, minlength=len(schema.classes))) if classification else ()
    if tree := len(counts) > shape.max_classes > 0:
        if (options.save or "auto") not in ("auto", "kv"):
            raise InvalidArgument(f"a model of {len(counts)} classes, more than the network's {shape.max_classes}, is kept as kv only")
        if options.resume:
            raise InvalidArgument(f"a fit of {len(counts)} classes, more than the network's {shape.max_classes}, keeps no stages")
    serving = pool.wait_serving(scope)
    chosen = choose(geometry, shape, len(members), dtype, serving, pool.room(serving), options.placement, counts)
    try:
        kept = saving(
            "kv" if tree else options.save or "auto",
            geometry,
            shape,
            len(members),
            typical(device, len(serving), 0, 0),
            dtype,
            x.shape[1],
            options.training_rows,
            options.kv_limit_bytes,
        )
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    policy = replace(pool.policy(), dtype=dtype)
    return Prepared(schema, members, checkpoint, shape, geometry, policy, chosen, kept, x, y, counts, tuple(dict.fromkeys(notes)))


@contextmanager
def readable() -> Iterator[None]:
    """What is wrong with a directory on disk, as callers see it."""
    try:
        yield
    except BeingWritten as error:
        raise AlreadyExists(str(error)) from error
    except OtherFit as error:
        raise NotReady(f"{error}; fit without --resume to start anew") from error
    except (DamagedModel, UnknownFormat) as error:
        raise NotReady(f"{error}; remove it to fit anew") from error


def choose(
    geometry: Geometry,
    shape: BackboneShape,
    members: int,
    dtype: str,
    serving: Sequence[Worker],
    room: int,
    placement: str = "",
    class_counts: Sequence[int] = (),
) -> Plan:
    """The plan for the workers that serve. room: bytes for shards on each. Raises OutOfMemory when nothing fits."""
    kind = serving[0].device
    here = kind == "cpu" and all(worker.address.startswith("unix:") for worker in serving)
    cores = len(os.sched_getaffinity(0)) if here else 0
    workers = typical(kind, len(serving), room, cores)
    parts = contexts(geometry.rows, class_counts, shape.max_classes)
    try:
        return plan(geometry, shape, members, workers, dtype, placement or "auto", parts)
    except PlanError as error:
        raise OutOfMemory(str(error)) from error


def fit(name: str, prepared: Prepared, options: pb.FitOptions, pool: WorkerPool, store: Path, scope: Scope, progress: Progress) -> Model:
    """Fits and stores a model. A lost worker costs another attempt, not the model. Nothing half-written is left on failure."""
    directory = ModelDirectory(store / name)
    with readable(), directory.writing() as (version, folder):
        journal = _journal(directory, prepared, options)
        attempts = Retrying(
            retry=retry_if_exception_type((Unavailable, StaleEpoch)),
            stop=stop_after_attempt(FIT_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=5.0),
            reraise=True,
        )
        for attempt in attempts:
            with attempt:
                number = attempt.retry_state.attempt_number
                return _attempt(name, version, prepared, options, pool, directory, folder, number, journal, scope, progress)
        raise AssertionError("Retrying ends by returning or raising")


def _attempt(
    name: str,
    version: int,
    prepared: Prepared,
    options: pb.FitOptions,
    pool: WorkerPool,
    directory: ModelDirectory,
    folder: str,
    epoch: int,
    journal: Journal | None,
    scope: Scope,
    progress: Progress,
) -> Model:
    """One attempt; each has an epoch of its own, so that nothing of an earlier one can get in."""
    serving = pool.wait_serving(scope)
    room = pool.room(serving)
    count, dtype, counts = len(prepared.members), prepared.policy.dtype, prepared.class_counts
    chosen = choose(prepared.geometry, prepared.shape, count, dtype, serving, room, options.placement, counts)
    placement = placed(chosen, epoch, len(prepared.members), prepared.geometry, serving)
    manifest = Manifest(
        version=version,
        folder=folder,
        task=prepared.schema.task,
        rows=prepared.geometry.rows,
        schema=prepared.schema.to_json(),
        geometry=prepared.geometry,
        policy=prepared.policy,
        checkpoint={
            "name": prepared.checkpoint.name,
            "kind": prepared.checkpoint.kind,
            "sha256": prepared.checkpoint.sha256,
            "path": "" if prepared.checkpoint.name in ("mini", "tabicl-v2") else str(prepared.checkpoint.path.resolve()),
        },
        temperature=options.softmax_temperature or 0.9,
        node_temperature=options.node_temperature or options.softmax_temperature or 0.9,
        average_probabilities=options.average_probabilities,
        features=prepared.members.n_features,
        members=len(prepared.members),
        class_counts=prepared.class_counts,
        warnings=prepared.warnings,
        written_by=f"tabgrpc {tabgrpc.__version__}",
        members_file=directory.write_members(folder, prepared.members.to_arrays()),
        save=prepared.saving.kind,
        written_with={each: metadata.version(each) for each in _PREPARING},
        context_bytes=context_bytes(
            prepared.shape, prepared.geometry, len(prepared.members), prepared.policy.dtype, prepared.class_counts
        ),
    )
    shards_name = f"models/{name}/versions/{version}@{folder}"
    spec = model_spec(manifest, prepared.checkpoint, chosen.store)
    try:
        with scope.tied() as inner:  # a failed attempt gives up its own calls, not the caller
            work = Fit(
                shards_name,
                placement,
                spec,
                prepared.geometry,
                prepared.shape,
                prepared.members,
                inner,
                progress,
                pool.groups,
                prepared.class_counts,
                journal,
                chosen.peak_bytes,
            )
            work.planned_seconds = chosen.fit_seconds
            work.run(prepared.x, prepared.y)
            progress("save", 0, 1)
            manifest = _saved(manifest, prepared, options, directory, work)
            scope.remaining()
            directory.commit(manifest)
    except BaseException:
        placing.drop(shards_name, list(placement.workers.values()), pool.groups)
        raise
    return Model(
        name,
        manifest,
        prepared.schema,
        prepared.members,
        prepared.checkpoint,
        directory,
        chosen.placement,
        placement,
        manifest.context_bytes,
    )


def _saved(manifest: Manifest, prepared: Prepared, options: pb.FitOptions, directory: ModelDirectory, work: Fit) -> Manifest:
    """The manifest with the files that were written for it."""
    kind, folder = prepared.saving.kind, manifest.folder
    files = tuple(work.save(str(directory.path.resolve()), folder, SAVED[kind]))
    kept = options.training_rows or kind == "data"
    return replace(manifest, files=files, data_files=rows.save(directory.path, folder, prepared.x, prepared.y) if kept else ())


def _journal(directory: ModelDirectory, prepared: Prepared, options: pb.FitOptions) -> Journal | None:
    """Where finished stages are kept, if they are: where it was asked for, or where much would be lost."""
    if not options.resume:
        shutil.rmtree(directory.path / RESUME, ignore_errors=True)
        tree = len(prepared.class_counts) > prepared.shape.max_classes > 0
        if prepared.plan.fit_seconds < KEEP_STAGES_SECONDS or prepared.plan.placement == "rows" or tree:
            return None  # shared rows are faster by collectives, which keep no stages; neither do trees of classes
    return Journal(directory.path, _identity(prepared), options.resume)


def _identity(prepared: Prepared) -> str:
    """Digest of all that the bits of a fit's stages depend on."""
    digest = hashlib.sha256()
    arrays = {"x": prepared.x, "y": prepared.y, **prepared.members.to_arrays()}
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    for text in (prepared.checkpoint.sha256, prepared.policy.digest(), json.dumps(prepared.geometry.as_dict(), sort_keys=True)):
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()


def context_bytes(shape: BackboneShape, geometry: Geometry, members: int, dtype: str, class_counts: Sequence[int]) -> int:
    """What all workers hold together of a model."""
    item, parts = DTYPE_BYTES[dtype], contexts(geometry.rows, class_counts, shape.max_classes)
    return members * (shape.context_bytes(sum(parts.rows), item) + parts.digits * shape.column_bytes(geometry.groups, item))


def placed(chosen: Plan, epoch: int, members: int, geometry: Geometry, serving: Sequence[Worker]) -> Placement:
    """A plan's ownership map over the workers that serve."""
    ownership = chosen.ownership(epoch, members, geometry, [worker.incarnation for worker in serving])
    by_name = {worker.incarnation: worker for worker in serving}
    return Placement(ownership, {each: by_name[each] for each in ownership.workers})
