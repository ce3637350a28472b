"""The reduction: the bits depend on the number of blocks alone, and the value is the softmax's. Cases B07 and B08."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tabgrpc.core.reduction import LOG2E, Node, Partial, ReductionError, Tree, complete, empty_peak, fold, from_attention, merge, stack

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, of -inf - -inf, before it is replaced

DTYPES = [np.float32, np.float64]
# LOG2E rounded, a sum of at most 2**6 float additions along the tree, exp2's own last bit: some dozens of roundings of size 2 ** -24
# (2 ** -53) each, and lse is given with an absolute rounding of |lse| < 64 times that.
TOLERANCE = {np.float32: 64 * 2.0**-23, np.float64: 64 * 2.0**-52}


def same(left: Partial, right: Partial) -> bool:
    """Bit for bit, the sign of a zero included."""
    parts = ((np.asarray(getattr(left, name)), np.asarray(getattr(right, name))) for name in ("acc", "sum", "peak"))
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in parts)


def as_torch(partial: Partial) -> Partial:
    return Partial(*(torch.from_numpy(np.array(getattr(partial, name))) for name in ("acc", "sum", "peak")))


def random_blocks(seed: int, blocks: int, dtype: type, spread: float = 20.0) -> Partial:
    """Partials (blocks, 2 heads, 3 queries[, 4]) such as kernels give, some of them over no keys."""
    rng = np.random.default_rng(seed)
    lse = rng.normal(scale=spread, size=(blocks, 2, 3)).astype(dtype)
    lse[rng.random(blocks) < 0.1] = -np.inf
    return from_attention(rng.normal(size=(blocks, 2, 3, 4)).astype(dtype), lse)


@st.composite
def assignments(draw):
    """(blocks, owner of each block, order of arrival's seed): any ownership by runs or scattered, 1 to 64 owners."""
    blocks = draw(st.integers(1, 70))
    owners = draw(st.integers(1, 64))
    if draw(st.booleans()):
        cuts = sorted(draw(st.lists(st.integers(0, blocks), min_size=owners - 1, max_size=owners - 1)))
        edges = [0, *cuts, blocks]
        return blocks, [o for o, (a, b) in enumerate(itertools.pairwise(edges)) for _ in range(b - a)], draw(st.integers(0, 2**32 - 1))
    return blocks, draw(st.lists(st.integers(0, owners - 1), min_size=blocks, max_size=blocks)), draw(st.integers(0, 2**32 - 1))


def owned_nodes(blocks: Partial, owner: list[int], who: int, total: int) -> list[Node]:
    """What one owner sends: its runs folded, and merged further in a tree of its own."""
    tree = Tree(total)
    for mine, group in itertools.groupby(range(total), key=lambda block: owner[block] == who):
        run = list(group)
        if mine:
            for node in fold(blocks[run[0] : run[-1] + 1], run[0], total):
                tree.add(node)
    return tree.nodes()


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=assignments())
def test_any_owners_and_any_arrival_give_the_same_bits(dtype, case):
    """Catches a merge in arrival order, an owner's own order, and any rounding that numpy and torch do differently."""
    total, owner, seed = case
    blocks = random_blocks(seed, total, dtype)
    wanted = complete((Node(0, at, blocks[at]) for at in range(total)), total)
    nodes = [node for who in sorted(set(owner)) for node in owned_nodes(blocks, owner, who, total)]
    np.random.default_rng(seed).shuffle(nodes)
    assert same(complete(nodes, total), wanted)
    in_torch = as_torch(blocks)
    nodes = [node for who in sorted(set(owner)) for node in owned_nodes(in_torch, owner, who, total)]
    np.random.default_rng(seed + 1).shuffle(nodes)
    whole = complete(nodes, total)
    assert same(whole, wanted)
    if (wanted.sum != 0).all():
        assert whole.divide().numpy().tobytes() == wanted.divide().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@given(total=st.integers(1, 70), data=st.data())
def test_fold_is_the_tree_node_by_node(dtype, total, data):
    """Catches a fold that stops early, goes too far, or merges other pairs than the tree."""
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    blocks = random_blocks(total, total, dtype)
    tree = Tree(total)
    for at in range(start, stop):
        tree.add(Node(0, at, blocks[at]))
    folded = fold(blocks[start:stop], start, total)
    assert [(n.level, n.index) for n in folded] == [(n.level, n.index) for n in tree.nodes()]
    assert all(same(a.partial, b.partial) for a, b in zip(folded, tree.nodes(), strict=True))
    covered = [b for n in folded for b in range(n.index << n.level, min((n.index + 1) << n.level, total))]
    assert covered == list(range(start, stop))


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (0, 0), (3, 2), (4, 1)])
def test_fold_refuses_a_run_outside_of_the_tree(start, count):
    with pytest.raises(ReductionError, match="not a run"):
        fold(random_blocks(0, max(count, 1), np.float32)[:count], start, 4)


@given(case=assignments(), data=st.data())
def test_a_missing_or_a_second_subtree_is_an_error(case, data):
    """Catches a partial that is lost or counted twice in silence, whichever it is and whenever it comes."""
    total, owner, seed = case
    blocks = random_blocks(seed, total, np.float32)
    nodes = [node for who in sorted(set(owner)) for node in owned_nodes(blocks, owner, who, total)]
    chosen = data.draw(st.sampled_from(nodes))
    with pytest.raises(ReductionError):
        complete([node for node in nodes if node is not chosen], total)
    again = [*nodes, chosen]
    np.random.default_rng(seed).shuffle(again)
    with pytest.raises(ReductionError):
        complete(again, total)


@pytest.mark.parametrize("at", [(0, 4), (0, -1), (1, 2), (2, 1), (3, 1), (-1, 0)])
def test_a_subtree_of_another_tree_is_an_error(at):
    """Level and index come from another process. Catches a node beyond the last block that passes for the root."""
    with pytest.raises(ReductionError, match="no subtree"):
        complete([Node(*at, random_blocks(0, 1, np.float32)[0])], 4)


def test_a_tree_needs_a_block():
    with pytest.raises(ReductionError, match="at least one block"):
        Tree(0)


def attention(scores: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Plain softmax attention in float64, of scores (q, n) and values (n, d): (out, lse), (0, -inf) without keys."""
    if scores.shape[1] == 0:
        return np.zeros((scores.shape[0], values.shape[1])), np.full(scores.shape[0], -np.inf)
    peak = scores.max(1)
    weights = np.exp(scores - peak[:, None])
    return weights @ values / weights.sum(1)[:, None], np.log(weights.sum(1)) + peak


@pytest.mark.parametrize("dtype", DTYPES)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=64).filter(sum), seed=st.integers(0, 2**32 - 1))
def test_the_value_is_the_softmax(dtype, sizes, seed):
    """Catches a wrong formula: a lost scale, a wrong base, an average of shards' outputs (off by 0.35 in case B07)."""
    rng = np.random.default_rng(seed)
    scores, values = rng.normal(scale=5, size=(3, sum(sizes))), rng.normal(size=(sum(sizes), 4))
    edges = np.cumsum([0, *sizes])
    parts = [attention(scores[:, a:b], values[a:b]) for a, b in itertools.pairwise(edges)]
    blocks = stack([from_attention(out.astype(dtype)[None], lse.astype(dtype)[None]) for out, lse in parts])
    got = complete((Node(0, at, blocks[at]) for at in range(len(sizes))), len(sizes)).divide()
    assert got.dtype == dtype
    assert abs(got - attention(scores, values)[0]).max() <= TOLERANCE[dtype] * abs(values).max()


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [[0, 0, 10], [10, 0], [0, 10], [5, 0, 5], [1] * 10, [10] + [0] * 7, [0] * 7 + [1]])
def test_b07_no_keys_are_neutral_anywhere(library, dtype, sizes):
    """B07: one row on eight workers. Catches NaN from a merge of two empty sides (-inf - -inf), and an empty block that moves a bit."""
    rng = np.random.default_rng(0)
    scores, values = rng.normal(size=(3, sum(sizes))), rng.normal(size=(sum(sizes), 4))
    edges = np.cumsum([0, *sizes])
    pairs = [attention(scores[:, a:b], values[a:b]) for a, b in itertools.pairwise(edges)]
    parts = [from_attention(out.astype(dtype)[None], lse.astype(dtype)[None])[0] for out, lse in pairs]
    parts = [as_torch(p) if library == "torch" else p for p in parts]
    root = complete((Node(0, at, p) for at, p in enumerate(parts)), len(parts))
    got = np.asarray(root.divide())
    assert np.isfinite(got).all()
    assert abs(got - attention(scores, values)[0]).max() <= TOLERANCE[dtype] * abs(values).max()
    real = [p for p, size in zip(parts, sizes, strict=True) if size]
    if len(real) == 1:
        assert same(root, real[0])
    for p in parts:
        empty = parts[sizes.index(0)] if 0 in sizes else None
        if empty is not None:
            assert same(merge(p, empty), p)
            assert same(merge(empty, p), p)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_b07_no_keys_at_all_are_an_error(library, blocks):
    empty = from_attention(np.full((blocks, 2, 3), np.nan, np.float32), np.full((blocks, 2), -np.inf, np.float32))
    empty = as_torch(empty) if library == "torch" else empty
    with pytest.raises(ReductionError, match="no keys"):
        complete((Node(0, at, empty[at]) for at in range(blocks)), blocks).divide()


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
@given(
    values=st.lists(
        st.one_of(
            st.sampled_from([1e30, -1e30, -np.inf, 0.0, -0.0, 1e-40, 88.7, -87.4, 709.0, -745.0, -1e38]),
            st.floats(-(2.0**100), 2.0**100, width=32),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_extreme_lse_give_finite_numbers_and_the_largest_wins(library, dtype, values):
    """Catches overflow of exp, a peak below the empty one's, NaN from a difference of huge peaks; B08's scale and beyond."""
    lse = np.array(values, dtype)
    out = np.arange(1, len(lse) + 1, dtype=dtype)
    if np.isinf(lse).all():
        return
    if library == "torch":
        blocks = from_attention(torch.from_numpy(out)[:, None, None], torch.from_numpy(lse)[:, None])
    else:
        blocks = from_attention(out[:, None, None], lse[:, None])
    got = float(np.asarray(complete((Node(0, at, blocks[at]) for at in range(len(lse))), len(lse)).divide())[0, 0])
    weights = np.exp(lse.astype(np.float64) - lse.astype(np.float64).max())
    # beyond the exponent of ten or so lse itself holds no fraction, and weights of one, two or e are equally right
    scale = float(abs(lse[np.isfinite(lse)]).max())
    if scale < 100:
        assert got == pytest.approx((weights * out).sum() / weights.sum(), rel=100 * TOLERANCE[dtype])
    else:
        near = lse >= lse.max() - 2 * scale * np.finfo(dtype).eps - 120
        assert out[near].min() * (1 - 1e-5) <= got <= out[near].max() * (1 + 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@given(difference=st.integers(0, 1200), acc=st.floats(-1, 1, width=32), seed=st.integers(0, 99))
def test_scales_down_to_nothing_are_the_same_everywhere(dtype, difference, acc, seed):
    """Peaks that differ by the whole range of exponents: denormal products and scales of 0. Catches a library's pow, or its flush to 0."""
    left = Partial(np.array([1.0], dtype), np.array(1.0, dtype), np.array(seed, dtype))
    right = Partial(np.array([acc], dtype), np.array(0.75, dtype), np.array(seed - difference, dtype))
    normal = difference <= (126 if dtype is np.float32 else 1022)
    got = merge(left, right)
    exact = 0.75 * 2.0**-difference if normal else 0.0
    assert got.sum == dtype(1 + exact)
    assert same(merge(as_torch(left), as_torch(right)), got)
    assert same(merge(right, left), got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 4, 44), (2, 1, 1), (5, 2, 63), (4, 3, 64), (7, 1, 65), (1, 8, 130), (64, 4, 16)])
@pytest.mark.parametrize("layout", ["plain", "transposed", "every other"])
def test_a_partial_does_not_depend_on_how_many_blocks_are_in_the_call(dtype, shape, layout):
    """Torch's exp2 treats whole vectors and the rest by different code. Catches a last bit that depends on where an element lies."""
    generator = torch.Generator().manual_seed(sum(shape))
    blocks, heads, rows = shape
    lse = torch.randn(blocks, heads, rows, generator=generator, dtype=dtype) * 7
    if layout == "transposed":  # as the kernel for the CPU gives it
        lse = lse.transpose(1, 2).contiguous().transpose(1, 2)
    elif layout == "every other":
        lse = torch.stack([lse, lse], -1).flatten(-2)[..., ::2]
    out = torch.randn(blocks, heads, rows, 8, generator=generator, dtype=dtype)
    together = from_attention(out, lse)
    for at in range(blocks):
        assert same(from_attention(out[at : at + 1], lse[at : at + 1])[0], together[at])
        assert same(from_attention(out[at].contiguous(), lse[at].contiguous()), together[at])
        assert same(from_attention(out[at, :, -1:], lse[at, :, -1:])[:, 0], together[at, :, -1])


def test_a_partials_parts_are_what_the_docstring_says():
    """peak an integer, sum in (1/2, 1], acc = out * sum; half precision becomes float32."""
    lse = torch.linspace(-50, 50, 1001).half()
    part = from_attention(torch.ones(1001, 2).half(), lse)
    assert part.acc.dtype == part.sum.dtype == part.peak.dtype == torch.float32
    assert (part.peak == part.peak.round()).all()
    assert (part.sum > 0.5).all()
    assert (part.sum <= 1).all()
    assert (part.acc == part.sum[:, None]).all()
    # peak - 1 < lse * log2 e <= peak; float32 rounds a product of at most 73 by 2 ** -18
    assert ((part.peak - lse.float() * LOG2E) < 1 + 2.0**-18).all()
    empty = from_attention(torch.ones(1, 2), torch.tensor([-torch.inf]))
    assert empty.peak == empty_peak(torch.float32) == np.finfo(np.float32).min
    assert empty_peak(np.dtype("float64")) == np.finfo(np.float64).min


@settings(max_examples=20)
@given(bad=st.sampled_from([np.nan, np.inf]), at=st.integers(0, 4))
def test_what_is_not_finite_stays_visible(bad, at):
    """B08: a NaN or infinite score must reach the check of the outputs. Catches a merge that turns it into a plausible number."""
    lse = np.zeros(5, np.float32)
    lse[at] = bad
    with np.errstate(invalid="ignore"):
        blocks = from_attention(np.ones((5, 2), np.float32), lse)
        whole = complete((Node(0, i, blocks[i]) for i in range(5)), 5).divide()
        whole_torch = complete((Node(0, i, as_torch(blocks[i])) for i in range(5)), 5).divide()
    assert np.isnan(whole).all()
    assert whole_torch.isnan().all()
