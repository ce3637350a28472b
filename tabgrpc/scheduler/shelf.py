"""The models of a pool's store, served or not: described, verified, sent out file by file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from tabgrpc.data import Schema
from tabgrpc.internal.v1 import shards_pb2 as internal
from tabgrpc.scheduler.about import described
from tabgrpc.scheduler.calls import Scope, unary
from tabgrpc.scheduler.models import Model, Registry
from tabgrpc.scheduler.workers import WorkerPool
from tabgrpc.store.files import DamagedModel, StoredFile, opened
from tabgrpc.store.model import MANIFEST, ModelDirectory, UnknownFormat, check_name
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import NotFound, NotReady, ServiceError

_PIECE_BYTES = 1 << 20
_ASK_SECONDS = 2.0


class Shelf:
    """A store and what is served of it."""

    def __init__(self, store: Path, registry: Registry, pool: WorkerPool) -> None:
        self._store, self._registry, self._pool = store, registry, pool

    def names(self) -> list[str]:
        """Plain names of all models, served or stored."""
        served = {model.name for model in self._registry.all()}
        stored = {path.name for path in self._store.iterdir() if (path / MANIFEST).is_file() and _named(path.name)}
        return sorted(served | stored)

    def describe(self, names: list[str]) -> list[pb.Model]:
        """Models by plain names; those that vanish meanwhile are left out."""
        usage = self._usage()
        found = []
        for name in names:
            model = self._registry.find(name)
            if model is not None:
                about = model.to_proto()
                tiers = usage.get(model.shards_name, {})
                about.tiers.extend(pb.TierBytes(tier=tier, bytes=count) for tier, count in tiers.items() if count)
                found.append(about)
            elif (self._store / name / MANIFEST).is_file():
                found.append(_stored(name, self._store / name))
        return found

    def get(self, resource: str) -> pb.Model:
        """One model by resource name, served or stored. Raises NotFound."""
        try:
            return self.describe([self._registry.get(resource).name])[0]
        except NotFound:
            name = resource.removeprefix("models/")
            if not _named(name) or not (found := self.describe([name])):
                raise
            return found[0]

    def _usage(self) -> dict[str, dict[str, int]]:
        """Bytes by tier of each model version, over all workers."""
        total: dict[str, dict[str, int]] = {}
        for worker in self._pool.serving():
            try:
                info = unary(worker.stub.GetWorker, internal.GetWorkerRequest(), Scope(_ASK_SECONDS))
            except ServiceError:
                continue  # a busy or lost worker: what the others have is shown
            for model in info.models:
                tiers = total.setdefault(model.model_version, {})
                for each in model.tiers:
                    tiers[each.tier] = tiers.get(each.tier, 0) + each.bytes
        return total

    def directory(self, resource: str) -> ModelDirectory:
        """Where a model's files are. Raises NotFound."""
        name = resource.removeprefix("models/")
        model: Model | None = self._registry.find(name)
        if model is not None:
            return model.directory
        if not _named(name) or not (self._store / name / MANIFEST).is_file():
            raise NotFound(f"no {resource}")
        return ModelDirectory(self._store / name)

    def verify(self, resource: str) -> Iterator[pb.VerifyModelResponse]:
        """Every file of a model, read against its digest."""
        directory = self.directory(resource)
        try:
            for file, fault in directory.verify():
                yield pb.VerifyModelResponse(path=file.path, size=file.size, fault=fault)
        except (DamagedModel, UnknownFormat) as error:
            raise NotReady(str(error)) from error

    def export(self, resource: str) -> Iterator[pb.ExportModelResponse]:
        """The files of a model's current version, its manifest last. Raises NotReady naming a damaged one."""
        directory = self.directory(resource)
        try:
            manifest = directory.manifest()
            for file in manifest.all_files:
                yield pb.ExportModelResponse(file=pb.ExportedFile(path=file.path, size=file.size, sha256=file.sha256))
                yield from _pieces(directory.path, file)
        except (DamagedModel, UnknownFormat) as error:
            raise NotReady(str(error)) from error
        data = manifest.to_json().encode()
        yield pb.ExportModelResponse(file=pb.ExportedFile(path=MANIFEST, size=len(data)))
        for at in range(0, len(data), _PIECE_BYTES):
            yield _piece(data[at : at + _PIECE_BYTES], at)


def _pieces(directory: Path, file: StoredFile) -> Iterator[pb.ExportModelResponse]:
    with opened(directory, file) as (handle, path):
        for at in range(0, file.size, _PIECE_BYTES):
            data = os.pread(handle, min(_PIECE_BYTES, file.size - at), at)
            if not data:
                raise DamagedModel(f"{path} was cut short while it was read")
            yield _piece(data, at)


def _piece(data: bytes, at: int) -> pb.ExportModelResponse:
    return pb.ExportModelResponse(piece=pb.ExportedPiece(offset=at, data=data, checksum=zlib.crc32(data)))


def _named(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return True


def _stored(name: str, path: Path) -> pb.Model:
    """A model that no worker holds; one that can't be read says why."""
    try:
        manifest = ModelDirectory(path).manifest()
        return described(name, manifest, Schema.from_json(manifest.schema))
    except (DamagedModel, UnknownFormat, ValueError) as error:
        return pb.Model(name=f"models/{name}", fault=str(error))
