"""How a kind of device goes through a layer: the stages of fit and predict are the same everywhere, this is where they differ.

``CpuRecipe`` composes the backbone's stages and the CPU's attention kernel. ``tabgrpc_workers.cuda.recipe`` has the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from tabgrpc.backbones.protocol import Backbone
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.reduction import Node, Partial, complete
from tabgrpc_workers.kernels import KVRun, attend, partials


class Recipe(Protocol):
    """Of one backbone on one device. Letters as in ``tabgrpc.backbones.protocol``.

    free_rows: whether a row's bits don't depend on the rows computed with it, so that a stage may cut rows as memory allows.
    """

    free_rows: bool

    @property
    def backbone(self) -> Backbone:
        """Whose stages these are."""

    def gather(self, block: int, q: Tensor, cells: Tensor) -> Partial:
        """Inducing queries (H, I, d) of a column block over cells (g, R, E): a partial (g, H, I[, d])."""

    def context(self, layer: int, hidden: Tensor, runs: Sequence[KVRun], geometry: Geometry) -> Tensor:
        """One canonical block of context rows (R, D) through an ICL layer, against the K/V of all rows, in order."""

    def query(self, layer: int, hidden: Tensor, runs: Sequence[KVRun], geometry: Geometry) -> Tensor:
        """Query rows (R, D) through an ICL layer, against the K/V of all rows, in order."""

    def captured(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor] | None:
        """A faster way to run a function of query rows (R, F) again and again, if the device has one; from the device thread only."""

    def nodes(self, q: Tensor, runs: Sequence[KVRun], total: int) -> list[Node]:
        """Queries (H, R, d) against some runs: the maximal subtrees that they contain, of a tree over ``total`` blocks."""


class CpuRecipe:
    """One intra-op thread, fixed shapes."""

    free_rows = False

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone

    @property
    def backbone(self) -> Backbone:
        return self._backbone

    def gather(self, block: int, q: Tensor, cells: Tensor) -> Partial:
        k, v = self.backbone.column_kv(block, cells)
        return partials(q.expand(cells.shape[0], -1, -1, -1), k, v)

    def context(self, layer: int, hidden: Tensor, runs: Sequence[KVRun], geometry: Geometry) -> Tensor:
        return self.query(layer, hidden, runs, geometry)

    def query(self, layer: int, hidden: Tensor, runs: Sequence[KVRun], geometry: Geometry) -> Tensor:
        q = self.backbone.icl_queries(layer, hidden, geometry.rows)
        attended = complete(attend(q, runs, geometry.blocks), geometry.blocks).divide()
        return self.backbone.icl_end(layer, hidden, attended.to(self.backbone.dtype))

    def nodes(self, q: Tensor, runs: Sequence[KVRun], total: int) -> list[Node]:
        return attend(q, runs, total)

    def captured(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor] | None:
        return None
