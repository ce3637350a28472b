"""TabICL as stages against upstream TabICL 2.2.0 in one process, on the same prepared inputs and weights."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
import torch.nn.functional as F
from inprocess import LEVELS, Pool, backbone, table, weights
from tabicl._model.inference_config import InferenceConfig
from tabicl._model.layers import OneHotAndLinear
from tabicl._model.tabicl import TabICL

KINDS = ["classifier", "regressor"]
# Of the output's scale. float64: some thousands of roundings of 2 ** -53, of which few add up. float32: the contract's number; both sides
# round in another order (blocks of keys, no CLS columns), so no equality can be asked.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-5}
QUERIES = 64


@pytest.fixture
def one_hot_keeps_the_dtype(monkeypatch):
    """Upstream's one-hot encoder casts to float32, so that upstream can't run in float64 at all: the one line that is patched here."""

    def forward(self: OneHotAndLinear, src: torch.Tensor) -> torch.Tensor:
        return F.linear(F.one_hot(src.long(), self.num_classes).to(self.weight.dtype), self.weight, self.bias)

    monkeypatch.setattr(OneHotAndLinear, "forward", forward)
    # and what calls it casts the targets to float32 first, which holds every class and changes nothing


def without_amp() -> InferenceConfig:
    """Automatic mixed precision off: in it upstream's numbers have eight bits."""
    return InferenceConfig(*({"device": "cpu", "use_amp": False, "use_fa3": False, "verbose": False} for _ in range(3)))


@lru_cache
def network(kind: str, randomised: bool, dtype: torch.dtype) -> TabICL:
    config, state = weights(kind, randomised)
    net = TabICL(**config)
    net.load_state_dict(state)
    return net.to(dtype).eval()


def upstream(kind: str, randomised: bool, dtype: torch.dtype, x: torch.Tensor, y: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """(queries, O) in the order of our head: logits of all classes, or mean and quantiles."""
    net = network(kind, randomised, dtype)
    whole = torch.cat([x, queries])[None]
    with torch.inference_mode():
        if kind == "classifier":
            logits = net(whole, y[None], return_logits=True, inference_config=without_amp())[0]
            return logits[:, : int(y.max()) + 1]
        stats = net.predict_stats(whole, y[None], ["mean", "quantiles"], list(LEVELS), inference_config=without_amp())
        return torch.cat([stats["mean"][0][:, None], stats["quantiles"][0]], 1)


def ours(kind: str, randomised: bool, dtype: torch.dtype, x: torch.Tensor, y: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    with Pool(backbone(kind, randomised, dtype), x, y) as pool:
        return pool.fit().predict(queries, LEVELS if kind == "regressor" else ())


@pytest.mark.usefixtures("one_hot_keeps_the_dtype")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("kind", "randomised", "rows", "features"),
    [
        *((kind, True, *size) for kind in KINDS for size in ((1, 3), (7, 20), (300, 7))),
        *((kind, False, 300, 7) for kind in KINDS),
        ("classifier", True, 1000, 3),
        ("classifier", True, 7, 1),
        ("regressor", True, 300, 1),
    ],
)
def test_outputs_are_upstreams(kind, randomised, dtype, rows, features):
    """Catches any wrong projection, scale, mask, order of operations or count, in the smallest table and in one of several blocks."""
    x, y, queries = table(kind, rows, features, QUERIES, dtype)
    want = upstream(kind, randomised, dtype, x, y, queries)
    got = ours(kind, randomised, dtype, x, y, queries)[:, : want.shape[1]]
    assert got.dtype == dtype
    assert torch.isfinite(got).all()
    scale = float(want.abs().max())
    assert float(want.std(0).max()) > 1e-3 * scale, "outputs that are all alike would show nothing"
    assert float((got - want).abs().max()) <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize("kind", KINDS)
def test_a_clipped_value_that_is_upstreams_mark_is_treated_as_upstream_does(kind):
    """Preprocessing clips at -100, and upstream takes a group of features that are all -100.0 for a column to skip.

    In context and query rows, one feature (its group is that feature three times) and several.
    """
    for features in (1, 4):
        x, y, queries = table(kind, 130, features, QUERIES)
        x[5], queries[3], queries[-1] = -100.0, -100.0, -100.0
        want = upstream(kind, True, torch.float32, x, y, queries)
        got = ours(kind, True, torch.float32, x, y, queries)[:, : want.shape[1]]
        assert float((got - want).abs().max()) <= TOLERANCE[torch.float32] * float(want.abs().max())


def test_a_class_that_the_context_lacks_and_ten_classes():
    """Upstream cuts logits to the classes seen; ours are of all that the network knows, the first of them the same."""
    x, _, queries = table("classifier", 50, 3, QUERIES)
    y = torch.arange(50.0) % 10
    want = upstream("classifier", True, torch.float32, x, y, queries)
    got = ours("classifier", True, torch.float32, x, y, queries)
    assert got.shape == want.shape == (QUERIES, 10)
    assert float((got - want).abs().max()) <= TOLERANCE[torch.float32] * float(want.abs().max())


def test_without_levels_the_regressor_gives_its_mean():
    x, y, queries = table("regressor", 50, 3, QUERIES)
    with Pool(backbone("regressor"), x, y) as pool:
        pool.fit()
        mean = pool.predict(queries)
        assert mean.shape == (QUERIES, 1)
        assert (pool.predict(queries, LEVELS)[:, :1] == mean).all()
