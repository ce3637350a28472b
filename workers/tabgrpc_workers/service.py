"""The shard service: decodes, fences, enqueues on the device thread, encodes. Nothing is computed on a gRPC thread."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial as bind
from queue import SimpleQueue
from typing import Any, TypeVar

import grpc
from torch import Tensor

from tabgrpc.core.head import Head
from tabgrpc.core.policy import NumericPolicy
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.internal.v1.shards_pb2_grpc import ShardServiceServicer
from tabgrpc.wire.codec import frames, pack
from tabgrpc.wire.errors import InvalidArgument, NotReady, Unavailable, guarded, guarded_stream
from tabgrpc_workers import fit, node_calls, nodes, query
from tabgrpc_workers.arrays import (
    Tensors,
    checked,
    first_of,
    get,
    inducing_of,
    inducing_tensors,
    kv_runs,
    kv_tensors,
    packed_nodes,
    partial_of,
    placed,
    plain,
    received,
    tensors_of,
    tile_rows,
    unpacked,
)
from tabgrpc_workers.device import FIT, LOAD, PREDICT, Device, Task
from tabgrpc_workers.keeping import Keeper, Keeping, context_bytes, tier_bytes
from tabgrpc_workers.models import Models
from tabgrpc_workers.overlap import Quanta, together
from tabgrpc_workers.shard import ModelShards, Shard, run_rows

T = TypeVar("T")
_ENDS_A_STAGE = (pb.FIT_STAGE_KIND_COLUMN_END, pb.FIT_STAGE_KIND_ROWS, pb.FIT_STAGE_KIND_ICL)


class ShardService(Keeping, ShardServiceServicer):
    """Implements tabgrpc.internal.v1.ShardService."""

    def __init__(self, models: Models, device: Device, policy: NumericPolicy) -> None:
        self.models, self.device, self.policy = models, device, policy
        self.draining = False

    def _run(self, context: grpc.ServicerContext, task: Task[T], urgency: int) -> T:
        """Runs a task on the device; it stops between quanta when the caller has gone or its time is over."""
        if self.draining:
            raise Unavailable("this worker is draining")
        return self.device.run(task, urgency, context.is_active)

    @guarded
    def GetWorker(self, request: pb.GetWorkerRequest, context: grpc.ServicerContext) -> pb.GetWorkerResponse:
        residency = self.models.residency
        usage = residency.usage()
        return pb.GetWorkerResponse(
            incarnation=self.models.incarnation,
            device=self.models.machine.kind,
            policy_json=json.dumps(asdict(self.policy)),
            memory_budget=self.models.memory_budget,
            memory_used=self.models.memory_used,
            queued=self.device.waiting,
            pid=os.getpid(),
            threads=self.device.threads,
            model_versions=self.models.names(),
            memory_fixed=usage.fixed,
            tiers=tier_bytes(usage.tiers),
            models=[
                pb.ModelUsage(
                    model_version=model.model_version,
                    pinned=residency.pinned(model.model_version),
                    tiers=tier_bytes(residency.of(model)),
                )
                for model in self.models.all()
            ],
            stalled_seconds=residency.meter.stalled_seconds,
            streamed_bytes=residency.meter.streamed_bytes,
        )

    @guarded
    def OpenShards(self, requests: Iterator[pb.OpenShardsRequest], context: grpc.ServicerContext) -> pb.OpenShardsResponse:
        first = first_of(requests)
        model = self.models.prepare(first.ref, first.spec, first.shards)
        kept = self.models.fitted(first.ref.model_version, model) if first.keep_fitted else {}
        missing = [shard for member, shard in model.shards.items() if member not in kept]
        features = sum(len(run_rows(model.geometry, run)) for shard in missing for run in shard.runs) * (model.features + 1)
        features *= max(model.backbone.dtype.itemsize, 4)  # as they are sent
        model.unsaved = not first.keep_fitted
        residency = self.models.residency
        wanted = max(context_bytes(model, missing) + features, first.peak_bytes)
        if first.keep_fitted:  # the last epoch's shards stay until these are there
            wanted += residency.held(model.model_version)

        def task() -> Task[None]:
            for shard in missing:
                x, y = ({run.start: get(tensors, f"{name}/{shard.member}/{run.start}") for run in shard.runs} for name in ("x", "y"))
                try:
                    fit.open_shard(model, shard, x, y)
                    nodes.open_digits(model, shard)
                except ValueError as error:
                    raise InvalidArgument(str(error)) from error
                yield

        self._run(context, residency.reserve(model.model_version, wanted), LOAD)  # before a byte of them is received
        try:
            tensors = tensors_of(first, requests, features)
            self._run(context, task(), FIT)
            model.shards.update(kept)
            self.models.put(model)
        except BaseException:
            residency.settle(model.model_version)
            raise
        return pb.OpenShardsResponse()

    @guarded_stream
    def FitMembers(self, request: pb.FitMembersRequest, context: grpc.ServicerContext) -> Iterator[pb.FitMembersResponse]:
        model = self.models.get(request.ref)
        shards = [model.shard(member) for member in request.members]
        for shard in shards:
            if not model.whole(shard):
                raise NotReady(f"member {shard.member} has other owners too")
        told: SimpleQueue[str | pb.FinishedStage | None] = SimpleQueue()
        keeper = Keeper(model, request.stages)

        def task() -> Task[None]:
            def one(shard: Shard, device: Quanta) -> Task[None]:
                def finished() -> Task[None]:
                    if keeper.keeps:
                        told.put((yield from keeper.save(shard, column=True)))

                if shard.tree:
                    yield from nodes.member(model, shard, device, told.put)
                else:
                    yield from fit.member(model, shard, device, told.put, finished)

            left = [shard for shard in shards if not shard.fitted(model.backbone.shape.icl_layers)]  # some are, if it is asked again
            at_once = 1 if keeper.keeps else self._at_once(model, left)
            yield from together([bind(one, shard) for shard in left], self.device, at_once)

        total = sum((nodes if shard.tree else fit).units(model, shard) for shard in shards)
        done = 0
        for each in self._watched(context, task(), told):
            if isinstance(each, pb.FinishedStage):
                yield pb.FitMembersResponse(stage="keep", done=min(done, total), total=total, finished=each)
                continue
            done += 1
            yield pb.FitMembersResponse(stage=each, done=min(done, total), total=total)
        yield pb.FitMembersResponse(stage="done", done=total, total=total)

    def _at_once(self, model: ModelShards, shards: Sequence[Shard]) -> int:
        """Members whose fits fit in memory side by side, at least one: what each holds while it is fitted, and will hold for good."""
        shape, item = model.backbone.shape, model.backbone.dtype.itemsize
        rows = model.geometry.rows
        cells = rows * model.groups * shape.embed * item * max((len(shard.digits) for shard in shards), default=1) if model.store else 0
        held = max((shape.context_bytes(nodes.rows_of(model, shard), item) for shard in shards), default=0)
        one = cells + held + 3 * rows * shape.icl * model.backbone.hidden_dtype.itemsize
        return max(1, (self.models.memory_budget - self.models.memory_used) // max(one, 1))

    def _watched(self, context: grpc.ServicerContext, task: Task[None], told: SimpleQueue[Any]) -> Iterator[Any]:
        """Runs a task and yields what it puts into ``told``, while it runs."""
        with _Background(lambda: self._run(context, task, FIT), lambda: told.put(None)) as background:
            while (each := told.get()) is not None:
                yield each
            background.result()

    @guarded_stream
    def FitStage(self, requests: Iterator[pb.FitStageRequest], context: grpc.ServicerContext) -> Iterator[pb.FitStageResponse]:
        first, tensors = received(requests)
        model = self.models.get(first.ref)
        shard = model.shard(first.member)
        shape, layer = model.backbone.shape, first.layer
        keeper = Keeper(model, first.stages)
        kept: list[pb.FinishedStage] = []

        def here() -> Tensors:
            return placed(tensors, model.backbone.device)

        def task() -> Task[Tensors]:
            if shard.tree:
                return (yield from node_calls.stage(model, shard, first.kind, first.part, layer, here(), self.device))
            out = yield from stage()
            if keeper.keeps and first.kind in _ENDS_A_STAGE:
                kept.append((yield from keeper.save(shard, first.keeps_column)))
            return out

        def stage() -> Task[Tensors]:
            match first.kind:
                case pb.FIT_STAGE_KIND_COLUMN if layer < shape.column_blocks:
                    return packed_nodes((yield from fit.column(model, shard, self.device, layer, _ignore)), "")
                case pb.FIT_STAGE_KIND_COLUMN_END if layer < shape.column_blocks:
                    fit.column_end(model, shard, layer, partial_of(here(), ""))
                    return {}
                case pb.FIT_STAGE_KIND_ROWS:
                    yield from fit.rows(model, shard, self.device, _ignore)
                    return kv_tensors(shard.kv[0])
                case pb.FIT_STAGE_KIND_ICL if layer < shape.icl_layers - 1:
                    yield from fit.icl(model, shard, self.device, layer, kv_runs(here()), _ignore)
                    return {} if layer + 2 == shape.icl_layers else kv_tensors(shard.kv[layer + 1])
                case pb.FIT_STAGE_KIND_HELD if layer < len(shard.kv) or shard.away is not None:
                    return kv_tensors((yield from self.models.residency.layer(model, shard, layer)))
                case pb.FIT_STAGE_KIND_INDUCING if len(shard.inducing) == shape.column_blocks:
                    return inducing_tensors(shard.inducing)
                case pb.FIT_STAGE_KIND_TAKE_INDUCING if shard.data:
                    shard.inducing = inducing_of(here(), shape.column_blocks)
                    return {}
            raise InvalidArgument(f"no stage {first.kind} at layer {layer}")

        for frame in frames(plain(self._run(context, task(), FIT))):
            yield pb.FitStageResponse(frame=frame)
        for each in kept:
            yield pb.FitStageResponse(finished=each)

    @guarded
    def PredictTile(self, request: pb.PredictTileRequest, context: grpc.ServicerContext) -> pb.PredictTileResponse:
        model, tensors = self.models.get(request.ref), unpacked(request.parcel)
        asked, residency = _asked(request.head), self.models.residency

        def one(shard: Shard, _: Quanta) -> Task[Tensor]:
            if not model.whole(shard):
                raise NotReady(f"member {shard.member} has other owners too")
            return (yield from (nodes if shard.tree else query).tile(model, shard, tile_rows(model, tensors, shard.member), asked))

        def task() -> Task[Tensors]:
            yield from residency.touch(model)
            shards = [model.shard(member, fitted=True) for member in request.members]
            at_once = 1 if any(shard.away is not None for shard in shards) else self.device.threads
            outputs = yield from together([bind(one, shard) for shard in shards], self.device, at_once)
            return {f"out/{member}": checked(each, member) for member, each in zip(request.members, outputs, strict=True)}

        return pb.PredictTileResponse(parcel=pack(plain(self._run(context, task(), PREDICT))))

    @guarded
    def TileStep(self, request: pb.TileStepRequest, context: grpc.ServicerContext) -> pb.TileStepResponse:
        model, tensors = self.models.get(request.ref), unpacked(request.parcel)
        layer, last = request.layer, model.backbone.shape.icl_layers - 1
        if layer > last:
            raise InvalidArgument(f"no ICL layer {layer}")
        residency = self.models.residency

        def step(member: int, here: Tensors) -> Task[Tensors]:
            shard = model.shard(member, fitted=True)
            if shard.tree:
                return (yield from node_calls.step(model, shard, request.kind, layer, here, _asked(request.head)))
            match request.kind:
                case pb.TILE_STEP_KIND_OPEN:
                    hidden = yield from query.vectors(model, shard, tile_rows(model, here, member))
                    return opened(member, hidden, 0)
                case pb.TILE_STEP_KIND_ATTEND:
                    nodes = yield from query.streamed_attention(model, shard, layer, get(here, f"q/{member}"))
                    return packed_nodes(nodes, f"/{member}")
                case pb.TILE_STEP_KIND_ADVANCE:
                    hidden = query.end(model, layer, get(here, f"hidden/{member}"), partial_of(here, f"/{member}"))
                    yield
                    if layer == last:
                        return {f"out/{member}": checked(model.backbone.head(hidden, _asked(request.head)), member)}
                    return opened(member, hidden, layer + 1)
            raise InvalidArgument(f"no step {request.kind}")

        def opened(member: int, hidden: Tensor, at: int) -> Tensors:
            return {f"hidden/{member}": hidden, f"q/{member}": model.backbone.icl_queries(at, hidden, model.geometry.rows)}

        def task() -> Task[Tensors]:
            out: Tensors = {}
            here = placed(tensors, model.backbone.device)
            if request.kind == pb.TILE_STEP_KIND_ATTEND and layer == 0:
                yield from residency.touch(model)
            for member in request.members:
                out |= yield from step(member, here)
            return out

        return pb.TileStepResponse(parcel=pack(plain(self._run(context, task(), PREDICT))))


def _asked(head: pb.Head) -> Head:
    return Head(tuple(head.levels), head.variance, head.quantiles, head.embeddings)


def _ignore(_stage: str) -> None:
    """Stages of a shared fit are counted by the scheduler."""


class _Background:
    """A function on a thread of its own, awaited at the end."""

    def __init__(self, function: Callable[[], None], finally_: Callable[[], None]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(1, "fit")

        def run() -> None:
            try:
                function()
            finally:
                finally_()

        self._future = self._pool.submit(run)

    def __enter__(self) -> _Background:
        return self

    def result(self) -> None:
        """Waits; raises what the function raised."""
        self._future.result()

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False)
