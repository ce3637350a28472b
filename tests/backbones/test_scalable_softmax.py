"""X1: row shards and the scalable softmax, whose queries depend on the number of context rows, always the global one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tabgrpc_workers.kernels import partials
from tabicl._model.ssmax import QASSMaxMLP

from tabgrpc.core.reduction import Node, complete

KEYS, QUERIES, HEADS, WIDTH = 4096, 16, 2, 8


def case() -> tuple[QASSMaxMLP, torch.Tensor, torch.Tensor, torch.Tensor]:
    """As in the case, every weight random: as initialised, the query MLP's last layer is zero and hides half of the formula."""
    generator = torch.Generator().manual_seed(0)
    layer = QASSMaxMLP(HEADS, WIDTH, elementwise=True).requires_grad_(False)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    q, k, v = (torch.randn(1, HEADS, n, WIDTH, generator=generator) for n in (QUERIES, KEYS, KEYS))
    return layer, q, k, v


def sharded(layer: QASSMaxMLP, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shards: int, count: int | None) -> torch.Tensor:
    """Attention of shards, reduced along the tree; queries scaled by ``count``, or by each shard's own."""
    nodes = []
    for at, (keys, values) in enumerate(zip(k.chunk(shards, 2), v.chunk(shards, 2), strict=True)):
        scaled = layer(q, count or keys.shape[2])
        nodes.append(Node(0, at, partials(scaled, keys, values)))
    return complete(nodes, shards).divide()


@pytest.mark.parametrize("shards", [1, 2, 3, 8, 64])
def test_x1_the_global_count_is_right_at_any_number_of_shards(shards):
    """2e-5 of an output of size one: two float32 kernels that sum 4,096 keys in another order."""
    layer, q, k, v = case()
    want = F.scaled_dot_product_attention(layer(q, KEYS), k, v)
    assert float((sharded(layer, q, k, v, shards, KEYS) - want).abs().max()) < 2e-5


@pytest.mark.parametrize("shards", [2, 3, 8, 64])
def test_x1_a_shards_own_count_is_wrong(shards):
    """The negative control: should this one fail, the test above shows nothing."""
    layer, q, k, v = case()
    want = F.scaled_dot_product_attention(layer(q, KEYS), k, v)
    assert float((sharded(layer, q, k, v, shards, None) - want).abs().max()) > 1e-3
