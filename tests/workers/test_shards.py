"""Shards in one process: the bits don't follow owners, plans, threads, repetition or the query's neighbours."""

from __future__ import annotations

import pytest
import torch
from inprocess import LEVELS, Pool, backbone, identical, no_progress, table
from tabgrpc_workers import fit

from tabgrpc.core.ownership import OwnershipMap
from tabgrpc.core.reduction import Partial
from tabgrpc.wire.errors import NotReady

SIZES = [(1, 1), (7, 3), (300, 7), (1_000, 5)]


@pytest.mark.parametrize(
    ("kind", "rows", "features"), [("classifier", *size) for size in SIZES] + [("regressor", *size) for size in SIZES[:3]]
)
def test_any_number_of_owners_gives_the_same_bits(kind: str, rows: int, features: int) -> None:
    """Everything that is held and everything that is answered. Catches a sum in the order of shards, or a shape that follows them."""
    net = backbone(kind)
    x, y, asked = table(kind, rows, features)
    levels = LEVELS if kind == "regressor" else ()
    with Pool(net, x, y).fit() as alone:
        held, answered = alone.held(), alone.predict(asked, levels)
        for owners in (2, 3, 5):
            with Pool(net, x, y, owners).fit() as pool:
                assert identical(pool.held(), held)
                assert identical([pool.predict(asked, levels)], [answered])


def test_owners_of_scattered_chunks_give_the_same_bits() -> None:
    """After repairs an owner may hold several runs, none next to another."""
    net = backbone("classifier")
    x, y, asked = table("classifier", 1_000, 5)
    with Pool(net, x, y).fit() as alone:
        chunks = alone.geometry.chunks
        scattered = OwnershipMap(1, (tuple("01201021"[at % 8] for at in range(chunks)),))
        with Pool(net, x, y, 3, ownership=scattered).fit() as pool:
            assert identical(pool.held(), alone.held())
            assert identical([pool.predict(asked)], [alone.predict(asked)])


@pytest.mark.parametrize(("store", "threads"), [(False, 1), (True, 3), (False, 2)])
def test_plans_and_threads_change_no_bit(store: bool, threads: int) -> None:
    """Recomputed cells equal stored ones; quanta side by side equal quanta in turn."""
    net = backbone("regressor")
    x, y, asked = table("regressor", 400, 9)
    with Pool(net, x, y).fit() as plain, Pool(net, x, y, store=store, threads=threads).fit() as other:
        assert identical(other.held(), plain.held())
        assert identical([other.predict(asked, LEVELS)], [plain.predict(asked, LEVELS)])


def test_a_query_row_does_not_see_its_tile() -> None:
    """At another place, among other rows: the same bits."""
    net = backbone("classifier")
    x, y, asked = table("classifier", 300, 7)
    with Pool(net, x, y).fit() as pool:
        whole = pool.predict(asked)
        order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
        assert identical([pool.predict(asked[order])], [whole[order]])
        for row in (0, 17, 63):
            others = torch.full_like(asked, 1e3)
            others[row] = asked[row]
            assert identical([pool.predict(others)[row]], [whole[row]])


def test_stages_done_twice_give_the_same() -> None:
    """A call whose answer was lost is made again. Catches a stage that applies itself to its own result."""
    net = backbone("classifier")
    x, y, asked = table("classifier", 300, 7)
    with Pool(net, x, y, 2).fit() as once, Pool(net, x, y, 2) as twice:
        for block in range(net.shape.column_blocks):
            twice.everywhere(lambda _, model, shard, device, block=block: fit.column(model, shard, device, block, no_progress))
            twice.column(block)
        twice.rows()
        twice.rows()
        for layer in range(net.shape.icl_layers - 1):
            held = [model.shards[0].kv[layer] for model in twice.models]
            twice.icl(layer)
            if layer + 2 < net.shape.icl_layers:
                before = [[t.clone() for run in model.shards[0].kv[layer + 1] for t in (run.k, run.v)] for model in twice.models]
                assert held
                twice.icl(layer)
                after = [[t for run in model.shards[0].kv[layer + 1] for t in (run.k, run.v)] for model in twice.models]
                assert all(identical(a, b) for a, b in zip(after, before, strict=True))
        assert identical(twice.held(), once.held())
        assert identical([twice.predict(asked)], [once.predict(asked)])


def test_stages_out_of_order_are_refused() -> None:
    """Never a number from a stage whose input isn't there."""
    net = backbone("classifier")
    x, y, _ = table("classifier", 300, 7)
    with Pool(net, x, y, 2) as pool:
        with pytest.raises(NotReady):
            pool.rows()
        with pytest.raises(NotReady):
            pool.everywhere(lambda _, model, shard, device: fit.column(model, shard, device, 1, no_progress))
        with pytest.raises(NotReady):
            pool.everywhere(lambda _, model, shard, device: fit.icl(model, shard, device, 0, [], no_progress))
        with pytest.raises(NotReady, match="not fitted"):
            pool.models[0].shard(0, fitted=True)
        with pytest.raises(NotReady):
            pool.models[0].shard(1)


def test_B07_an_owner_of_nothing_is_neutral() -> None:
    """One row on five workers: four own nothing and aren't asked; all-empty attention is an error, not NaN."""
    x, y, _ = table("classifier", 1, 3)
    with Pool(backbone("classifier"), x, y, 5) as pool:
        assert len(pool.models) == 1
        empty = Partial(torch.zeros(3, 4, 16, 8), torch.zeros(3, 4, 16), torch.full((3, 4, 16), -(2.0**100)))
        with pytest.raises(ValueError, match="no keys"):
            fit.column_end(pool.models[0], pool.models[0].shards[0], 0, empty)


def test_B08_extreme_logits_are_an_error_and_never_nan() -> None:
    """Half-precision scores overflow at this scale; float32 partials do not, and what is not finite is refused by the service."""
    from tabgrpc_workers.arrays import checked
    from tabgrpc_workers.kernels import partials

    q = torch.randn(1, 2, 16, 8)
    k, v = torch.randn(1, 2, 40, 8) * 1e5, torch.randn(1, 2, 40, 8)
    part = partials(q, k, v)
    assert all(bool(torch.isfinite(t).all()) for t in (part.acc, part.sum, part.peak, part.divide()))
    with pytest.raises(NotReady, match="not finite"):
        checked(torch.tensor([[0.1, float("nan")]]), 3)


def test_a_dropped_shard_goes_at_once(monkeypatch):
    """A device that keeps captured runs with a shard. Catches a run that keeps the shard: its K/V would outlive it until a collection."""
    import gc
    import weakref

    from tabgrpc_workers.recipes import CpuRecipe

    monkeypatch.setattr(CpuRecipe, "captured", lambda self, function: function)
    net = backbone("classifier")
    x, y, asked = table("classifier", 300, 3)
    gc.disable()
    try:
        with Pool(net, x, y) as pool:
            pool.fit()
            captured = pool.predict(asked)
            model = pool.models[0]
            assert model.shards[0].captured
            held = weakref.ref(model.shards.pop(0))
            assert held() is None
    finally:
        gc.enable()
    monkeypatch.undo()
    with Pool(net, x, y).fit() as plain:
        assert torch.equal(plain.predict(asked), captured)
