"""The recipe for CUDA: what ``tabgrpc_workers.recipes`` asks for, by this package's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.reduction import LOG2E, Node, Partial
from tabgrpc_workers.cuda import attention, joining
from tabgrpc_workers.cuda.backbone import CudaTabICL
from tabgrpc_workers.cuda.graphs import Graphs
from tabgrpc_workers.kernels import KVRun


class CudaRecipe:
    """Every kernel's program computes a fixed tile, so rows are free; context rows and query rows use tiles of their own sizes."""

    free_rows = True

    def __init__(self, backbone: CudaTabICL, graphs: bool = True) -> None:
        """graphs: whether predict runs as CUDA graphs; the bits are the same without."""
        self._backbone, self.graphs = backbone, graphs

    @property
    def backbone(self) -> CudaTabICL:
        return self._backbone

    def gather(self, block: int, q: Tensor, cells: Tensor) -> Partial:
        return self._backbone.column_partial(block, q, cells)

    def context(self, layer: int, hidden: Tensor, runs: Sequence[KVRun], geometry: Geometry) -> Tensor:
        q = self._backbone.icl_queries(layer, hidden, geometry.rows, few=False).transpose(0, 1)
        attended = joining.attend(q, runs, q.shape[-1] ** -0.5)
        return self._backbone.icl_end(layer, hidden, attended.transpose(0, 1), few=False)

    def query(self, layer: int, hidden: Tensor, runs: Sequence[KVRun], geometry: Geometry) -> Tensor:
        q = self._backbone.icl_queries(layer, hidden, geometry.rows)
        attended = attention.attend(q, runs, q.shape[-1] ** -0.5 * LOG2E, self._backbone.dtype)
        return self._backbone.icl_end(layer, hidden, attended.transpose(0, 1))

    def nodes(self, q: Tensor, runs: Sequence[KVRun], total: int) -> list[Node]:
        return attention.nodes(q, runs, total, q.shape[-1] ** -0.5 * LOG2E)

    def captured(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor] | None:
        return Graphs(function) if self.graphs else None
