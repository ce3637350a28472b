"""What a worker holds of a model: for each member the runs of blocks that it owns, and how far they are fitted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from tabgrpc.backbones.protocol import Backbone, InducingKV
from tabgrpc.core.classes import Tree
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import Run
from tabgrpc.store.files import StoredFile
from tabgrpc.wire.errors import NotReady
from tabgrpc_workers.away import Away
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.recipes import CpuRecipe, Recipe


@dataclass(slots=True)
class Cells:
    """Stored embeddings of one block's cells, (G, R, E), after ``level`` column blocks."""

    level: int
    values: Tensor


@dataclass(slots=True)
class RunData:
    """Rows of one run while it is fitted. x: (rows, F) features, y: (rows,) targets, hidden: (rows, D) entering ICL layer ``layer``.

    advanced: how many of the run's blocks have passed that layer already; a layer that was interrupted goes on after them.
    """

    run: Run
    x: Tensor
    y: Tensor
    hidden: Tensor | None = None
    advanced: int = 0


@dataclass(frozen=True, slots=True)
class Home:
    """A model's tile files: ``files`` by path, relative to ``directory``, of the version in ``folder``."""

    directory: Path
    folder: str
    files: Mapping[str, StoredFile]


@dataclass(slots=True, weakref_slot=True)
class Shard:
    """One member's part. kv[layer] has a KVRun for each run; inducing K/V are whole on every owner.

    captured: how a whole member's query rows are computed where the device can repeat a run: to row vectors (True), or decoded (False).
    vectors: by a run's start its rows' (rows, D) as they enter ICL layer 0, where the model is saved by them. home: where its K/V are in
    files. away: where its K/V are, if they aren't in the memory that computes; ``kv`` is empty then.

    A member of more classes than the network tells apart has a ``tree``. This shard is then its root, ``nodes`` are the other nodes that it
    owns chunks of, by number, each with a geometry of its own; and the inducing K/V are those of ``digits``, one for each digit of the
    labels (``tabgrpc_workers.nodes``).
    """

    member: int
    runs: tuple[Run, ...]
    data: list[RunData] = field(default_factory=list)
    cells: dict[int, Cells] = field(default_factory=dict)
    inducing: list[InducingKV] = field(default_factory=list)
    layer: int = 0
    kv: list[list[KVRun]] = field(default_factory=list)
    captured: dict[bool, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    vectors: dict[int, Tensor] = field(default_factory=dict)
    home: Home | None = None
    away: Away | None = None
    tree: Tree = ()
    digits: list[Shard] = field(default_factory=list)
    nodes: dict[int, Shard] = field(default_factory=dict)
    geometry: Geometry | None = None

    def contexts(self) -> dict[int, Shard]:
        """This and the other nodes, by number."""
        return {0: self, **self.nodes}

    @property
    def head_sizes(self) -> tuple[int, int, torch.dtype]:
        """Heads, their width and the type of its K/V, wherever they are."""
        if self.away is not None:
            return self.away.head_sizes
        k = self.kv[0][0].k
        return k.shape[1], k.shape[3], k.dtype

    def fitted(self, layers: int) -> bool:
        """Whether it has the K/V of all ICL layers, wherever they are."""
        return all(len(shard.kv) == layers or shard.away is not None for shard in self.contexts().values())

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        inner = sum(shard.nbytes for shard in self.nodes.values())
        inner += sum(t.numel() * t.element_size() for digit in self.digits for kv in digit.inducing for t in (kv.k, kv.v))
        inner += sum(cells.values.numel() * cells.values.element_size() for digit in self.digits for cells in list(digit.cells.values()))
        tensors: list[Tensor] = [t for kv in self.inducing for t in (kv.k, kv.v)]
        tensors += [cells.values for cells in list(self.cells.values())]
        for data in self.data:
            tensors += [data.x, data.y] + ([] if data.hidden is None else [data.hidden])
        tensors += [kept for start, kept in list(self.vectors.items()) if all(kept is not data.hidden for data in self.data)]
        return inner + sum(t.numel() * t.element_size() for t in tensors) + sum(run.nbytes for layer in self.kv for run in layer)


Stream = Callable[[Shard, range], Generator[tuple[int, KVRun], None, None]]
"""How pieces of K/V that are away come: see ``ModelShards.pieces``."""


@dataclass(slots=True)
class ModelShards:
    """Everything of one model version on this worker, under one epoch.

    keep_vectors: shards keep their rows' vectors, to be saved. unsaved: a fit that is to be saved. staged: its stages are saved as they
    end, and who saves the last one lets the rows go.
    """

    model_version: str
    epoch: int
    backbone: Backbone
    geometry: Geometry
    features: int
    store: bool
    shards: dict[int, Shard]
    recipe: Recipe = None  # type: ignore[assignment]  # the CPU's unless another is given
    keep_vectors: bool = False
    staged: bool = False
    unsaved: bool = False
    stream: Stream | None = None

    def __post_init__(self) -> None:
        if self.recipe is None:
            self.recipe = CpuRecipe(self.backbone)

    def pieces(self, shard: Shard, layers: range) -> Generator[tuple[int, KVRun], None, None]:
        """The pieces of some layers of a shard whose K/V are away, each with its layer, in canonical order, on the device."""
        assert self.stream is not None
        return self.stream(shard, layers)

    @property
    def groups(self) -> int:
        """Feature groups."""
        return self.backbone.groups(self.features)

    def shard(self, member: int, fitted: bool = False) -> Shard:
        """A member's shard. Raises NotReady if this worker has none of it, or not fitted to the end though ``fitted`` is asked."""
        shard = self.shards.get(member)
        if shard is None:
            raise NotReady(f"this worker owns nothing of member {member} of {self.model_version}")
        if fitted and not shard.fitted(self.backbone.shape.icl_layers):
            raise NotReady(f"member {member} of {self.model_version} is not fitted")
        return shard

    def of(self, shard: Shard) -> ModelShards:
        """The model as one of a member's nodes sees it: with that node's geometry."""
        return self if shard.geometry is None else replace(self, geometry=shard.geometry)

    def whole(self, shard: Shard) -> bool:
        """Whether a shard is all of its member."""
        return shard.runs == (Run(0, self.geometry.blocks),)

    @property
    def complete(self) -> bool:
        """Whether nothing is to be computed, or saved, any more."""
        layers = self.backbone.shape.icl_layers
        return not self.unsaved and all(shard.fitted(layers) and not shard.data for shard in self.shards.values())

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(shard.nbytes for shard in self.shards.values())


def run_rows(geometry: Geometry, run: Run) -> range:
    """The context rows of a run."""
    return range(geometry.block_rows(run.start).start, geometry.block_rows(run.stop - 1).stop)


def finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number is finite."""
    return all(bool(torch.isfinite(t).all()) for t in tensors)
