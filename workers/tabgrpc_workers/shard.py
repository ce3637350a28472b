"""What a worker holds of a model: for each member the runs of blocks that it owns, and how far they are fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tabgrpc.backbones.protocol import Backbone, InducingKV
from tabgrpc.core.classes import Tree
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import Run
from tabgrpc.wire.errors import NotReady
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.recipes import CpuRecipe, Recipe


@dataclass(slots=True)
class Cells:
    """Stored embeddings of one block's cells, (G, R, E), after ``level`` column blocks."""

    level: int
    values: Tensor


@dataclass(slots=True)
class RunData:
    """Rows of one run while it is fitted. x: (rows, F) features, y: (rows,) targets, hidden: (rows, D) entering ICL layer ``layer``."""

    run: Run
    x: Tensor
    y: Tensor
    hidden: Tensor | None = None


@dataclass(slots=True)
class Shard:
    """One member's part. kv[layer] has a KVRun for each run; inducing K/V are whole on every owner.

    captured: how a whole member's query rows are computed where the device can repeat a run: to row vectors (True), or decoded (False).

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
    tree: Tree = ()
    digits: list[Shard] = field(default_factory=list)
    nodes: dict[int, Shard] = field(default_factory=dict)
    geometry: Geometry | None = None

    def contexts(self) -> dict[int, Shard]:
        """This and the other nodes, by number."""
        return {0: self, **self.nodes}

    def fitted(self, layers: int) -> bool:
        """Whether it has the K/V of all ICL layers."""
        return all(len(shard.kv) == layers for shard in self.contexts().values())

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        inner = sum(shard.nbytes for shard in self.nodes.values())
        inner += sum(t.numel() * t.element_size() for digit in self.digits for kv in digit.inducing for t in (kv.k, kv.v))
        inner += sum(cells.values.numel() * cells.values.element_size() for digit in self.digits for cells in list(digit.cells.values()))
        tensors: list[Tensor] = [t for kv in self.inducing for t in (kv.k, kv.v)]
        tensors += [cells.values for cells in self.cells.values()]
        for data in self.data:
            tensors += [data.x, data.y] + ([] if data.hidden is None else [data.hidden])
        return inner + sum(t.numel() * t.element_size() for t in tensors) + sum(run.nbytes for layer in self.kv for run in layer)


@dataclass(slots=True)
class ModelShards:
    """Everything of one model version on this worker, under one epoch."""

    model_version: str
    epoch: int
    backbone: Backbone
    geometry: Geometry
    features: int
    store: bool
    shards: dict[int, Shard]
    recipe: Recipe = None  # type: ignore[assignment]  # the CPU's unless another is given

    def __post_init__(self) -> None:
        if self.recipe is None:
            self.recipe = CpuRecipe(self.backbone)

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
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(shard.nbytes for shard in self.shards.values())


def run_rows(geometry: Geometry, run: Run) -> range:
    """The context rows of a run."""
    return range(geometry.block_rows(run.start).start, geometry.block_rows(run.stop - 1).stop)


def finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number is finite."""
    return all(bool(torch.isfinite(t).all()) for t in tensors)
