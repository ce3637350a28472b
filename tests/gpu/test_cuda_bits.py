"""One GPU, in this process: the bits of a row don't depend on its batch, the plan, graphs or the order in which blocks come."""

from __future__ import annotations

import pytest
import torch
from tabgrpc_workers import fit, query
from tabgrpc_workers.device import FIT, PREDICT, Device
from tabgrpc_workers.shard import ModelShards, Shard
from torch import Tensor

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import Run
from tabgrpc.core.reduction import complete

DTYPES = ["float16", "bfloat16", "float32"]
ROWS, FEATURES, QUERIES = 20_000, 37, 200  # three blocks, the last one short; an odd number of tokens


def table(rows: int = ROWS, features: int = FEATURES) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows, features, generator=generator)
    y = ((x[:, 0] + x[:, 1] * x[:, 2]) > 0).float() + (x[:, 3] > 1).float()
    return x, y, torch.randn(QUERIES, features, generator=generator)


def built(weights: tuple, dtype: str, store: bool = False, graphs: bool = True) -> ModelShards:
    from tabgrpc_workers.cuda.backbone import DTYPES as KNOWN
    from tabgrpc_workers.cuda.backbone import CudaTabICL
    from tabgrpc_workers.cuda.recipe import CudaRecipe

    backbone = CudaTabICL(*weights, KNOWN[dtype], "cuda")
    geometry = Geometry.of(ROWS, FEATURES, "cuda")
    return ModelShards("m", 1, backbone, geometry, FEATURES, store, {}, CudaRecipe(backbone, graphs))


def fitted(model: ModelShards, device: Device, x: Tensor, y: Tensor) -> Shard:
    shard = model.shards[0] = Shard(0, (Run(0, model.geometry.blocks),))
    fit.open_shard(model, shard, {0: x}, {0: y})
    device.run(fit.member(model, shard, device, lambda _: None), FIT)
    return shard


def predicted(model: ModelShards, shard: Shard, device: Device, rows: Tensor, batch: int) -> Tensor:
    rows = rows.to(model.backbone.dtype)
    return torch.cat([device.run(query.tile(model, shard, part, Head()), PREDICT) for part in rows.split(batch)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_batch_size_any_plan_graphs_or_not(weights: tuple, device: Device, dtype: str) -> None:
    """A kernel that picks its tile by the batch, or a stored cell that isn't the recomputed one, changes bits here."""
    x, y, rows = table()
    model = built(weights, dtype)
    shard = fitted(model, device, x, y)
    whole = predicted(model, shard, device, rows, QUERIES)
    assert torch.isfinite(whole).all()
    for batch in (1, 2, 3, 8, 31, 64, 100, 130):
        assert torch.equal(predicted(model, shard, device, rows, batch), whole), f"batches of {batch}"
    stored = built(weights, dtype, store=True, graphs=False)
    assert torch.equal(predicted(stored, fitted(stored, device, x, y), device, rows, 64), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_stage_by_stage_over_two_owners(weights: tuple, device: Device, dtype: str) -> None:
    """The exchange's fit: partial nodes, foreign K/V, and queries' subtrees reduced elsewhere."""
    x, y, rows = table()
    alone = built(weights, dtype)
    expected = predicted(alone, fitted(alone, device, x, y), device, rows, 64)
    model = built(weights, dtype)
    blocks = model.geometry.blocks
    owners = []
    for run in (Run(0, 1), Run(1, blocks)):
        shard = Shard(0, (run,))
        part = slice(run.start * model.geometry.block, min(run.stop * model.geometry.block, ROWS))
        fit.open_shard(model, shard, {run.start: x[part]}, {run.start: y[part]})
        owners.append(shard)
    for block in range(model.backbone.shape.column_blocks):
        nodes = [n for s in owners for n in device.run(fit.column(model, s, device, block, lambda _: None), FIT)]
        root = complete(reversed(nodes), blocks)
        for shard in owners:
            fit.column_end(model, shard, block, root)
    for shard in owners:
        device.run(fit.rows(model, shard, device, lambda _: None), FIT)
    for layer in range(model.backbone.shape.icl_layers - 1):
        foreign = [owners[1].kv[layer], owners[0].kv[layer]]
        for shard, other in zip(owners, foreign, strict=True):
            device.run(fit.icl(model, shard, device, layer, other, lambda _: None), FIT)

    def stepwise(tile: Tensor) -> Tensor:
        with torch.inference_mode():
            hidden = device.run(query.vectors(model, owners[0], tile.to("cuda", model.backbone.dtype)), PREDICT)
            for layer in range(model.backbone.shape.icl_layers):
                q = model.backbone.icl_queries(layer, hidden, model.geometry.rows)
                nodes = [n for s in owners for n in query.attention(model, s, layer, q)]
                hidden = query.end(model, layer, hidden, complete(nodes, blocks))
            return model.backbone.head(hidden, Head())

    assert torch.equal(torch.cat([stepwise(tile) for tile in rows.split(64)]), expected)


def test_the_local_row_count_would_be_wrong(weights: tuple, device: Device) -> None:
    """Negative control: scalable softmax with an owner's own count (X1) is another answer, so equality above means something."""
    x, y, rows = table()
    model = built(weights, "float32", graphs=False)
    shard = fitted(model, device, x, y)
    right = predicted(model, shard, device, rows, 64)
    local = Geometry(**{**model.geometry.as_dict(), "rows": ROWS // 2})
    recipe_query = model.recipe.query
    model.recipe.query = lambda layer, hidden, runs, geometry: recipe_query(layer, hidden, runs, local)  # type: ignore[method-assign]
    assert not torch.equal(predicted(model, shard, device, rows, 64), right)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 5e-5), ("float16", None), ("bfloat16", None)])
def test_against_upstream(weights: tuple, device: Device, dtype: str, most: float | None) -> None:
    """float32 to 5e-5 of the outputs' scale; in half at most 1.25 times as far from upstream's float32 as upstream's own half is.

    Upstream's half is float16 by autocast; bfloat16 has 8 times fewer steps, so it may be 8 times as far.
    """
    from tabgrpc.backbones.upstream import Upstream

    x, y, rows = table()
    peer = Upstream(*weights, "cuda")

    def upstream(amp: bool) -> Tensor:
        fitting, asking = peer.stages(x.cuda(), y.cuda(), rows.cuda(), amp)
        fitting()
        return asking()

    truth, half = upstream(False), upstream(True)
    model = built(weights, dtype)
    found = predicted(model, fitted(model, device, x, y), device, rows, 64)[:, : truth.shape[1]]
    if most is not None:
        assert float((found - truth).abs().max() / truth.abs().max()) < most
    else:
        factor = 1.25 * (8 if dtype == "bfloat16" else 1)
        assert float((found - truth).norm()) <= factor * float((half - truth).norm())
