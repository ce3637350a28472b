"""The stages that a backbone offers. The executor composes them and knows no network by name.

Shapes: R rows, G feature groups (g of them in a chunk), E cell width, I inducing points, D row width, H heads, d head width, O outputs. All
floating tensors are of the policy's dtype and on the backbone's device. A stage is a pure function: it keeps no state between calls, so
any number of threads may share a backbone. Row vectors (hidden) and targets are of ``hidden_dtype``: float32 where the policy is half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tabgrpc.core.head import Head
from tabgrpc.core.plan import BackboneShape


@dataclass(frozen=True, slots=True)
class InducingKV:
    """K and V of one column block's inducing points, each (G, H, I, d): all that a cell needs of the other rows."""

    k: Tensor
    v: Tensor


class Backbone(Protocol):
    """See the module's docstring for the letters."""

    shape: BackboneShape
    dtype: torch.dtype
    hidden_dtype: torch.dtype
    device: torch.device

    def groups(self, features: int) -> int:
        """Feature groups made of so many features."""

    def embed(self, x: Tensor, y: Tensor | None, groups: range) -> Tensor:
        """Cells before the first column block. x: (R, F), y: (R,) targets of context rows, None for queries; returns (g, R, E)."""

    def inducing_queries(self, block: int, rows: int) -> Tensor:
        """The inducing points' queries of a column block, (H, I, d), scaled for ``rows`` context rows in all."""

    def column_kv(self, block: int, cells: Tensor) -> tuple[Tensor, Tensor]:
        """K and V (g, H, R, d) of cells (g, R, E) for the inducing points of a block."""

    def column_end(self, block: int, attended: Tensor) -> InducingKV:
        """A block's inducing K/V from what the points attended to, (g, H, I, d)."""

    def column_apply(self, block: int, cells: Tensor, inducing: InducingKV) -> Tensor:
        """Cells (g, R, E) after a block, from those before it; ``inducing`` of the same g groups."""

    def rows(self, cells: Tensor) -> Tensor:
        """Row vectors (R, D) of cells (G, R, E)."""

    def with_target(self, rows: Tensor, y: Tensor) -> Tensor:
        """Context rows (R, D) with their targets (R,) added."""

    def icl_kv(self, layer: int, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """K and V, each (H, R, d), of hidden rows (R, D) at a layer."""

    def icl_queries(self, layer: int, hidden: Tensor, rows: int) -> Tensor:
        """Queries (H, R, d) of hidden rows (R, D) at a layer, scaled for ``rows`` context rows in all."""

    def icl_end(self, layer: int, hidden: Tensor, attended: Tensor) -> Tensor:
        """Hidden rows after a layer, from those before it and what they attended to, (H, R, d)."""

    def decode(self, hidden: Tensor) -> Tensor:
        """The decoder's own outputs (R, O) of hidden rows (R, D) after the last layer."""

    def outputs(self, out: Tensor, asked: Head) -> Tensor:
        """What ``head`` gives, from what ``decode`` gave."""

    def head(self, hidden: Tensor, asked: Head) -> Tensor:
        """Outputs (R, O) of hidden rows (R, D) after the last layer.

        A classifier's are logits of the classes that it can tell apart; a regressor's the mean, then what is ``asked``, of the
        standardised target. A member's outputs are aggregated with the others' by ``tabgrpc.backbones.aggregate``.
        """
