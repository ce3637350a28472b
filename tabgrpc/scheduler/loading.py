"""From a model's files to a model that serves, on the workers that there are; and made whole again after workers were lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tabgrpc.backbones.shapes import shape_of
from tabgrpc.checkpoints import Checkpoint, CheckpointError
from tabgrpc.checkpoints.resolve import resolve
from tabgrpc.core.plan import DTYPE_BYTES
from tabgrpc.data import Schema
from tabgrpc.data.members import Members
from tabgrpc.scheduler import placing
from tabgrpc.scheduler.calls import Scope
from tabgrpc.scheduler.fit import Fit
from tabgrpc.scheduler.groups import Groups
from tabgrpc.scheduler.jobs import SAVED, choose, context_bytes, placed
from tabgrpc.scheduler.models import Model, Placement
from tabgrpc.scheduler.workers import WorkerPool
from tabgrpc.store import rows
from tabgrpc.store.files import DamagedModel
from tabgrpc.store.model import Manifest, ModelDirectory, UnknownFormat
from tabgrpc.store.paths import expected
from tabgrpc.wire.errors import NotReady, ServiceError

_NO_LIMIT = 1 << 62


def load(
    name: str, path: Path, pool: WorkerPool, scope: Scope, strict_bits: bool, say: Callable[[str], None], known: Model | None
) -> Model:
    """A model from its directory, placed for the workers that serve now. Raises NotReady, OutOfMemory; ``say`` gets warnings.

    known: the model of that name that is served now; if it is the same version, it goes on under its next epoch.
    """
    directory = ModelDirectory(path)
    manifest, schema, members = read(directory)
    checkpoint = _checkpoint(manifest, path)
    shape = shape_of(checkpoint.config)
    _check_files(manifest, checkpoint, path)
    serving = pool.wait_serving(scope)
    differences = manifest.policy.differences(replace(pool.policy(), dtype=manifest.policy.dtype))
    if differences:
        if strict_bits:
            raise NotReady(f"{path} was fitted under another numeric policy and strict bits were asked for: {'; '.join(differences)}")
        say(f"bits differ from where {name} was fitted: {'; '.join(differences)}")
    room = pool.room(serving) if manifest.save != "kv" else _NO_LIMIT  # K/V that don't fit stay in their files
    chosen = choose(
        manifest.geometry, shape, manifest.members, manifest.policy.dtype, serving, room, class_counts=manifest.class_counts
    )
    if known is not None and known.manifest == manifest and known.directory.path == path:
        placement = placed(chosen, known.placement.map.epoch + 1, manifest.members, manifest.geometry, serving)
        move(known, placement, pool.groups, scope)
        return known
    placement = placed(chosen, 1, manifest.members, manifest.geometry, serving)
    held = context_bytes(shape, manifest.geometry, manifest.members, manifest.policy.dtype, manifest.class_counts)
    model = Model(name, manifest, schema, members, checkpoint, directory, chosen.placement, placement, held)
    try:
        _fill(model, placement, pool.groups, scope)
    except BaseException:
        placing.drop(model.shards_name, serving, pool.groups)
        raise
    return model


def read(directory: ModelDirectory) -> tuple[Manifest, Schema, Members]:
    """What a model is, checked as far as that needs no checkpoint. Raises NotReady naming the file."""
    try:
        manifest = directory.manifest()
        members = Members.from_arrays(directory.read_members(manifest.members_file))
        schema = Schema.from_json(manifest.schema)
        members.check(schema.width, len(schema.classes))
    except (DamagedModel, UnknownFormat, ValueError) as error:
        raise NotReady(str(error)) from error
    if (len(members), members.n_features, schema.task) != (manifest.members, manifest.features, manifest.task):
        raise NotReady(f"{directory.path / manifest.members_file.path} is of another model than its manifest")
    return manifest, schema, members


def _check_files(manifest: Manifest, checkpoint: Checkpoint, path: Path) -> None:
    """The files that such a model must have are listed, with the sizes that they must have: before anything is allocated for them."""
    shape, geometry = shape_of(checkpoint.config), manifest.geometry
    if geometry.groups != manifest.features or checkpoint.kind != manifest.checkpoint["kind"]:
        raise NotReady(f"{path} is damaged: its manifest contradicts itself")
    sizes = {file.path: file.size for file in manifest.files}
    item = DTYPE_BYTES[manifest.policy.dtype]
    tree = len(manifest.class_counts) > shape.max_classes > 0  # its files are those of its nodes, checked as they are read
    for name, size in () if tree else expected(manifest.save, manifest.folder, geometry, shape, manifest.members, item):
        if name not in sizes:
            raise NotReady(f"{path / name} is missing in the manifest of the model")
        if not size <= sizes[name] <= size + (64 << 20):
            raise NotReady(f"{path / name} has {sizes[name]:,} bytes by the manifest, {size:,} bytes of numbers are needed")


def _checkpoint(manifest: Manifest, path: Path) -> Checkpoint:
    """The weights that a model was fitted with, and no others."""
    known = manifest.checkpoint
    try:
        found, _ = resolve(known.get("path") or known["name"], manifest.task)
    except CheckpointError as error:
        raise NotReady(f"the checkpoint of {path} is not to be had: {error}") from error
    if found.sha256 != known["sha256"]:
        raise NotReady(
            f"{path} was fitted with checkpoint {known['name']} {known['sha256'][:12]}, {found.path} is {found.sha256[:12]}; "
            "put the old checkpoint back or fit again"
        )
    return replace(found, name=known["name"])


def move(model: Model, placement: Placement, groups: Groups, scope: Scope) -> None:
    """Takes a model to its next epoch. Should that fail half-way, the epoch counts all the same: some workers are there already."""
    try:
        _fill(model, placement, groups, scope)
    except ServiceError as error:
        model.place(placement)
        model.fail(str(error))
        raise
    model.place(placement)


def _fill(model: Model, placement: Placement, groups: Groups, scope: Scope) -> None:
    """Has every owner get what it lacks, and pin it if the model is pinned."""
    _complete(model, placement, groups, scope)
    if model.pinned:
        placing.pin(model.shards_name, placement, True, scope)


def _complete(model: Model, placement: Placement, groups: Groups, scope: Scope) -> None:
    """Has every owner get what it lacks: from the files, and what isn't in them computed again, by those only that lack it."""
    manifest = model.manifest
    unfinished = placing.load(model, placement, SAVED[manifest.save], scope)
    if not any(unfinished.values()):
        return
    shape = shape_of(model.checkpoint.config)
    with scope.tied() as inner:
        about = (model.spec(), manifest.geometry, shape, model.members, inner, _unseen, groups, manifest.class_counts)
        work = Fit(model.shards_name, placement, *about)
        if manifest.save == "repr":
            work.compute((shape.column_blocks, 1), unfinished)
            return
        try:
            x, y = training_rows(model)
        except DamagedModel as error:
            raise NotReady(str(error)) from error
        lacking = [worker for worker in placement.workers.values() if unfinished[worker.incarnation]]
        work.open(lacking, x, y, unfinished)
        work.compute(None, unfinished)


def training_rows(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) as they were fitted. Raises DamagedModel."""
    manifest = model.manifest
    target = "I64" if manifest.task == "classification" else "F64"
    return rows.load(model.directory.path, manifest.data_files, manifest.rows, model.schema.width, target)


def _unseen(_stage: str, _done: int, _total: int) -> None:
    """Nobody watches a load."""


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
    move(model, placement, pool.groups, Scope(600))


