"""The models that the pool serves, and where each of their chunks is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from tabgrpc.backbones.shapes import shape_of
from tabgrpc.checkpoints import Checkpoint
from tabgrpc.core.classes import Tree, class_tree
from tabgrpc.core.ownership import OwnershipMap
from tabgrpc.data import Schema
from tabgrpc.data.members import Members
from tabgrpc.internal.v1 import shards_pb2 as internal
from tabgrpc.scheduler.about import described
from tabgrpc.scheduler.calls import Scope
from tabgrpc.scheduler.trees import label_counts
from tabgrpc.scheduler.workers import Worker
from tabgrpc.store.model import Manifest, ModelDirectory
from tabgrpc.v1 import models_pb2
from tabgrpc.wire.errors import NotFound, Unavailable


@dataclass(frozen=True, slots=True)
class Placement:
    """An ownership map with the workers that it means, by incarnation."""

    map: OwnershipMap
    workers: dict[str, Worker]

    def ref(self, model_version: str, worker: Worker) -> internal.ShardRef:
        """What a data call to a worker carries."""
        return internal.ShardRef(model_version=model_version, epoch=self.map.epoch, incarnation=worker.incarnation)


@dataclass
class Model:
    """One version of a model. What it is never changes; where it is (``placement``) and whether it can be served (``broken``) do."""

    name: str
    manifest: Manifest
    schema: Schema
    members: Members
    checkpoint: Checkpoint
    directory: ModelDirectory
    placement_kind: str
    placement: Placement
    context_bytes: int
    broken: str = ""
    pinned: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _users: int = 0
    _retired: Callable[[], None] | None = None

    @property
    def version_name(self) -> str:
        """"models/{model}/versions/{version}"."""
        return f"models/{self.name}/versions/{self.manifest.version}"

    @property
    def shards_name(self) -> str:
        """The version's name on the workers. Unlike the version's number, the folder's is never given twice."""
        return f"{self.version_name}@{self.manifest.folder}"

    @cached_property
    def label_counts(self) -> list[tuple[int, ...]]:
        """Of each member, the rows of each label as it is shown them, where it needs a tree of classes; else nothing."""
        return label_counts(self.members, self.manifest.class_counts, shape_of(self.checkpoint.config).max_classes)

    @cached_property
    def trees(self) -> list[Tree]:
        """Each member's tree of classes, empty where it needs none."""
        most = shape_of(self.checkpoint.config).max_classes
        return [class_tree(counts, most) if counts else () for counts in self.label_counts]

    @contextmanager
    def used(self) -> Iterator[None]:
        """While it lasts, the workers keep this version, also if a newer one takes its place."""
        with self._changed:
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                drop = self._retired if self._users == 0 else None
            if drop is not None:
                drop()

    def retire(self, drop: Callable[[], None]) -> None:
        """A newer version has taken its place: ``drop`` is called when nobody uses this one any more."""
        with self._changed:
            self._retired = drop
            idle = self._users == 0
            self._changed.notify_all()
        if idle:
            drop()

    def fail(self, reason: str) -> None:
        """It can't be served for now; whoever waits for it is told."""
        with self._changed:
            self.broken = reason
            self._changed.notify_all()

    def place(self, placement: Placement) -> None:
        """Moves on to the next epoch; whoever waits for it goes on."""
        with self._changed:
            self.placement = placement
            self.broken = ""
            self._changed.notify_all()

    def wait_past(self, epoch: int, scope: Scope) -> None:
        """Waits for a later epoch than ``epoch``. Raises Unavailable if there will be none, and what ``scope`` raises."""
        with self._changed:
            while self.placement.map.epoch <= epoch:
                if self.broken:
                    raise Unavailable(f"{self.version_name} can't be served: {self.broken}")
                if self._retired is not None:
                    raise Unavailable(f"{self.version_name} was replaced, and a worker that had it is lost")
                self._changed.wait(min(scope.remaining(), 0.5))

    def spec(self) -> internal.ModelSpec:
        """What a worker needs to compute this model's shards."""
        return model_spec(self.manifest, self.checkpoint)

    def to_proto(self) -> models_pb2.Model:
        """As callers see it."""
        about = described(self.name, self.manifest, self.schema)
        about.context_bytes = self.context_bytes
        about.loaded, about.pinned, about.placement, about.fault = True, self.pinned, self.placement_kind, self.broken
        return about


def model_spec(manifest: Manifest, checkpoint: Checkpoint, store: bool = True) -> internal.ModelSpec:
    """The spec of a model that may not be fitted yet."""
    import json

    return internal.ModelSpec(
        checkpoint=str(checkpoint.path),
        checkpoint_sha256=checkpoint.sha256,
        checkpoint_kind=checkpoint.kind,
        dtype=manifest.policy.dtype,
        geometry_json=json.dumps(manifest.geometry.as_dict()),
        features=manifest.features,
        store=store,
        keep_vectors=manifest.save == "repr",
    )


class Registry:
    """Models by name. A refit is put in the old version's place at once; the old one serves until then."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Model:
        """By "models/{model}" or "models/{model}/versions/{version}". Raises NotFound."""
        parts = name.split("/")
        if len(parts) not in (2, 4) or parts[0] != "models" or (len(parts) == 4 and parts[2] != "versions"):
            raise NotFound(f"{name!r} is not the name of a model")
        with self._lock:
            model = self._models.get(parts[1])
        if model is None or (len(parts) == 4 and parts[3] != str(model.manifest.version)):
            raise NotFound(f"no {name}")
        return model

    def find(self, name: str) -> Model | None:
        """By plain name, None if there is none."""
        with self._lock:
            return self._models.get(name)

    def put(self, model: Model) -> Model | None:
        """Serves a model; returns the version that it replaces."""
        with self._lock:
            old = self._models.get(model.name)
            self._models[model.name] = model
            return old

    def remove(self, name: str) -> Model:
        """Stops serving a model. Raises NotFound."""
        model = self.get(name)
        with self._lock:
            self._models.pop(model.name, None)
        return model

    def all(self) -> list[Model]:
        """In order of their names."""
        with self._lock:
            return [self._models[name] for name in sorted(self._models)]
