"""What the shard service offers of files: shards saved, loaded, taken up again, dropped; and a fit's stages kept as they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.store.files import DamagedModel, StoredFile
from tabgrpc.wire.errors import InvalidArgument, NotReady, guarded
from tabgrpc_workers import nodes, stages, storage
from tabgrpc_workers.device import FIT, LOAD, Device, Task
from tabgrpc_workers.models import Models
from tabgrpc_workers.shard import Home, ModelShards, Shard


def context_bytes(model: ModelShards, shards: Sequence[Shard]) -> int:
    """Bytes of some shards' K/V and inducing K/V when they are whole, of all their nodes and digits."""
    rows = sum(nodes.rows_of(model, shard) for shard in shards)
    return model.backbone.shape.context_bytes(rows, model.backbone.dtype.itemsize) + column_bytes(model, shards)


def column_bytes(model: ModelShards, shards: Sequence[Shard]) -> int:
    """Bytes of some shards' inducing K/V alone."""
    each = model.backbone.shape.column_bytes(model.groups, model.backbone.dtype.itemsize)
    return sum(max(len(shard.digits), 1) for shard in shards) * each


def tier_bytes(tiers: Mapping[str, int]) -> list[pb.TierBytes]:
    return [pb.TierBytes(tier=tier, bytes=count) for tier, count in tiers.items()]


class Keeper:
    """Keeps the stages of a fit in files as they end, where a call asks for it."""

    def __init__(self, model: ModelShards, folder: pb.StageFolder) -> None:
        """Raises InvalidArgument if there is no such directory."""
        self._model, self._directory, self._folder = model, Path(folder.directory), folder.folder
        self.keeps = bool(folder.folder)
        model.staged = self.keeps
        if self.keeps and not self._directory.is_dir():
            raise InvalidArgument(f"{self._directory} is not a directory on the worker's machine")

    def save(self, shard: Shard, column: bool) -> Task[pb.FinishedStage]:
        """Writes the stage that a shard has just ended."""
        blocks, layers = stages.reached(self._model, shard)
        files = yield from stages.save(self._model, shard, self._directory, self._folder, column)
        return pb.FinishedStage(member=shard.member, column_blocks=blocks, layers=layers, files=to_proto(files))


def to_proto(files: Iterable[StoredFile]) -> list[pb.StoredFile]:
    return [pb.StoredFile(path=f.path, size=f.size, sha256=f.sha256) for f in files]


def from_proto(files: Iterable[pb.StoredFile]) -> dict[str, StoredFile]:
    """By path. Raises InvalidArgument."""
    try:
        return {f.path: StoredFile(f.path, f.size, f.sha256) for f in files}
    except DamagedModel as error:
        raise InvalidArgument(str(error)) from error


class Keeping:
    """The part of tabgrpc.internal.v1.ShardService that reads and writes files."""

    models: Models
    device: Device
    _run: Callable[..., Any]

    @guarded
    def SaveShards(self, request: pb.SaveShardsRequest, context: grpc.ServicerContext) -> pb.SaveShardsResponse:
        model = self.models.get(request.ref)
        directory = Path(request.directory)
        vectors = request.saved == pb.SAVED_VECTORS
        if not directory.is_dir():
            raise InvalidArgument(f"{directory} is not a directory on the worker's machine")
        if vectors and not model.keep_vectors:
            raise NotReady(f"{model.model_version} was not opened to be saved by its rows' vectors")

        def task() -> Task[list[StoredFile]]:
            files: list[StoredFile] = []
            for member in model.shards if request.saved != pb.SAVED_NOTHING else ():
                shard = model.shard(member, fitted=True)
                found = yield from storage.save(model, shard, directory, request.folder, member in request.column_members, vectors)
                if vectors:
                    shard.vectors = {}
                elif not shard.tree:
                    shard.home = Home(directory, request.folder, {file.path: file for file in found})
                files += found
            model.unsaved = False
            return files

        return pb.SaveShardsResponse(files=to_proto(self._run(context, task(), FIT)))

    @guarded
    def LoadShards(self, request: pb.LoadShardsRequest, context: grpc.ServicerContext) -> pb.LoadShardsResponse:
        model = self.models.prepare(request.ref, request.spec, request.shards)
        directory, files, folder = Path(request.directory), from_proto(request.files), request.folder
        kept = self.models.fitted(request.ref.model_version, model)
        model.shards.update(kept)
        missing = [shard for member, shard in model.shards.items() if member not in kept]
        residency = self.models.residency
        held = residency.held(model.model_version)  # the last epoch's shards, which stay until this one's are there
        wanted, columns = held + context_bytes(model, missing), held + column_bytes(model, missing)
        saved_kv = request.saved in (pb.SAVED_KV, pb.SAVED_UNSPECIFIED)

        def task() -> Task[None]:
            away = saved_kv and not any(shard.tree for shard in missing) and not residency.fits(model.model_version, wanted)
            yield from residency.reserve(model.model_version, columns if away else wanted)
            for shard in missing:
                match request.saved:
                    case pb.SAVED_KV | pb.SAVED_UNSPECIFIED if away:
                        yield from storage.load_away(model, shard, directory, files, folder)
                    case pb.SAVED_KV | pb.SAVED_UNSPECIFIED:
                        yield from storage.load(model, shard, directory, files, folder)
                    case pb.SAVED_VECTORS:
                        yield from storage.load_vectors(model, shard, self.device, directory, files, folder)

        try:
            self._checked(context, task(), bool(missing))
            self.models.put(model)
        except BaseException:
            residency.settle(model.model_version)
            raise
        layers = model.backbone.shape.icl_layers
        return pb.LoadShardsResponse(unfinished=[shard.member for shard in missing if not shard.fitted(layers)])

    @guarded
    def ResumeShards(self, request: pb.ResumeShardsRequest, context: grpc.ServicerContext) -> pb.ResumeShardsResponse:
        model = self.models.get(request.ref)
        directory, folder = Path(request.stages.directory), request.stages.folder

        def task() -> Task[None]:
            for each in request.reached:
                shard, files = model.shard(each.member), from_proto(each.files)
                yield from stages.restore(model, shard, self.device, directory, folder, files, each.column_blocks, each.layers)

        self._checked(context, task(), bool(request.reached))
        return pb.ResumeShardsResponse()

    def _checked(self, context: grpc.ServicerContext, task: Task[None], wanted: bool) -> None:
        """Runs a task that reads files; what is wrong with them is the caller's to mend."""
        try:
            if wanted:
                self._run(context, task, LOAD)
        except DamagedModel as error:
            raise NotReady(str(error)) from error

    @guarded
    def PinShards(self, request: pb.PinShardsRequest, context: grpc.ServicerContext) -> pb.PinShardsResponse:
        model = self.models.get(request.ref)
        self._run(context, self.models.residency.pin(model, request.pinned), LOAD)
        return pb.PinShardsResponse()

    @guarded
    def DropShards(self, request: pb.DropShardsRequest, context: grpc.ServicerContext) -> pb.DropShardsResponse:
        self.models.drop(request.model_version)
        return pb.DropShardsResponse()
