"""From a table to a model that serves: schema, members, plan, fit, files. And from files back to a model that serves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from tabgrpc.core.plan import DTYPE_BYTES, BackboneShape, Plan, PlanError, Workers, plan
from tabgrpc.core.policy import NumericPolicy
from tabgrpc.data import DataWarning, Schema, UserError
from tabgrpc.data.fitting import fit_members
from tabgrpc.data.members import Members
from tabgrpc.scheduler import placing
from tabgrpc.scheduler.calls import Scope
from tabgrpc.scheduler.fit import Fit
from tabgrpc.scheduler.models import Model, Placement, model_spec
from tabgrpc.scheduler.workers import Worker, WorkerPool
from tabgrpc.store.files import DamagedModel
from tabgrpc.store.model import BeingWritten, Manifest, ModelDirectory, UnknownFormat
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import AlreadyExists, InvalidArgument, NotReady, OutOfMemory, ServiceError, StaleEpoch, Unavailable

FIT_ATTEMPTS = 3
DTYPES = {"cpu": ("float32", "float64"), "cuda": ("float32", "float16", "bfloat16")}
FLOPS = {"cpu": 3e10, "cuda": 2.5e14}
"""What a worker of a kind computes a second, about."""
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
    x: np.ndarray
    y: np.ndarray
    class_counts: tuple[int, ...]
    warnings: tuple[str, ...]


def prepare(table: pa.Table, options: pb.FitOptions, pool: WorkerPool, scope: Scope) -> Prepared:
    """Schema, members and plan of a table. Raises InvalidArgument for what the caller must mend, OutOfMemory when nothing fits."""
    dtype = options.dtype or "float32"
    device = pool.policy().device
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
    chosen = choose(geometry, shape, len(members), dtype, pool.wait_serving(scope), options.placement)
    counts = tuple(int(n) for n in np.bincount(y, minlength=len(schema.classes))) if classification else ()
    policy = replace(pool.policy(), dtype=dtype)
    return Prepared(schema, members, checkpoint, shape, geometry, policy, chosen, x, y, counts, tuple(dict.fromkeys(notes)))


@contextmanager
def _readable() -> Iterator[None]:
    """What is wrong with a directory on disk, as callers see it."""
    try:
        yield
    except BeingWritten as error:
        raise AlreadyExists(str(error)) from error
    except (DamagedModel, UnknownFormat) as error:
        raise NotReady(f"{error}; remove it to fit anew") from error


def choose(
    geometry: Geometry, shape: BackboneShape, members: int, dtype: str, serving: Sequence[Worker], placement: str = ""
) -> Plan:
    """The plan for the workers that serve. Raises OutOfMemory when nothing fits."""
    workers = Workers(len(serving), min(worker.memory_budget for worker in serving), FLOPS[serving[0].device])
    try:
        return plan(geometry, shape, members, workers, dtype, placement or "auto")
    except PlanError as error:
        raise OutOfMemory(str(error)) from error


def fit(name: str, prepared: Prepared, options: pb.FitOptions, pool: WorkerPool, store: Path, scope: Scope, progress: Progress) -> Model:
    """Fits and stores a model. A lost worker costs another attempt, not the model. Nothing half-written is left on failure."""
    directory = ModelDirectory(store / name)
    with _readable(), directory.writing() as (version, folder):
        attempts = Retrying(
            retry=retry_if_exception_type((Unavailable, StaleEpoch)),
            stop=stop_after_attempt(FIT_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=5.0),
            reraise=True,
        )
        for attempt in attempts:
            with attempt:
                number = attempt.retry_state.attempt_number
                return _attempt(name, version, prepared, options, pool, directory, folder, number, scope, progress)
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
    scope: Scope,
    progress: Progress,
) -> Model:
    """One attempt; each has an epoch of its own, so that nothing of an earlier one can get in."""
    serving = pool.wait_serving(scope)
    chosen = choose(prepared.geometry, prepared.shape, len(prepared.members), prepared.policy.dtype, serving, options.placement)
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
            )
            work.planned_seconds = chosen.fit_seconds
            work.run(prepared.x, prepared.y)
            progress("save", 0, 1)
            manifest = replace(manifest, files=tuple(work.save(str(directory.path.resolve()), folder)))
            scope.remaining()
            directory.commit(manifest)
    except BaseException:
        placing.drop(shards_name, list(placement.workers.values()), pool.groups)
        raise
    return _model(name, manifest, prepared.schema, prepared.members, prepared.checkpoint, directory, placement, chosen.placement)


def load(
    name: str, path: Path, pool: WorkerPool, scope: Scope, strict_bits: bool, say: Callable[[str], None], known: Model | None
) -> Model:
    """A model from its directory, placed for the workers that serve now. Raises NotReady, OutOfMemory; ``say`` gets warnings.

    known: the model of that name that is served now; if it is the same version, it goes on under its next epoch.
    """
    directory = ModelDirectory(path)
    try:
        manifest = directory.manifest()
        members = Members.from_arrays(directory.read_members(manifest.members_file))
        schema = Schema.from_json(manifest.schema)
    except (DamagedModel, UnknownFormat, ValueError) as error:
        raise NotReady(str(error)) from error
    checkpoint = _checkpoint(manifest, path)
    serving = pool.wait_serving(scope)
    differences = manifest.policy.differences(replace(pool.policy(), dtype=manifest.policy.dtype))
    if differences:
        if strict_bits:
            raise NotReady(f"{path} was fitted under another numeric policy and strict bits were asked for: {'; '.join(differences)}")
        say(f"bits differ from where {name} was fitted: {'; '.join(differences)}")
    chosen = choose(manifest.geometry, shape_of(checkpoint.config), manifest.members, manifest.policy.dtype, serving)
    if known is not None and known.manifest == manifest and known.directory.path == path:
        placement = placed(chosen, known.placement.map.epoch + 1, manifest.members, manifest.geometry, serving)
        _move(known, placement, scope)
        return known
    placement = placed(chosen, 1, manifest.members, manifest.geometry, serving)
    model = _model(name, manifest, schema, members, checkpoint, directory, placement, chosen.placement)
    try:
        placing.load(model, placement, scope)
    except BaseException:
        placing.drop(model.shards_name, serving, pool.groups)
        raise
    return model


def _move(model: Model, placement: Placement, scope: Scope) -> None:
    """Takes a model to its next epoch. Should that fail half-way, the epoch counts all the same: some workers are there already."""
    try:
        placing.load(model, placement, scope)
    except ServiceError as error:
        model.place(placement)
        model.fail(str(error))
        raise
    model.place(placement)


def placed(chosen: Plan, epoch: int, members: int, geometry: Geometry, serving: Sequence[Worker]) -> Placement:
    """A plan's ownership map over the workers that serve."""
    ownership = chosen.ownership(epoch, members, geometry, [worker.incarnation for worker in serving])
    by_name = {worker.incarnation: worker for worker in serving}
    return Placement(ownership, {each: by_name[each] for each in ownership.workers})


def _checkpoint(manifest: Manifest, path: Path) -> Checkpoint:
    """The weights that a model was fitted with, and no others."""
    known = manifest.checkpoint
    try:
        found, _ = resolve(known["path"] or known["name"], manifest.task)
    except CheckpointError as error:
        raise NotReady(f"the checkpoint of {path} is not to be had: {error}") from error
    if found.sha256 != known["sha256"]:
        raise NotReady(
            f"{path} was fitted with checkpoint {known['name']} {known['sha256'][:12]}, {found.path} is {found.sha256[:12]}; "
            "put the old checkpoint back or fit again"
        )
    return replace(found, name=known["name"])


def _model(
    name: str,
    manifest: Manifest,
    schema: Schema,
    members: Members,
    checkpoint: Checkpoint,
    directory: ModelDirectory,
    placement: Placement,
    kind: str,
) -> Model:
    shape = shape_of(checkpoint.config)
    item = DTYPE_BYTES[manifest.policy.dtype]
    parts = contexts(manifest.rows, manifest.class_counts, shape.max_classes)
    held = manifest.members * (
        shape.context_bytes(sum(parts.rows), item) + parts.digits * shape.column_bytes(manifest.features, item)
    )
    return Model(name, manifest, schema, members, checkpoint, directory, kind, placement, held)


def repair(model: Model, pool: WorkerPool) -> None:
    """Makes a model whole after workers were lost or replaced: the next epoch, the lost chunks loaded again from the model's files."""
    serving = pool.serving()
    placement = placing.replaced(model.placement, serving, pool.awaited())
    if placement is None:
        if pool.given_up:
            model.fail("no worker serves, and none is replaced any more")
        elif model.broken and serving:  # an earlier move failed, perhaps for a reason that has passed
            placement = Placement(replace(model.placement.map, epoch=model.placement.map.epoch + 1), model.placement.workers)
        if placement is None or pool.given_up:
            return
    _move(model, placement, Scope(600))
