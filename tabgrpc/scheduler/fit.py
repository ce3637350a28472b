"""A fit over the pool: open the shards, run the stages on their owners, exchange what a stage needs of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
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
from tabgrpc.store.journal import Journal

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
        journal: Journal | None = None,
        peak_bytes: int = 0,
    ) -> None:
        """progress: called with stage, units done and units in all. groups: of the pool, for members whose rows several workers own.

        class_counts: context rows of each class. journal: where finished stages are kept, and what it has of them; of none that has a tree
        of classes. peak_bytes: what the busiest worker will need.
        """
        self._version, self._placement, self._spec = model_version, placement, spec
        self._geometry, self._shape, self._members, self._scope = geometry, shape, members, scope
        self._progress, self._groups, self._journal, self._peak_bytes = progress, groups, journal, peak_bytes
        self.planned_seconds = 0.0
        self._reached: dict[int, tuple[int, int]] = {}
        self._done = 0
        self._lock = threading.Lock()
        self._counts = trees.label_counts(members, class_counts, shape.max_classes)
        self._total = sum(trees.units(counts, geometry, shape) for counts in self._counts)

    def run(self, x: np.ndarray, y: np.ndarray) -> None:
        """x: (rows, F) encoded features, y: (rows,) targets. Raises ServiceError; what was opened is left to the caller to drop."""
        self._y = y
        self.open(list(self._placement.workers.values()), x, y)
        if self._journal is not None:
            self._resume(self._journal)
        self.compute()

    def open(self, workers: list[Worker], x: np.ndarray, y: np.ndarray, members: Mapping[str, Container[int]] | None = None) -> None:
        """Sends workers the rows that they own. members: by incarnation those that need them; what is fitted there already is kept."""
        with ThreadPoolExecutor(len(workers)) as threads:
            list(threads.map(lambda worker: self._open(worker, x, y, None if members is None else members[worker.incarnation]), workers))

    def _resume(self, journal: Journal) -> None:
        """Takes every owner to the stages that the journal has."""

        def one(worker: Worker) -> None:
            reached = [
                pb.FinishedStage(
                    member=shard.member,
                    column_blocks=stage.column_blocks,
                    layers=stage.layers,
                    files=[pb.StoredFile(path=f.path, size=f.size, sha256=f.sha256) for f in stage.files],
                )
                for shard in owned(self._placement.map, worker, self._geometry, self._counts)
                if (stage := journal.reached.get(shard.member)) is not None
            ]
            if reached:
                request = pb.ResumeShardsRequest(
                    ref=self._placement.ref(self._version, worker), stages=self._stage_folder(), reached=reached
                )
                unary(worker.stub.ResumeShards, request, self._scope)

        workers = list(self._placement.workers.values())
        with ThreadPoolExecutor(len(workers)) as threads:
            list(threads.map(one, workers))
        self._reached = {member: (stage.column_blocks, stage.layers) for member, stage in journal.reached.items()}
        for blocks, layers in self._reached.values():
            done = blocks + (layers + (layers == self._shape.icl_layers) if layers else 0)
            self._count("resume", self._geometry.blocks * min(done, self._shape.column_blocks + self._shape.icl_layers))

    def _stage_folder(self) -> pb.StageFolder:
        if self._journal is None:
            return pb.StageFolder()
        return pb.StageFolder(directory=str(self._journal.directory.resolve()), folder=self._journal.folder)

    def _keep(self, finished: Sequence[pb.FinishedStage]) -> None:
        """Writes a member's stage into the journal, once it is in files on all owners."""
        if self._journal is not None and finished:
            first = finished[0]
            files = [StoredFile(f.path, f.size, f.sha256) for each in finished for f in each.files]
            self._journal.add(first.member, first.column_blocks, first.layers, files)

    def compute(self, reached: tuple[int, int] | None = None, unfinished: Mapping[str, Container[int]] | None = None) -> None:
        """Runs the stages. reached: (column blocks, ICL layers) that all members have, of loaded ones. unfinished: by incarnation the
        members that still have to be computed there; the others' owners only lend what they have."""
        if reached is not None:
            self._reached = dict.fromkeys(range(len(self._members)), reached)
        ownership = self._placement.map
        alone: dict[str, list[int]] = {}
        shared: dict[tuple[str, ...], list[tuple[int, list[str]]]] = {}
        for member in range(len(self._members)):
            owners = ownership.owners_of(member)
            computing = [name for name in owners if unfinished is None or member in unfinished.get(name, ())]
            if len(owners) == 1 and computing:
                alone.setdefault(owners[0], []).append(member)
            elif computing:
                shared.setdefault(owners, []).append((member, computing))
        if not alone and not shared:
            return
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

    def save(self, directory: str, folder: str, saved: pb.Saved) -> list[StoredFile]:
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
                saved=saved,
            )
            answer = unary(worker.stub.SaveShards, request, self._scope)
            return [StoredFile(f.path, f.size, f.sha256) for f in answer.files]

        workers = list(self._placement.workers.values())
        with ThreadPoolExecutor(len(workers)) as threads:
            return sorted((file for files in threads.map(one, workers) for file in files), key=lambda file: file.path)

    def _open(self, worker: Worker, x: np.ndarray, y: np.ndarray, members: Container[int] | None) -> None:
        """Sends a worker the rows that it owns, as each member sees them."""
        shards = owned(self._placement.map, worker, self._geometry, self._counts)
        dtype = np.float64 if self._spec.dtype == "float64" else np.float32
        rows: Arrays = {}
        by_member = {shard.member: shard for shard in shards}
        for member, seen in self._members.transform_all(x):
            shard = by_member.get(member.index)
            if shard is None or (members is not None and shard.member not in members):
                continue
            targets = self._members.train_targets(y, member).astype(dtype)
            for run in shard.runs:
                part = slice(run.start * self._geometry.block, min(run.stop * self._geometry.block, self._geometry.rows))
                rows[f"x/{member.index}/{run.start}"] = seen[part].astype(dtype)
                rows[f"y/{member.index}/{run.start}"] = targets[part]
        first = pb.OpenShardsRequest(
            ref=self._placement.ref(self._version, worker),
            spec=self._spec,
            shards=shards,
            peak_bytes=0 if members is not None else self._peak_bytes,
            keep_fitted=members is not None,
        )
        upload(worker.stub.OpenShards, first, rows, self._scope)

    def _count(self, stage: str, units: int) -> None:
        with self._lock:
            self._done = min(self._done + units, self._total)  # what a broken group had begun may be done again
            done = self._done
        self._progress(stage, done, self._total)

    def _fit_alone(self, worker: Worker, members: list[int]) -> None:
        request = pb.FitMembersRequest(
            ref=self._placement.ref(self._version, worker), members=members, stages=self._stage_folder()
        )
        before = 0
        for answer in stream(worker.stub.FitMembers, request, self._scope):
            if answer.HasField("finished"):
                self._keep([answer.finished])
                continue
            self._count(answer.stage, answer.done - before)
            before = answer.done

    def _fit_shared(self, owners: tuple[str, ...], members: list[tuple[int, list[str]]]) -> None:
        """Members of the same owners: by collectives if they have a group and it lasts, else, or from where it broke, over gRPC.

        What was begun already, and what is kept in files, goes over gRPC: a collective needs every owner at the same place.
        """
        if self._counts[members[0][0]]:  # of all of them or of none; their nodes have owners of their own
            for member, _ in members:
                TreeMember(self, member, self._counts[member], self._members.train_targets(self._y, member)).run()
            return
        begun = False
        fresh = self._journal is None and all(len(computing) == len(owners) and m not in self._reached for m, computing in members)
        seconds = max(COLLECTIVE_SECONDS, 2 * self.planned_seconds)
        group = self._groups.opened(self._version, self._placement, owners, self._geometry, seconds) if fresh else None
        if group is not None:
            begun = True
            while not self._groups.fits.acquire(timeout=0.2):
                self._scope.remaining()
            try:
                if CollectiveFit(self._groups, group, self._scope, self._count).run([m for m, _ in members], MEMBERS_IN_FLIGHT):
                    return
            finally:
                self._groups.fits.release()
        with ThreadPoolExecutor(MEMBERS_IN_FLIGHT) as threads:
            list(threads.map(lambda each: _SharedMember(self, *each).run(begun), members))

    def stage(
        self, worker: Worker, member: int, kind: pb.FitStageKind, layer: int, sent: Mapping[str, np.ndarray], part: int = 0
    ) -> Arrays:
        """One stage on one owner."""
        ref = self._placement.ref(self._version, worker)
        first = pb.FitStageRequest(ref=ref, member=member, kind=kind, layer=layer, part=part)
        return exchange(worker.stub.FitStage, first, sent, self._scope)[0]

    def kept_stage(
        self, worker: Worker, member: int, kind: pb.FitStageKind, layer: int, sent: Mapping[str, np.ndarray], keeps_column: bool = False
    ) -> tuple[Arrays, list[pb.FinishedStage]]:
        """As ``stage``, and what of it is in files now."""
        first = pb.FitStageRequest(
            ref=self._placement.ref(self._version, worker),
            member=member,
            kind=kind,
            layer=layer,
            stages=self._stage_folder(),
            keeps_column=keeps_column,
        )
        given, rest = exchange(worker.stub.FitStage, first, sent, self._scope)
        return given, [each.finished for each in rest if each.HasField("finished")]


class _SharedMember:
    """A member whose rows several workers own, stage after stage; every stage waits for all owners."""

    def __init__(self, fit: Fit, member: int, computing: Sequence[str]) -> None:
        """computing: incarnations of the owners that have something to compute; the others are fitted and lend their K/V."""
        self._fit, self._member = fit, member
        names = fit._placement.map.owners_of(member)
        self._owners = [fit._placement.workers[name] for name in names]
        self._computing = [name in computing for name in names]
        self._threads: ThreadPoolExecutor

    def run(self, begun: bool) -> None:
        """From wherever the member is to its end. begun: a broken group may have done some stages."""
        fit, shape = self._fit, self._fit._shape
        blocks, layers = self._progress() if begun else fit._reached.get(self._member, (0, 0))
        with ThreadPoolExecutor(len(self._owners)) as self._threads:
            if not layers:
                self._column(blocks)
                kv = self._each(pb.FIT_STAGE_KIND_ROWS, 0, lend=0)
                fit._count("row", fit._geometry.blocks)
            elif layers < shape.icl_layers:
                kv = self._each(pb.FIT_STAGE_KIND_HELD, layers - 1, lend=layers - 1)
            for layer in range(max(layers, 1) - 1, shape.icl_layers - 1):
                foreign = [
                    {name: array for other, part in enumerate(kv) if other != own for name, array in part.items()}
                    for own in range(len(self._owners))
                ]
                last = layer + 2 == shape.icl_layers
                kv = self._each(pb.FIT_STAGE_KIND_ICL, layer, foreign, lend=None if last else layer + 1)
                fit._count("icl", fit._geometry.blocks)

    def _column(self, reached: int) -> None:
        """The column blocks that are left; an owner that has been fitted before gives what they ended with."""
        fit = self._fit
        if not all(self._computing) and reached < fit._shape.column_blocks:
            lender = self._owners[self._computing.index(False)]
            inducing = fit.stage(lender, self._member, pb.FIT_STAGE_KIND_INDUCING, 0, {})
            self._each(pb.FIT_STAGE_KIND_TAKE_INDUCING, 0, [inducing] * len(self._owners))
            return
        for layer in range(reached, fit._shape.column_blocks):
            parts = self._each(pb.FIT_STAGE_KIND_COLUMN, layer)
            root = complete((node for part in parts for node in unpack(part, "")), fit._geometry.blocks)
            whole = {"acc": root.acc, "sum": root.sum, "peak": root.peak}
            self._each(pb.FIT_STAGE_KIND_COLUMN_END, layer, [whole] * len(self._owners))
            fit._count("column", fit._geometry.blocks)

    def _each(
        self, kind: pb.FitStageKind, layer: int, sent: Sequence[Arrays] | None = None, lend: int | None = None
    ) -> list[Arrays]:
        """A stage on the owners that compute; the others give their K/V of layer ``lend``, or nothing. Ended everywhere, it is kept."""
        calls = []
        for at, (owner, computes) in enumerate(zip(self._owners, self._computing, strict=True)):
            if computes:
                arrays = sent[at] if sent else {}
                calls.append(self._threads.submit(self._fit.kept_stage, owner, self._member, kind, layer, arrays, at == 0))
            elif lend is not None:
                calls.append(self._threads.submit(self._fit.kept_stage, owner, self._member, pb.FIT_STAGE_KIND_HELD, lend, {}))
            else:
                calls.append(self._threads.submit(lambda: ({}, [])))
        answers = [call.result() for call in calls]
        self._fit._keep([each for _, finished in answers for each in finished])
        return [given for given, _ in answers]

    def _progress(self) -> tuple[int, int]:
        """(column blocks ended, ICL layers whose K/V are there) on all owners."""
        fit = self._fit
        found = []
        for owner in self._owners:
            request = exchange_pb2.GetProgressRequest(ref=fit._placement.ref(fit._version, owner), member=self._member)
            found.append(unary(ExchangeServiceStub(owner.channel).GetProgress, request, fit._scope))
        return min(each.column_blocks for each in found), min(min(each.layer + 1, each.kv_layers) for each in found)

