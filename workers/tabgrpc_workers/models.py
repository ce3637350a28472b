"""The models that this worker holds, and the fence in front of them: no call of another epoch or incarnation gets through."""

from __future__ import annotations

import json
import tempfile
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path

from tabgrpc.backbones.tabicl import UnsupportedCheckpoint
from tabgrpc.checkpoints import CheckpointError, load_checkpoint
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import Run
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument, NotReady, StaleEpoch
from tabgrpc_workers import nodes
from tabgrpc_workers.machines import CpuMachine, Machine
from tabgrpc_workers.movers import mover
from tabgrpc_workers.recipes import Recipe
from tabgrpc_workers.residency import Residency
from tabgrpc_workers.shard import ModelShards, Shard


class Models:
    """Model versions by name, and the backbones that they share."""

    def __init__(self, memory_budget: int, machine: Machine | None = None, spill: Path | None = None, host_budget: int = 0) -> None:
        """memory_budget: bytes that shards may take of the memory that computes. machine: what they live on, None is the CPU.

        spill: folder for K/V that memory has no room for and that aren't in a model's files, None is the temporary one. host_budget: bytes
        of host memory, where that isn't the one that computes.
        """
        self.machine = machine or CpuMachine()
        self.incarnation = uuid.uuid4().hex
        self.memory_budget = memory_budget
        self.residency = Residency(memory_budget, spill or Path(tempfile.gettempdir()), host_budget, mover(str(self.machine.device)))
        self._models: dict[str, ModelShards] = {}
        self._recipes: dict[tuple[str, str], Recipe] = {}
        self._lock = threading.Lock()

    def get(self, ref: pb.ShardRef) -> ModelShards:
        """The model of a call. Raises StaleEpoch if the call isn't of the current ownership map or not meant for this process."""
        if ref.incarnation != self.incarnation:
            raise StaleEpoch(f"the call is for worker {ref.incarnation[:8]}, this is {self.incarnation[:8]}")
        with self._lock:
            model = self._models.get(ref.model_version)
        if model is None:
            raise NotReady(f"{ref.model_version} is not on this worker")
        if ref.epoch != model.epoch:
            raise StaleEpoch(f"{ref.model_version} is at epoch {model.epoch}, the call is of epoch {ref.epoch}")
        return model

    def prepare(self, ref: pb.ShardRef, spec: pb.ModelSpec, shards: Iterable[pb.MemberShard]) -> ModelShards:
        """An empty model as a call describes it; it isn't found before ``put``. Raises StaleEpoch, InvalidArgument, NotReady."""
        if ref.incarnation != self.incarnation:
            raise StaleEpoch(f"the call is for worker {ref.incarnation[:8]}, this is {self.incarnation[:8]}")
        with self._lock:
            known = self._models.get(ref.model_version)
        if known is not None and ref.epoch < known.epoch:
            raise StaleEpoch(f"{ref.model_version} is at epoch {known.epoch}, the call is of epoch {ref.epoch}")
        try:
            geometry = Geometry(**json.loads(spec.geometry_json))
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"not a geometry: {error}") from error
        recipe = self._recipe(spec)
        held = {}
        for shard in shards:
            runs = tuple(Run(run.start, run.stop) for run in shard.runs)
            if any(not 0 <= run.start < run.stop <= geometry.blocks for run in runs):
                raise InvalidArgument(f"member {shard.member} has runs outside of {geometry.blocks} blocks")
            held[shard.member] = nodes.prepared(shard.member, runs, geometry, shard.class_counts, recipe.backbone.shape.max_classes)
        model = ModelShards(ref.model_version, ref.epoch, recipe.backbone, geometry, spec.features, spec.store, held, recipe)
        model.keep_vectors, model.stream = spec.keep_vectors, self.residency.stream
        return model

    def fitted(self, model_version: str, wanted: ModelShards) -> dict[int, Shard]:
        """Shards of an earlier epoch that are just what ``wanted`` asks for: they stay as they are."""
        with self._lock:
            known = self._models.get(model_version)
        if known is None or known.geometry != wanted.geometry or known.backbone is not wanted.backbone:
            return {}
        layers = wanted.backbone.shape.icl_layers
        return {
            member: held
            for member, shard in wanted.shards.items()
            if (held := known.shards.get(member)) is not None
            and (held.runs, held.tree) == (shard.runs, shard.tree)
            and held.fitted(layers)
        }

    def put(self, model: ModelShards) -> None:
        """Makes a model found, in the place of an older epoch's. Raises StaleEpoch if a newer one came meanwhile."""
        with self._lock:
            known = self._models.get(model.model_version)
            if known is not None and known.epoch > model.epoch:
                raise StaleEpoch(f"{model.model_version} is at epoch {known.epoch}, the call was of epoch {model.epoch}")
            self._models[model.model_version] = model
        self.residency.put(model)

    def drop(self, model_version: str) -> None:
        """Forgets a model, if it is there."""
        with self._lock:
            self._models.pop(model_version, None)
        self.residency.drop(model_version)

    def all(self) -> list[ModelShards]:
        """The models held."""
        with self._lock:
            return list(self._models.values())

    def names(self) -> list[str]:
        """The model versions held."""
        with self._lock:
            return sorted(self._models)

    @property
    def memory_used(self) -> int:
        """Bytes that shards take of the memory that computes."""
        return self.residency.used

    def _recipe(self, spec: pb.ModelSpec) -> Recipe:
        key = (spec.checkpoint_sha256, spec.dtype)
        with self._lock:
            found = self._recipes.get(key)
        if found is not None:
            return found
        dtypes = self.machine.dtypes
        if spec.dtype not in dtypes:
            raise InvalidArgument(f"dtype {spec.dtype!r} is not computed on {self.machine.kind}; {', '.join(dtypes)} are")
        try:
            checkpoint = load_checkpoint(spec.checkpoint)
            if checkpoint.sha256 != spec.checkpoint_sha256:
                raise NotReady(f"checkpoint {checkpoint.path} has SHA-256 {checkpoint.sha256[:12]}, not {spec.checkpoint_sha256[:12]}")
            recipe = self.machine.recipe(checkpoint.config, checkpoint.state_dict(), dtypes[spec.dtype])
        except (CheckpointError, UnsupportedCheckpoint) as error:
            raise NotReady(str(error)) from error
        with self._lock:
            return self._recipes.setdefault(key, recipe)
