"""Shards to workers: what each owns of a model, and loading them from the model's files after a move or a loss."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import OwnershipMap
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.scheduler.calls import Scope, unary
from tabgrpc.scheduler.groups import Groups
from tabgrpc.scheduler.models import Model, Placement
from tabgrpc.scheduler.workers import Worker
from tabgrpc.wire.errors import ServiceError


def owned(ownership: OwnershipMap, worker: Worker, geometry: Geometry, counts: Sequence[Sequence[int]] = ()) -> list[pb.MemberShard]:
    """What a worker owns, member by member. counts: of each member, the rows of each label where it has a tree of classes, else nothing."""
    shards = []
    for member in range(len(ownership.owners)):
        runs = ownership.runs(member, worker.incarnation, geometry)
        if runs:
            blocks = [pb.BlockRun(start=run.start, stop=run.stop) for run in runs]
            shards.append(pb.MemberShard(member=member, runs=blocks, class_counts=counts[member] if counts else ()))
    return shards


def load(model: Model, placement: Placement, saved: pb.Saved, scope: Scope) -> dict[str, list[int]]:
    """Has every owner of a placement load its shards from the model's files; what a worker holds already stays. Raises ServiceError.

    By incarnation, the members whose shards there are still to be computed from what was loaded.
    """
    files = [pb.StoredFile(path=f.path, size=f.size, sha256=f.sha256) for f in model.manifest.files]

    def one(worker: Worker) -> list[int]:
        request = pb.LoadShardsRequest(
            ref=placement.ref(model.shards_name, worker),
            spec=model.spec(),
            shards=owned(placement.map, worker, model.manifest.geometry, model.label_counts),
            directory=str(model.directory.path.resolve()),
            folder=model.manifest.folder,
            files=files,
            saved=saved,
        )
        return list(unary(worker.stub.LoadShards, request, scope).unfinished)

    workers = list(placement.workers.values())
    with ThreadPoolExecutor(len(workers)) as threads:
        return {worker.incarnation: left for worker, left in zip(workers, threads.map(one, workers), strict=True)}


def pin(shards_name: str, placement: Placement, pinned: bool, scope: Scope) -> None:
    """Pins a model version on all its owners, or on none: raises OutOfMemory if it doesn't fit somewhere."""
    done: list[Worker] = []
    try:
        for worker in placement.workers.values():
            unary(worker.stub.PinShards, pb.PinShardsRequest(ref=placement.ref(shards_name, worker), pinned=pinned), scope)
            done.append(worker)
    except ServiceError:
        for worker in done if pinned else ():
            with suppress(ServiceError):
                unary(worker.stub.PinShards, pb.PinShardsRequest(ref=placement.ref(shards_name, worker), pinned=False), Scope(10))
        raise


def drop(shards_name: str, workers: Sequence[Worker], groups: Groups) -> None:
    """Frees a model version on workers, and its groups; a worker that doesn't answer has freed it in its own way."""
    groups.forget(shards_name)
    for worker in workers:
        with suppress(ServiceError):
            unary(worker.stub.DropShards, pb.DropShardsRequest(model_version=shards_name), Scope(10))


def replaced(placement: Placement, serving: Sequence[Worker], awaited: Collection[int]) -> Placement | None:
    """The next epoch's placement if some owner is gone and the others can take over, else None.

    awaited: slots whose replacement is on its way; nothing moves while an owner of one of them is missing. A lost owner's chunks go to
    whoever serves in its slot now; if nobody will, to the survivors, one after the other. Nobody else's chunks move: healthy shards are
    never dropped.
    """
    present = {worker.incarnation: worker for worker in serving}
    if not serving or all(present.get(name) is placement.workers[name] for name in placement.map.workers):
        return None  # also an owner that came back over another channel is a change
    lost = [name for name in placement.map.workers if name not in present]
    if any(placement.workers[name].slot in awaited for name in lost):
        return None
    by_slot = {worker.slot: worker for worker in serving}
    heirs = {}
    for turn, name in enumerate(lost):
        slot = placement.workers[name].slot
        heirs[name] = (by_slot.get(slot) or serving[turn % len(serving)]).incarnation
    owners = tuple(tuple(heirs.get(name, name) for name in chunks) for chunks in placement.map.owners)
    ownership = OwnershipMap(placement.map.epoch + 1, owners)
    return Placement(ownership, {name: present[name] for name in ownership.workers})
