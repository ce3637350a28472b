"""What can be asked of a row: of classes and of a distribution, in the target's unit, for any number of rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from tabgrpc.client import features
from tabgrpc.core.head import Head
from tabgrpc.data.frames import Frame
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument

Fit = Callable[..., Any]
TYPES = ["mean", "median", "mode", "quantiles", "variance", "raw_quantiles", "draws"]


@pytest.fixture
def target(X: np.ndarray) -> np.ndarray:
    return 3 * X[:, 0] + X[:, 1]


def test_outputs_follow_the_targets_unit(fitreg: Fit, X: np.ndarray, target: np.ndarray, Q: np.ndarray) -> None:
    """y in another unit (times 1000, plus 50,000): values follow, a variance by the square and without the offset.

    1e-5: the standardised target is rounded to float32 in either unit.
    """
    plain = fitreg(X, target).predict(Q, TYPES, n_draws=5)
    other = fitreg(X, 1000 * target + 50_000).predict(Q, TYPES, n_draws=5)
    spread = target.std()
    for each in TYPES:
        back = other[each] / 1e6 if each == "variance" else (other[each] - 50_000) / 1000
        assert np.abs(back - plain[each]).max() < 1e-5 * spread * max(1.0, np.abs(plain[each]).max()), each


def test_outputs_agree_with_each_other(fitreg: Fit, X: np.ndarray, target: np.ndarray, Q: np.ndarray) -> None:
    levels = [0.001, 0.1, 0.5, 0.5000001, 0.9, 0.9, 0.001, 0.99999]
    out = fitreg(X, target).predict(Q, TYPES, alphas=levels, n_draws=4000, seed=3)
    assert np.array_equal(out["median"], out["quantiles"][:, 2])
    assert np.array_equal(out["quantiles"][:, 4], out["quantiles"][:, 5]), "a level asked for twice"
    assert (np.diff(out["quantiles"][:, [0, 1, 2, 3, 4, 7]], axis=1) >= 0).all()
    assert (np.diff(out["raw_quantiles"], axis=1) >= 0).all()
    assert np.abs(out["raw_quantiles"].mean(axis=1) - out["mean"]).max() < 1e-5
    assert (out["variance"] >= 0).all()
    # 4,000 draws: their mean is off by more than 4.5 deviations of it once in 100,000 rows
    error = np.abs(out["draws"].mean(axis=1) - out["mean"]) / (out["draws"].std(axis=1) / np.sqrt(4000))
    assert error.max() < 4.5 + 2, "the tails beyond the network's quantiles count in the draws, not in its mean"
    inside = (out["draws"] < out["quantiles"][:, 4:5]).mean(axis=1)
    assert np.abs(inside - 0.9).max() < 5 * np.sqrt(0.09 / 4000)
    low, high = out["raw_quantiles"][:, 0], out["raw_quantiles"][:, -1]
    assert ((out["mode"] >= low) & (out["mode"] <= high)).all()


def test_draws_go_by_seed_and_row_alone(fitreg: Fit, small_regressor: str, X: np.ndarray, target: np.ndarray) -> None:
    r = fitreg(X, target, model_path=small_regressor)
    Q = np.random.default_rng(2).normal(size=(1100, 4))  # several requests: 500 draws a row make answers wide
    whole = r.predict(Q, "draws", n_draws=500, seed=9)
    assert np.array_equal(r.predict(Q[:70], "draws", n_draws=500, seed=9), whole[:70])
    assert not np.array_equal(r.predict(Q[:7], "draws", n_draws=500, seed=8), whole[:7])
    assert len(np.unique(whole[:, 0])) > 1090, "rows of a request that began again would have the same random numbers"


def test_one_type_is_an_array_several_are_a_dict(fitreg: Fit, X: np.ndarray, target: np.ndarray) -> None:
    r = fitreg(X, target)
    assert r.predict(X[:3]).shape == r.predict(X[:3], "median").shape == (3,)
    assert r.predict(X[:3], ["mean"]).shape == (3,)
    assert list(r.predict(X[:3], ["variance", "mean"])) == ["variance", "mean"]
    assert r.predict(X[:3], "quantiles", alphas=[]).shape == (3, 0)
    for wrong, match in (({"output_type": "sd"}, "sd"), ({"output_type": "quantiles", "alphas": [0.5, 1.0]}, "alphas")):
        with pytest.raises(ValueError, match=match):
            r.predict(X[:3], **wrong)
    for wrong in ({"n_draws": 0}, {"n_draws": 2.5}, {"n_draws": 10_001}, {"seed": -1}, {"seed": 2**64}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            r.predict(X[:3], "draws", **wrong)


def test_probabilities_logits_and_temperature(fit: Fit, X: np.ndarray, y: np.ndarray, Q: np.ndarray) -> None:
    m = fit(X, y, softmax_temperature=0.7)
    logits, p = m.predict_logits(Q), m.predict_proba(Q)
    scaled = np.exp((logits - logits.max(axis=1, keepdims=True)) / 0.7)
    assert np.abs(scaled / scaled.sum(axis=1, keepdims=True) - p).max() < 1e-12
    assert np.array_equal(m.predict_log_proba(Q), np.log(p))
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-12


def test_what_a_model_has_not_is_refused(fit: Fit, fitreg: Fit, X: np.ndarray, y: np.ndarray) -> None:
    m, r = fit(X, y), fitreg(X, X[:, 0])
    for model, wanted in (
        (m, pb.PredictRequest(outputs=[pb.OUTPUT_VARIANCE])),
        (m, pb.PredictRequest(draws=pb.Draws(count=1))),
        (r, pb.PredictRequest(outputs=[pb.OUTPUT_LOGITS])),
        (r, pb.PredictRequest(outputs=[pb.OUTPUT_EMBEDDINGS, pb.OUTPUT_MODE])),
        (r, pb.PredictRequest(draws=pb.Draws(count=10_001))),
    ):
        with pytest.raises(InvalidArgument):
            model._ask(X, wanted, 8)


def test_large_inputs_are_streamed(fit: Fit, small: str, X: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices and requests of any size give the same bits and messages that count rows over all of them."""
    m = fit(X, y, n_estimators=1, model_path=small)
    Q = np.random.default_rng(3).normal(size=(2100, 4))
    want = m.predict_proba(Q)
    monkeypatch.setattr(features, "SLICE_ROWS", 320)
    assert np.array_equal(m.predict_proba(Q), want)
    Q[1999, 2] = np.inf
    with pytest.raises(ValueError, match="row 2000"):
        m.predict_proba(Q)
    odd = pd.DataFrame(Q, columns=list("abcd")).astype({"c": object})
    odd.at[1998, "c"] = (1, 2)  # found here, before anything is sent
    with pytest.raises(TypeError, match=r"'2', row 1999|'c', row 1999"):
        m.predict_proba(odd)


def test_rows_of_any_length_fit_a_message(fit: Fit, small: str, X: np.ndarray, y: np.ndarray) -> None:
    """Long categories and a few long texts: a message may have 16 MiB, whatever its share of the table's rows."""
    m = fit(pd.DataFrame({"k": ["a", "b"] * 20, "x": X[:, 0]}), y, n_estimators=1, model_path=small)
    texts = [f"{i}" + "x" * 300_000 for i in range(64)]
    plain = pd.DataFrame({"k": ["never"] * 64, "x": np.linspace(-1, 1, 64)})
    for column in (texts, pd.Categorical(texts)):
        assert np.array_equal(m.predict_proba(plain.assign(k=column)), m.predict_proba(plain))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_C08_many_wide_rows_in_bounded_memory(fit: Fit, small: str, X: np.ndarray, y: np.ndarray) -> None:
    """A table of 960 MB that takes no memory itself: all but 4 of its columns are one number, and the model drops them. What grows is
    what the client and the scheduler, both in this process, hold of it: requests under way and the answers."""
    rows, columns = 400_000, 300
    m = fit(np.concatenate([X, np.zeros((len(X), columns - 4))], axis=1), y, n_estimators=1, model_path=small)
    numbers, zeros = np.random.default_rng(4).normal(size=rows), np.broadcast_to(0.0, rows)
    frame = Frame({str(place): numbers if place < 4 else zeros for place in range(columns)}, rows, named=False)
    m.predict_proba(np.zeros((1, columns)))
    process, most, done = psutil.Process(), [0], threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not done.wait(0.05):
            most[0] = max(most[0], process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        p = m.predict_proba(frame)
    finally:
        done.set()
        watcher.join()
    assert p.shape == (rows, 2) and np.isfinite(p).all()
    assert most[0] < 500 << 20, f"{most[0] >> 20} MiB: the table has 915, a slice of 65,536 rows 150"


def test_the_head_says_where_its_columns_are() -> None:
    assert Head().fixed == 1 and Head((0.1, 0.5), variance=True, quantiles=True).fixed == 4
