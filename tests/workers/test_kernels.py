"""Attention over canonical blocks: a block's partial is the same whatever else is in the call."""

from __future__ import annotations

import pytest
import torch
from inprocess import identical
from tabgrpc_workers import kernels
from tabgrpc_workers.kernels import KVRun, attend, partials

from tabgrpc.core.reduction import Partial, complete

DTYPES = [torch.float32, torch.float64]


def draw(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def parts(partial: Partial) -> list[torch.Tensor]:
    return [partial.acc, partial.sum, partial.peak]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("blocks", "queries", "keys"), [(3, 16, 44), (5, 64, 128), (2, 44, 1), (7, 1, 128), (4, 128, 128)])
def test_a_blocks_partial_is_the_same_alone_and_in_a_batch(dtype, blocks, queries, keys):
    """Catches a kernel that divides its work by the batch, and a last bit that follows an element's place."""
    q, k, v = (draw(blocks, 4, n, 8, dtype=dtype, seed=n + at) for at, n in enumerate((queries, keys, keys)))
    together = partials(q, k, v)
    for at in range(blocks):
        alone = partials(q[at : at + 1], k[at : at + 1], v[at : at + 1])
        assert identical(parts(alone[0]), parts(together[at]))
    reversed_ = partials(q.flip(0), k.flip(0), v.flip(0))
    assert identical(parts(reversed_[blocks - 1]), parts(together[0]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layout_in_memory_changes_no_bit(dtype):
    """The owner has heads side by side in a row, the relay lays them out plainly, a query is broadcast over blocks."""
    k, v = (draw(3, 128, 4, 8, dtype=dtype, seed=at).transpose(1, 2) for at in (1, 2))
    q = draw(64, 4, 8, dtype=dtype, seed=3).transpose(0, 1)
    wanted = partials(q.expand(3, -1, -1, -1), k, v)
    plain = partials(q.contiguous().expand(3, -1, -1, -1).contiguous(), k.contiguous(), v.contiguous())
    assert identical(parts(plain), parts(wanted))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_row_does_not_see_the_others(dtype):
    """At any place of a tile of one size."""
    q, k, v = draw(1, 4, 64, 8, dtype=dtype), draw(1, 4, 128, 8, dtype=dtype, seed=1), draw(1, 4, 128, 8, dtype=dtype, seed=2)
    whole = partials(q, k, v)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    assert identical(parts(partials(q[:, :, order], k, v)), parts(whole[:, :, order]))
    others = torch.full_like(q, 30.0)
    others[:, :, 5] = q[:, :, 5]
    assert identical(parts(partials(others, k, v)[:, :, 5]), parts(whole[:, :, 5]))


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 128 * 9, 128 * 9 + 44])
def test_groups_of_blocks_are_folded_to_the_same_bits(rows, monkeypatch):
    """How many partials are alive at once is a matter of memory. Also the value: 1e-5 for two orders of summing at most 1,200 keys."""
    q, k, v = (draw(4, n, 8, dtype=torch.float32, seed=at) for at, n in enumerate((64, rows, rows)))
    blocks = -(-rows // 128)
    run = KVRun.of_rows(0, 128, k, v)
    roots = []
    for size in (1, 3 * q.numel() * 8, 32 << 20):
        monkeypatch.setattr(kernels, "_GROUP_BYTES", size)
        roots.append(complete(attend(q, [run], blocks), blocks))
    assert all(identical(parts(root), parts(roots[0])) for root in roots)
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert float((roots[0].divide() - want).abs().max()) < 1e-5
    assert run.nbytes == 2 * 4 * rows * 8 * 4
