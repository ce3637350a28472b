"""The ensemble's members against upstream's, to the bit, and each row for itself; A24, A25, A26, B01, B06, B10, X8."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from tabicl._sklearn.preprocessing import EnsembleGenerator, Shuffler, TransformToNumerical

from tabgrpc.data import Schema, UserError
from tabgrpc.data.fitting import fit_members
from tabgrpc.data.members import Members
from tabgrpc.data.shuffles import permutations
from tabgrpc.data.transforms import NORM_METHODS

ALL = list(NORM_METHODS)
pytestmark = [
    pytest.mark.filterwarnings("ignore::tabgrpc.data.DataWarning"),
    pytest.mark.filterwarnings("ignore:n_quantiles"),
]


def sizes(rng, n=90, features=7):
    """Numbers of several sizes, with ties, a constant and a skewed column."""
    X = rng.normal(size=(n, features)) * 10.0 ** rng.integers(-3, 4, features)
    X[:, 0] = np.round(X[:, 0])
    X[:, 1] = rng.integers(0, 3, n)
    X[:, 2] = 2.0
    X[:, 3] = np.exp(3 * rng.normal(size=n))
    return X


def same_as_upstream(members: Members, generator: EnsembleGenerator, X, y, later) -> None:
    test, train = generator.transform(later, mode="test"), generator.transform(None, mode="train")
    assert len(members) == sum(len(arrays[0]) for arrays in test.values())
    taken = dict.fromkeys(test, 0)
    for member, seen in members.transform_all(later):
        place = taken[member.norm_method]
        taken[member.norm_method] += 1
        assert (seen == test[member.norm_method][0][place]).all()
        assert (members.transform(later, member) == seen).all()
        context, targets = train[member.norm_method]
        assert (members.transform(X, member) == context[place]).all()
        if member.class_shuffle is not None:
            assert (members.train_targets(y, member) == targets[place]).all()


@pytest.mark.parametrize("seed", range(10))
def test_encoded_and_transformed_mixed_tables_are_upstreams_to_the_bit(seed):
    """No missing numbers here: their means differ in the last bit by the order of the sum (test_schema)."""
    rng = np.random.default_rng(seed)
    n, classes = int(rng.integers(20, 120)), int(rng.integers(2, 6))
    table = pd.DataFrame(sizes(rng, n), columns=list("abcdefg"))
    table.insert(2, "text", pd.Series(rng.choice(["u", "é", np.nan, "Z"], n), dtype=object).replace("nan", np.nan))
    table.insert(5, "kind", pd.Categorical(rng.integers(0, 5, n)))
    table["flag"] = pd.array(rng.random(n) > 0.3, dtype="boolean")
    y, later = np.arange(n) % classes, table.iloc[::-1][:17].assign(a=lambda rows: rows["a"] * 100)
    upstream = TransformToNumerical().fit(table)
    schema = Schema.fit(table, y)
    X = schema.encode(table)
    assert (upstream.transform(table) == X).all()
    methods = [None, ALL, ["robust", "none"]][seed % 3]
    options = {"n_estimators": 11, "norm_methods": methods, "random_state": seed}
    generator = EnsembleGenerator(classification=True, **options).fit(upstream.transform(table), y)
    members = fit_members(X, y, classification=True, **options)
    same_as_upstream(members, generator, X, y, schema.encode(later))


@pytest.mark.parametrize("shuffle", ["latin", "shift", "random", "none"])
@pytest.mark.parametrize(("rows", "features", "classes"), [(50, 7, 3), (1, 5, 1), (200, 12, None), (30, 1, 2), (40, 5, 12)])
def test_members_are_upstreams_for_every_size_and_shuffle(shuffle, rows, features, classes):
    rng = np.random.default_rng(rows)
    X = sizes(rng, rows, features) if features > 4 else rng.normal(size=(rows, features))
    y = np.arange(rows) % classes if classes else rng.normal(size=rows)
    later = np.concatenate([X[:20], rng.normal(size=(13, features)) * 100, np.full((1, features), 1e30)])
    for options in ({"n_estimators": 9, "norm_methods": ALL}, {"n_estimators": 1}, {"n_estimators": 32, "outlier_threshold": 2.0}):
        options |= {"feat_shuffle_method": shuffle, "class_shuffle_method": shuffle, "random_state": 42}
        generator = EnsembleGenerator(classification=classes is not None, **options).fit(X, y)
        members = fit_members(X, y, classification=classes is not None, **options)
        same_as_upstream(members, generator, X, y, later)


@pytest.mark.parametrize("method", ["latin", "shift", "random", "none"])
def test_A26_shuffles_are_upstreams_for_every_small_size(method):
    for n in (*range(1, 14), 40):
        for seed in (0, 1, 42):
            for estimators in (1, 2, 8):
                ours = permutations(n, method, seed, estimators)
                theirs = Shuffler(n, method=method, random_state=seed).shuffle(estimators)
                assert [ours.make(place).tolist() for place in range(ours.count)] == [list(order) for order in theirs]


def test_A26_many_features_take_seconds(monkeypatch):
    limit = sys.getrecursionlimit()
    started = time.monotonic()
    for features in (1_500, 3_999, 4_001):
        chosen = permutations(features, "latin", 0, 8)
        assert all(sorted(chosen.make(place)) == list(range(features)) for place in range(8))
    X = np.random.default_rng(0).normal(size=(30, 1_500))
    members = fit_members(X, np.arange(30) % 2, classification=True)
    assert time.monotonic() - started < 20  # 3 s on one idle core; upstream's shuffles alone take 8
    assert len(members) == 8
    assert members.n_features == 1_500
    assert sys.getrecursionlimit() == limit


def test_B01_a_row_has_the_same_bits_alone_and_in_any_batch():
    rng = np.random.default_rng(1)
    X = sizes(rng)
    members = fit_members(X, np.arange(len(X)) % 3, classification=True, n_estimators=10, norm_methods=ALL)
    assert set(members.transforms) == set(ALL)
    later = np.concatenate([sizes(rng, 150) * 50, X, np.full((2, 7), -1e30)])
    for member in members:
        whole = members.transform(later, member)
        assert np.isfinite(whole).all()
        for size in (1, 7, 64, len(later)):
            parts = [members.transform(later[at : at + size], member) for at in range(0, len(later), size)]
            assert (np.concatenate(parts) == whole).all(), (member.norm_method, size)


@pytest.mark.filterwarnings("ignore:overflow")
def test_B01_an_outlier_that_overflows_the_power_changes_its_own_row_only():
    """Upstream clips the whole batch to the training range when one row overflows; here that row is as upstream has it alone."""
    rng = np.random.default_rng(0)
    X = np.stack([1e-9 * rng.normal(size=500), rng.normal(size=500)], axis=1)
    X[:, 0] -= 1.0
    X[0, 0] = -1.0 + 4e-8  # a long tail to one side makes for a large power
    generator = EnsembleGenerator(classification=True, n_estimators=2, norm_methods=["power"], random_state=0)
    generator.fit(X, np.arange(500) % 2)
    members = fit_members(X, np.arange(500) % 2, classification=True, n_estimators=2, norm_methods=["power"])
    power = members.transforms["power"]
    object.__setattr__(power, "parameters", {**power.parameters, "lambdas": np.array([400.0, 1.0])})
    generator.preprocessors_["power"].normalizer_.lambdas_ = np.array([400.0, 1.0])
    later = np.array([[-1.0, 0.5], [1e6, 3.0], [-1.0, 60.0]])
    alone = np.concatenate([generator.transform(row[None], mode="test")["power"][0][0] for row in later])
    assert (members.transform(later, 0) == alone).all()
    assert not (generator.transform(later, mode="test")["power"][0][0] == alone).all()  # upstream's batch isn't its rows


ORDER = """
import hashlib, sys, numpy as np, tabgrpc.data
from tabgrpc.data.fitting import fit_members
rng = np.random.default_rng(0); X = rng.normal(size=(60, 9))
members = fit_members(X, np.arange(60) % 3, classification=True)
digest = hashlib.sha256()
for member, seen in members.transform_all(X): digest.update(seen.tobytes() + member.class_shuffle.tobytes())
print([member.norm_method for member in members], digest.hexdigest())
print([module for module in ("torch", "grpc", "tabicl") if module in sys.modules])
"""


def test_B06_order_and_bits_hang_on_no_hash_seed():
    """Nor does any of it import torch or grpc (the same processes, as each start costs seconds)."""
    running = [
        subprocess.Popen([sys.executable, "-c", ORDER], env={**os.environ, "PYTHONHASHSEED": str(seed)}, stdout=subprocess.PIPE, text=True)
        for seed in (0, 1)  # upstream groups in another order under each of them
    ]
    lines = {process.communicate(timeout=120)[0] for process in running}
    assert len(lines) == 1
    order, imported = lines.pop().splitlines()
    assert order.startswith(str(["none"] * 4 + ["power"] * 4))
    assert imported == "[]"


def test_B10_two_fits_have_the_same_bits_with_200_features():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 200)), np.arange(60) % 3

    def digest() -> str:
        members = fit_members(X, y, classification=True, norm_methods=ALL)
        return hashlib.sha256(b"".join(array.tobytes() for array in members.to_arrays().values())).hexdigest()

    assert digest() == digest()


def test_arrays_bring_the_members_back_to_the_bit():
    from safetensors.numpy import load, save

    rng = np.random.default_rng(0)
    X = sizes(rng)
    for y, classification in ((np.arange(len(X)) % 3, True), (rng.normal(size=len(X)) * 7 + 3, False)):
        members = fit_members(X, y, classification=classification, norm_methods=ALL)
        back = Members.from_arrays(load(save(members.to_arrays())))
        assert (back.y_mean, back.y_scale) == (members.y_mean, members.y_scale)
        assert [member.index for member in back] == list(range(8))
        for ours, theirs in zip(members.transform_all(X), back.transform_all(X), strict=True):
            assert (ours[1] == theirs[1]).all()
            assert (members.train_targets(y, ours[0]) == back.train_targets(y, theirs[0])).all()
    arrays = members.to_arrays()
    del arrays["power.lambdas"]
    with pytest.raises(ValueError, match=r"power\.lambdas"):
        Members.from_arrays(arrays)


def test_A02_A05_constant_features_have_no_influence():
    rng = np.random.default_rng(0)
    X = sizes(rng)
    members = fit_members(X, np.arange(len(X)) % 2, classification=True)
    assert members.keep.tolist() == [True, True, False, True, True, True, True]
    other = X.copy()
    other[:, 2] = 1e6
    assert (members.transform(other, 0) == members.transform(X, 0)).all()
    constant = fit_members(np.ones((40, 4)), np.arange(40) % 2, classification=True)
    assert constant.keep.tolist() == [True, False, False, False]
    assert np.ptp(constant.transform(np.ones((3, 4)), 0)) == 0


def test_A20_scikit_learns_global_options_have_no_effect():
    X = sizes(np.random.default_rng(0))
    plain = fit_members(X, np.arange(len(X)) % 2, classification=True, norm_methods=ALL).to_arrays()
    with sklearn.config_context(transform_output="pandas"):
        configured = fit_members(X, np.arange(len(X)) % 2, classification=True, norm_methods=ALL).to_arrays()
    assert all((plain[name] == configured[name]).all() for name in plain)


def test_A24_a_large_offset_hardly_matters_and_warns_of_nothing():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(40, 4)), rng.integers(1950, 2010, 40)]
    y = np.arange(40) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        members, moved = fit_members(X, y, classification=True), fit_members(X + 1e8, y, classification=True)
        for (_, ours), (_, theirs) in zip(members.transform_all(X), moved.transform_all(X + 1e8), strict=True):
            # 1e8 leaves 8 digits of X in float64; the power of the years is flat in the likelihood, so it moves further
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_A25_a_constant_target_is_shown_as_zero(dtype):
    X = np.random.default_rng(0).normal(size=(40, 4))
    members = fit_members(X, np.full(40, 5000).astype(dtype), classification=False)
    assert (members.y_mean, members.y_scale) == (5000.0, 1.0)
    assert (members.train_targets(np.full(40, 5000), 0) == 0).all()


def test_A25_a_target_far_from_zero_keeps_its_digits():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 4)), rng.normal(size=40)
    near, far = (fit_members(X, y + shift, classification=False).train_targets(y + shift, 0) for shift in (0, 1e9))
    np.testing.assert_allclose(near, far, atol=1e-6)  # 1e9 leaves 7 digits in float64; upstream's float32 leaves none


def test_regression_targets_are_upstreams_within_float32():
    from sklearn.preprocessing import StandardScaler

    y = np.random.default_rng(0).normal(size=300) * 7 + 3
    upstream = StandardScaler().fit_transform(y.astype(np.float32).reshape(-1, 1)).ravel()
    members = fit_members(np.random.default_rng(1).normal(size=(300, 2)), y, classification=False)
    np.testing.assert_allclose(members.train_targets(y, 0), upstream, atol=1e-6)  # float32 rounds at 6e-8 of 3


def test_X8_what_no_ensemble_can_be_made_of():
    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    for options, match in (
        ({"n_estimators": 0}, "n_estimators must be at least 1, not 0"),
        ({"norm_methods": ["zscore"]}, "unknown normalisation 'zscore'"),
        ({"feat_shuffle_method": "dice"}, "unknown shuffle method 'dice'"),
    ):
        with pytest.raises(UserError, match=match):
            fit_members(X, y, classification=True, **options)
    with pytest.raises(ValueError, match=r"expected \(rows, 4\)"):
        fit_members(X, y, classification=True).transform(X[:, :3], 0)
