"""Our estimators against tabicl 2.2.0's own: the same table, checkpoint, parameters and seed, only the import changed."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from mixed import TABLES, table
from tabicl import TabICLClassifier, TabICLRegressor

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]
# The contract's number for float32: both sides round in another order (blocks of keys, members' order), so bits can't be asked.
TOLERANCE = 5e-5
WEIGHTS = {name: "mini" if place % 4 == 1 else "small" for place, name in enumerate(TABLES)}
ALPHAS = [0.95, 0.001, 0.3]


def pair(task: str, name: str, files: dict[tuple[str, str], str], pool: LocalPool, **more: Any) -> tuple[Any, Any, Any]:
    """(upstream's, ours, query rows), fitted on the same."""
    X, labels, numbers, queries = table(name)
    y = labels if task == "classification" else numbers
    same = {"n_estimators": 2, "model_path": files[WEIGHTS[name], task], "random_state": 5, **more}
    peer, mine = {"classification": (TabICLClassifier, TabGRPCClassifier), "regression": (TabICLRegressor, TabGRPCRegressor)}[task]
    return peer(device="cpu", **same).fit(X, y), mine(pool=pool, **same).fit(X, y), queries


@pytest.mark.parametrize("name", TABLES)
def test_probabilities_are_upstreams(name: str, pool: LocalPool, upstream_files: dict[tuple[str, str], str]) -> None:
    """Catches a column read as another kind, members of another seed, a class order that isn't the labels', a wrong average."""
    peer, mine, queries = pair("classification", name, upstream_files, pool)
    want, got = peer.predict_proba(queries), mine.predict_proba(queries)
    assert got.shape == want.shape
    assert np.ptp(want, axis=0).max() > 1e-3, "probabilities that are all alike would show nothing"
    assert np.abs(got - want).max() < TOLERANCE
    assert np.abs(got.sum(axis=1) - 1).max() < 1e-6
    assert peer.classes_.tolist() == mine.classes_.tolist()
    sure = np.sort(want, axis=1)[:, -1] - np.sort(want, axis=1)[:, -2] > 2 * TOLERANCE
    assert (mine.predict(queries) == peer.predict(queries))[sure].all()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if place % 2 else name for place, name in enumerate(TABLES)])
def test_regression_outputs_are_upstreams(name: str, pool: LocalPool, upstream_files: dict[tuple[str, str], str]) -> None:
    """All of upstream's outputs at once; tolerance of the target's spread, the scale in which the network computes."""
    peer, mine, queries = pair("regression", name, upstream_files, pool)
    types = ["mean", "median", "quantiles", "raw_quantiles"]
    want, got = (each.predict(queries, [*types, "variance"], ALPHAS) for each in (peer, mine))
    scale = float(peer.y_scaler_.scale_[0])
    for each in types:
        assert got[each].shape == want[each].shape, each
        largest = max(scale, np.abs(want[each] - want["mean"].mean()).max())  # raw quantiles reach further than the target does
        assert np.abs(got[each] - want[each]).max() < TOLERANCE * largest, each
    assert np.ptp(want["mean"]) > 1e-3 * scale, "answers that are all alike would show nothing"
    # upstream's variance, put back into the unit that it lost: it went through the mean's y * scale + mean
    lost = (want["variance"] - peer.y_scaler_.mean_[0]) / scale
    assert np.abs(got["variance"] - lost * scale**2).max() < TOLERANCE * scale**2 * max(1.0, lost.max())


@pytest.mark.parametrize(
    "more",
    [
        {"norm_methods": "quantile"},
        {"norm_methods": ["robust", "quantile_rtdl", "none"], "n_estimators": 5},
        {"feat_shuffle_method": "random", "class_shuffle_method": "latin"},
        {"feat_shuffle_method": "none", "class_shuffle_method": "none", "n_estimators": 1},
        {"outlier_threshold": 1.0, "softmax_temperature": 0.4},
        {"average_logits": False, "n_estimators": 4, "softmax_temperature": 0.2},
        {"kv_cache": True, "batch_size": 1},
    ],
    ids=lambda more: " ".join(f"{k}={v}" for k, v in more.items()),
)
def test_every_parameter_means_what_it_means_upstream(more: Any, pool: LocalPool, upstream_files: dict[tuple[str, str], str]) -> None:
    peer, mine, queries = pair("classification", "text and numbers", upstream_files, pool, **more)
    assert np.abs(mine.predict_proba(queries) - peer.predict_proba(queries)).max() < TOLERANCE
    if "kv_cache" not in more:  # a parameter without effect would pass otherwise
        control = {**more, "average_logits": True} if "average_logits" in more else {}
        plain = TabGRPCClassifier(pool=pool, random_state=5, **{"n_estimators": 2, "model_path": mine.model_path, **control})
        X, labels, _, _ = table("text and numbers")
        assert np.abs(mine.predict_proba(queries) - plain.fit(X, labels).predict_proba(queries)).max() > 1e-4


def test_logits_and_row_embeddings_are_the_networks(pool: LocalPool, upstream_files: dict[tuple[str, str], str]) -> None:
    """One member, so that nothing is averaged: its row vectors before they meet other rows, and its logits."""
    import torch

    peer, mine, queries = pair("classification", "numbers", upstream_files, pool, n_estimators=1, norm_methods="none")
    data = peer.ensemble_generator_.transform(peer.X_encoder_.transform(queries), mode="both")
    (xs, ys), shuffles = next(iter(data.values())), next(iter(peer.ensemble_generator_.class_shuffles_.values()))
    x, labels = torch.from_numpy(xs).float(), torch.from_numpy(ys).float()
    with torch.no_grad():
        config = peer.inference_config_
        logits = peer.model_(X=x, y_train=labels, return_logits=True, inference_config=config)[0].numpy()[:, shuffles[0]]
        rows = peer.model_.row_interactor(
            peer.model_.col_embedder(x, y_train=labels, mgr_config=config.COL_CONFIG), mgr_config=config.ROW_CONFIG
        )[0, labels.shape[1] :].numpy()
    assert np.abs(mine.predict_logits(queries) - logits).max() < TOLERANCE * np.abs(logits).max()
    got = mine.transform(queries)
    assert got.shape == rows.shape
    assert np.abs(got - rows).max() < TOLERANCE * np.abs(rows).max()


@pytest.mark.parametrize(("mine", "peer"), [(TabGRPCClassifier, TabICLClassifier), (TabGRPCRegressor, TabICLRegressor)])
def test_the_constructor_is_upstreams(mine: Any, peer: Any) -> None:
    """Names, order and defaults; ``pool`` is the only one more. What has no effect is told in one warning."""
    ours, theirs = (inspect.signature(each).parameters for each in (mine, peer))
    assert [*theirs, "pool"] == list(ours)
    assert {name: each.default for name, each in theirs.items()} == {name: ours[name].default for name in theirs}
    from tabgrpc.client.parameters import fit_options

    unused = {"batch_size": None, "n_jobs": 2, "use_amp": False, "offload_mode": "cpu", "use_fa3": True, "disk_offload_dir": "d"}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit_options(mine(**unused).get_params(), target="y", classification=mine is TabGRPCClassifier)
        fit_options(mine().get_params(), target="y", classification=mine is TabGRPCClassifier)
    assert len(told) == 1
    assert all(name in str(told[0].message) for name in unused)
