"""A fit over the pool: open the shards, run the stages on their owners, exchange what a stage needs of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.plan import BackboneShape
from tabgrpc.core.reduction import complete
from tabgrpc.data.members import Members
from tabgrpc.internal.v1 import exchange_pb2
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.internal.v1.exchange_pb2_grpc import ExchangeServiceStub
from tabgrpc.scheduler import trees
from tabgrpc.scheduler.calls import Scope, exchange, stream, unary, upload
from tabgrpc.scheduler.collective_fit import CollectiveFit
from tabgrpc.scheduler.groups import COLLECTIVE_SECONDS, Groups
from tabgrpc.scheduler.models import Placement
from tabgrpc.scheduler.partials import unpack
from tabgrpc.scheduler.placing import owned
from tabgrpc.scheduler.tree_fit import TreeMember
from tabgrpc.scheduler.workers import Worker
from tabgrpc.store.files import StoredFile

MEMBERS_IN_FLIGHT = 2
"""Members whose rows are shared, fitted at once: while one waits for an exchange the other computes."""

Arrays = dict[str, np.ndarray]


class Fit:
    """One attempt to fit one model version on one placement."""

    def __init__(
        self,
        model_version: str,
        placement: Placement,
        spec: pb.ModelSpec,
        geometry: Geometry,
        shape: BackboneShape,
        members: Members,
        scope: Scope,
        progress: Callable[[str, int, int], None],
        groups: Groups,
        class_counts: Sequence[int] = (),
    ) -> None:
        """progress: called with stage, units done and units in all. groups: of the pool, for members whose rows several workers own.
        class_counts: context rows of each class.
        """
        self._version, self._placement, self._spec = model_version, placement, spec
        self._geometry, self._shape, self._members, self._scope = geometry, shape, members, scope
        self._progress, self._groups = progress, groups
        self.planned_seconds = 0.0
        self._done = 0
        self._lock = threading.Lock()
        self._counts = trees.label_counts(members, class_counts, shape.max_classes)
        self._total = sum(trees.units(counts, geometry, shape) for counts in self._counts)

    def run(self, x: np.ndarray, y: np.ndarray) -> None:
        """x: (rows, F) encoded features, y: (rows,) targets. Raises ServiceError; what was opened is left to the caller to drop."""
        workers = list(self._placement.workers.values())
        with ThreadPoolExecutor(len(workers)) as threads:
            list(threads.map(lambda worker: self._open(worker, x, y), workers))
        ownership, self._y = self._placement.map, y
        alone: dict[str, list[int]] = {}
        shared: dict[tuple[str, ...], list[int]] = {}
        for member in range(len(self._members)):
            owners = ownership.owners_of(member)
            if len(owners) == 1:
                alone.setdefault(owners[0], []).append(member)
            else:
                shared.setdefault(owners, []).append(member)
        with ThreadPoolExecutor(len(alone) + len(shared)) as threads:
            work = [threads.submit(self._fit_alone, self._placement.workers[name], held) for name, held in alone.items()]
            work += [threads.submit(self._fit_shared, owners, held) for owners, held in shared.items()]
            try:
                wait(work, return_when=FIRST_EXCEPTION)
                for future in work:
                    if future.done():
                        future.result()
            except BaseException:
                self._scope.cancel()
                raise
            for future in work:
                future.result()

    def save(self, directory: str, folder: str) -> list[StoredFile]:
        """Has every owner write its chunks; a member's inducing K/V are written by the first of its owners."""
        first: dict[str, list[int]] = {}
        for member in range(len(self._members)):
            first.setdefault(self._placement.map.owners_of(member)[0], []).append(member)

        def one(worker: Worker) -> list[StoredFile]:
            request = pb.SaveShardsRequest(
                ref=self._placement.ref(self._version, worker),
                directory=directory,
                folder=folder,
                column_members=first.get(worker.incarnation, []),
            )
            answer = unary(worker.stub.SaveShards, request, self._scope)
            return [StoredFile(f.path, f.size, f.sha256) for f in answer.files]

        workers = list(self._placement.workers.values())
        with ThreadPoolExecutor(len(workers)) as threads:
            return sorted((file for files in threads.map(one, workers) for file in files), key=lambda file: file.path)

    def _open(self, worker: Worker, x: np.ndarray, y: np.ndarray) -> None:
        """Sends a worker the rows that it owns, as each member sees them."""
        shards = owned(self._placement.map, worker, self._geometry, self._counts)
        dtype = np.float64 if self._spec.dtype == "float64" else np.float32
        rows: Arrays = {}
        by_member = {shard.member: shard for shard in shards}
        for member, seen in self._members.transform_all(x):
            shard = by_member.get(member.index)
            if shard is None:
                continue
            targets = self._members.train_targets(y, member).astype(dtype)
            for run in shard.runs:
                part = slice(run.start * self._geometry.block, min(run.stop * self._geometry.block, self._geometry.rows))
                rows[f"x/{member.index}/{run.start}"] = seen[part].astype(dtype)
                rows[f"y/{member.index}/{run.start}"] = targets[part]
        first = pb.OpenShardsRequest(ref=self._placement.ref(self._version, worker), spec=self._spec, shards=shards)
        upload(worker.stub.OpenShards, first, rows, self._scope)

    def _count(self, stage: str, units: int) -> None:
        with self._lock:
            self._done = min(self._done + units, self._total)  # what a broken group had begun may be done again
            done = self._done
        self._progress(stage, done, self._total)

    def _fit_alone(self, worker: Worker, members: list[int]) -> None:
        request = pb.FitMembersRequest(ref=self._placement.ref(self._version, worker), members=members)
        before = 0
        for answer in stream(worker.stub.FitMembers, request, self._scope):
            self._count(answer.stage, answer.done - before)
            before = answer.done

    def _fit_shared(self, owners: tuple[str, ...], members: list[int]) -> None:
        """Members of the same owners: by collectives if they have a group and it lasts, else, or from where it broke, over gRPC."""
        if self._counts[members[0]]:  # of all of them or of none; their nodes have owners of their own
            for member in members:
                TreeMember(self, member, self._counts[member], self._members.train_targets(self._y, member)).run()
            return
        seconds = max(COLLECTIVE_SECONDS, 2 * self.planned_seconds)
        group = self._groups.opened(self._version, self._placement, owners, self._geometry, seconds)
        if group is not None:
            while not self._groups.fits.acquire(timeout=0.2):
                self._scope.remaining()
            try:
                if CollectiveFit(self._groups, group, self._scope, self._count).run(members, MEMBERS_IN_FLIGHT):
                    return
            finally:
                self._groups.fits.release()
        with ThreadPoolExecutor(MEMBERS_IN_FLIGHT) as threads:
            list(threads.map(lambda member: _SharedMember(self, member).run(begun=group is not None), members))


    def stage(
        self, worker: Worker, member: int, kind: pb.FitStageKind, layer: int, sent: Mapping[str, np.ndarray], part: int = 0
    ) -> Arrays:
        """One stage on one owner."""
        ref = self._placement.ref(self._version, worker)
        first = pb.FitStageRequest(ref=ref, member=member, kind=kind, layer=layer, part=part)
        return exchange(worker.stub.FitStage, first, sent, self._scope)


class _SharedMember:
    """A member whose rows several workers own, stage after stage; every stage waits for all owners."""

    def __init__(self, fit: Fit, member: int) -> None:
        self._fit, self._member = fit, member
        self._owners = [fit._placement.workers[name] for name in fit._placement.map.owners_of(member)]

    def run(self, begun: bool) -> None:
        """begun: some stages may be done already; it goes on where the one that is least far is."""
        fit, blocks, shape = self._fit, self._fit._geometry.blocks, self._fit._shape
        column, layer = self._reached() if begun else (0, -1)
        with ThreadPoolExecutor(len(self._owners)) as threads:

            def everywhere(kind: pb.FitStageKind, layer: int, sent: list[Arrays]) -> list[Arrays]:
                calls = [
                    threads.submit(fit.stage, owner, self._member, kind, layer, arrays)
                    for owner, arrays in zip(self._owners, sent, strict=True)
                ]
                return [call.result() for call in calls]

            nothing: list[Arrays] = [{} for _ in self._owners]
            for at in range(column, shape.column_blocks):
                parts = everywhere(pb.FIT_STAGE_KIND_COLUMN, at, nothing)
                root = complete((node for part in parts for node in unpack(part, "")), blocks)
                whole = {"acc": root.acc, "sum": root.sum, "peak": root.peak}
                everywhere(pb.FIT_STAGE_KIND_COLUMN_END, at, [whole] * len(self._owners))
                fit._count("column", blocks)
            if layer < 0:
                kv = everywhere(pb.FIT_STAGE_KIND_ROWS, 0, nothing)
                fit._count("row", blocks)
                layer = 0
            elif layer < shape.icl_layers - 1:
                kv = everywhere(pb.FIT_STAGE_KIND_HELD, layer, nothing)
            for at in range(layer, shape.icl_layers - 1):
                foreign = [
                    {name: array for other, part in enumerate(kv) if other != own for name, array in part.items()}
                    for own in range(len(self._owners))
                ]
                kv = everywhere(pb.FIT_STAGE_KIND_ICL, at, foreign)
                fit._count("icl", blocks)

    def _reached(self) -> tuple[int, int]:
        """(column blocks ended, ICL layer whose K/V are there) on all owners; the layer is -1 before there are any."""
        fit = self._fit
        found = []
        for owner in self._owners:
            request = exchange_pb2.GetProgressRequest(ref=fit._placement.ref(fit._version, owner), member=self._member)
            found.append(unary(ExchangeServiceStub(owner.channel).GetProgress, request, fit._scope))
        return min(each.column_blocks for each in found), min(min(each.layer, each.kv_layers - 1) for each in found)

