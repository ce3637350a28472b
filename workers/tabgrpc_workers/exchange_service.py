"""The exchange service: makes groups, and runs the jobs of groups on the device thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import TypeVar

import grpc

from tabgrpc.core.ownership import Run
from tabgrpc.internal.v1 import exchange_pb2 as pb
from tabgrpc.internal.v1.exchange_pb2_grpc import ExchangeServiceServicer
from tabgrpc.wire.codec import pack
from tabgrpc.wire.errors import Cancelled, InvalidArgument, NotReady, Unavailable, guarded, guarded_stream
from tabgrpc_workers import fit, shared_fit, shared_query
from tabgrpc_workers.arrays import Tensors, get, plain, tile_rows, unpacked
from tabgrpc_workers.device import FIT, PREDICT, Task
from tabgrpc_workers.exchange import Cost, Group, accelerator, backend, meeting_place
from tabgrpc_workers.groups import Groups
from tabgrpc_workers.inturn import in_turn
from tabgrpc_workers.service import ShardService, _asked, _Background
from tabgrpc_workers.shard import ModelShards, finite

T = TypeVar("T")


class ExchangeService(ExchangeServiceServicer):
    """Implements tabgrpc.internal.v1.ExchangeService, over the shards of a ShardService."""

    def __init__(self, shards: ShardService, groups: Groups) -> None:
        self._shards, self.groups = shards, groups

    @guarded
    def GetPeer(self, request: pb.GetPeerRequest, context: grpc.ServicerContext) -> pb.GetPeerResponse:
        device = self.groups.device
        return pb.GetPeerResponse(
            machine=meeting_place(),
            backend=backend(device),
            trusted_host=self.groups.trusted_host,
            accelerator=accelerator(device),
        )

    @guarded
    def OpenGroup(self, request: pb.OpenGroupRequest, context: grpc.ServicerContext) -> pb.OpenGroupResponse:
        self._shards.models.get(request.ref)
        rendezvous = self.groups.open(request.group, request.ref.model_version, request.trusted_network)
        return pb.OpenGroupResponse(host=rendezvous.host, port=rendezvous.port)

    @guarded
    def JoinGroup(self, request: pb.JoinGroupRequest, context: grpc.ServicerContext) -> pb.JoinGroupResponse:
        model = self._shards.models.get(request.ref)
        mine = request.members[request.rank].shards if request.rank < len(request.members) else ()
        for shard in mine:
            runs = tuple(Run(run.start, run.stop) for run in shard.runs)
            if model.shard(shard.member).runs != runs:
                raise InvalidArgument(f"this worker owns other blocks of member {shard.member} than the group takes it for")
        self.groups.join(request)
        return pb.JoinGroupResponse()

    @guarded
    def LeaveGroup(self, request: pb.LeaveGroupRequest, context: grpc.ServicerContext) -> pb.LeaveGroupResponse:
        self.groups.leave(request.group, request.model_version)
        return pb.LeaveGroupResponse()

    @guarded_stream
    def FitShared(self, request: pb.FitSharedRequest, context: grpc.ServicerContext) -> Iterator[pb.FitSharedResponse]:
        group = self.groups.get(request.group, request.ref.model_version, request.ref.epoch)
        with group.breaking():
            model = self._shards.models.get(request.ref)
            shards = [model.shard(member) for member in request.members]
            _share(group, model, request.members)
        stages: SimpleQueue[str | None] = SimpleQueue()
        cost = Cost()

        def task() -> Task[None]:
            nonlocal cost
            cost = yield from group.begin(request.turn)
            device, wanted = self._shards.device, context.is_active
            members = (shared_fit.member(model, shard, device, group, wanted, stages.put) for shard in shards)
            try:
                yield from in_turn(members, max(request.at_once, 1))
            except Cancelled:  # on all ranks alike
                group.end()
                raise
            group.end()

        total = sum(fit.units(model, shard) for shard in shards)
        done = 0
        with _Background(lambda: self._run(group, task(), FIT), lambda: stages.put(None)) as background:
            while (stage := stages.get()) is not None:
                done += 1
                yield pb.FitSharedResponse(stage=stage, done=min(done, total), total=total)
            background.result()
        yield pb.FitSharedResponse(stage="done", done=total, total=total, exchanged=_exchanged(cost))

    @guarded
    def PredictRound(self, request: pb.PredictRoundRequest, context: grpc.ServicerContext) -> pb.PredictRoundResponse:
        group = self.groups.get(request.group, request.ref.model_version, request.ref.epoch)
        with group.breaking():
            model, tensors = self._shards.models.get(request.ref), unpacked(request.parcel)
            for member in request.members:
                model.shard(member, fitted=True)
            _share(group, model, request.members)
            at_home = shared_query.homes(request.tiles, group.size)[group.rank]
            if not request.members or not request.tiles:
                raise InvalidArgument("a round without members or tiles")
            rows = {(m, t): get(tensors, f"x/{m}/{t}") for m in request.members for t in at_home}
            x = {(m, t): tile_rows(model, {f"x/{m}": tensor}, m) for (m, t), tensor in rows.items()}
            cost = Cost()

            def task() -> Task[tuple[Tensors, set[int]]]:
                nonlocal cost
                yield from self._shards.models.residency.touch(model)
                cost = yield from group.begin(request.turn)
                here = {key: tensor.to(model.backbone.device) for key, tensor in x.items()}
                found = yield from shared_query.run(model, list(request.members), group, request.tiles, here, _asked(request.head))
                group.end()
                not_finite = {tile for (_, tile), out in found.items() if not finite([out])}
                return {f"out/{m}/{t}": out.cpu() for (m, t), out in found.items() if t not in not_finite}, not_finite

            outputs, not_finite = self._run(group, task(), PREDICT)
        return pb.PredictRoundResponse(parcel=pack(plain(outputs)), not_finite=sorted(not_finite), exchanged=_exchanged(cost))

    def _run(self, group: Group, task: Task[T], urgency: int) -> T:
        """A job runs to its end whether its caller waits or not: the group's other members count on it."""
        with group.breaking(but=Cancelled):
            if self._shards.draining:
                raise Unavailable("this worker is draining")
            return self._shards.device.run(task, urgency)

    @guarded
    def GetProgress(self, request: pb.GetProgressRequest, context: grpc.ServicerContext) -> pb.GetProgressResponse:
        shard = self._shards.models.get(request.ref).shard(request.member)
        return pb.GetProgressResponse(column_blocks=len(shard.inducing), kv_layers=len(shard.kv), layer=shard.layer)


def _share(group: Group, model: ModelShards, members: Iterable[int]) -> None:
    """Raises NotReady if the group's workers aren't just the owners of all these members."""
    for member in members:
        runs = sorted((run.start, run.stop) for owned in group.runs for run in owned.get(member, ()))
        ends = [0, *(stop for _, stop in runs)]
        everybody = all(owned.get(member) for owned in group.runs)
        if not everybody or [start for start, _ in runs] != ends[:-1] or ends[-1] != model.geometry.blocks:
            raise NotReady(f"member {member} is not owned by the workers of group {group.name}")


def _exchanged(cost: Cost) -> pb.Exchanged:
    return pb.Exchanged(bytes=cost.nbytes, seconds_waiting=cost.waiting, collectives=cost.collectives)
