"""Class (b) of the field's cases through the estimators. Where the contract says bits, ``==``."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tabgrpc import LocalPool, TabGRPCClassifier
from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.wire.errors import ServiceError

Fit = Callable[..., Any]


def test_B01_batches_of_any_size_give_the_same_bits(
    fit: Fit, fitreg: Fit, small: str, small_regressor: str, X: np.ndarray, y: np.ndarray
) -> None:
    Q = np.random.default_rng(1).normal(size=(130, 4))
    m, r = fit(X, y, model_path=small), fitreg(X, X[:, 0], model_path=small_regressor)
    types = ["mean", "quantiles", "variance", "mode"]
    whole, numbers = m.predict_proba(Q), r.predict(Q, types)
    for size, rows in ((1, 8), (7, 35), (64, 130)):
        parts = [Q[at : min(at + size, rows)] for at in range(0, rows, size)]
        assert np.array_equal(np.concatenate([m.predict_proba(part) for part in parts]), whole[:rows]), size
        found = [r.predict(part, types) for part in parts]
        for each in types:
            assert np.array_equal(np.concatenate([part[each] for part in found]), numbers[each][:rows]), (size, each)
    assert np.array_equal(m.predict_proba(Q[::-1])[::-1], whole)


def test_B02_threads_share_an_estimator(fit: Fit, X: np.ndarray, y: np.ndarray, Q: np.ndarray) -> None:
    """Other rows and other outputs at once: state kept on the way would reach the wrong caller."""
    m = fit(X, y)
    want = [m.predict_proba(Q), m.predict_proba(Q[:7]), m.predict_logits(Q), m.transform(Q[:3])]
    asks = [lambda: m.predict_proba(Q), lambda: m.predict_proba(Q[:7]), lambda: m.predict_logits(Q), lambda: m.transform(Q[:3])]
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda turn: asks[turn % 4](), range(60)))
    assert all(np.array_equal(each, want[turn % 4]) for turn, each in enumerate(got))


def test_B02_threads_fit_the_same_at_once(pool: LocalPool, X: np.ndarray, y: np.ndarray, Q: np.ndarray) -> None:
    with ThreadPoolExecutor(4) as threads:
        fits = [threads.submit(lambda: TabGRPCClassifier(2, random_state=77, model_path="mini", pool=pool).fit(X, y)) for _ in range(4)]
        answers = [each.result().predict_proba(Q) for each in fits]
    assert all(np.array_equal(each, answers[0]) for each in answers)


@pytest.mark.timeout(300)
def test_B04_B10_other_workers_a_lost_worker_and_many_features(fit: Fit, small: str) -> None:
    """Three workers give the bits of two, again after one was killed; 200 features, where others sample."""
    Z = np.random.default_rng(0).normal(size=(260, 200))  # rows of three blocks
    t = (Z[:, 0] > 0).astype(int)
    reference = fit(Z, t, n_estimators=1, model_path=small)
    want = reference.predict_proba(Z[:70])
    assert np.array_equal(reference.predict_proba(Z[:70]), want)
    with LocalPool(3) as other:
        m = fit(Z, t, n_estimators=1, model_path=small, pool=other)
        assert np.array_equal(m.predict_proba(Z[:70]), want)
        os.kill(other.client.pool().workers[0].pid, signal.SIGKILL)
        assert np.array_equal(m.predict_proba(Z[:70]), want)


def test_B05_another_instruction_set_stays_within_the_stated_bound(
    fit: Fit, X: np.ndarray, y: np.ndarray, Q: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers without vector instructions round otherwise: 1e-3 and the same classes is what the case asks of any two machines."""
    want = fit(X, y).predict_proba(Q)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    with LocalPool(1) as plain:
        got = fit(X, y, pool=plain).predict_proba(Q)
    assert np.abs(got - want).max() < 1e-3 and (got.argmax(1) == want.argmax(1)).all()


SCRIPT = """
import hashlib, sys
import numpy as np
from tabgrpc import LocalPool, TabGRPCClassifier
if __name__ == "__main__":
    X = np.random.default_rng(0).normal(size=(40, 4))
    with LocalPool(1) as pool:
        m = TabGRPCClassifier(2, model_path="mini", pool=pool).fit(X, np.where(X[:, 0] > 0, "p", "n"))
        print(m.classes_.tolist(), hashlib.sha1(m.predict_proba(X).tobytes()).hexdigest(), m.model_.name)
    print(list({"none", "power"}), file=sys.stderr)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", [(0, 2), pytest.param(range(6), marks=pytest.mark.slow)])
def test_B06_the_hash_seed_changes_nothing(seeds: Any, tmp_path: Path, fit: Fit) -> None:
    """Upstream orders its members by a set of text. Names of models are made of content, so they agree too."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    runs = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in seeds
    ]
    ended = [run.communicate(timeout=240) for run in runs]
    assert all(run.returncode == 0 for run in runs), ended
    assert len({err.splitlines()[-1] for _, err in ended}) == 2, "sets of text were ordered alike: other seeds would show more"
    X = np.random.default_rng(0).normal(size=(40, 4))
    here = fit(X, np.where(X[:, 0] > 0, "p", "n"), n_estimators=2)
    line = f"{here.classes_.tolist()} {hashlib.sha1(here.predict_proba(X).tobytes()).hexdigest()} {here.model_.name}"
    assert {out.strip() for out, _ in ended} == {line}


def test_B08_numbers_that_are_not_finite_are_an_error(fit: Fit, X: np.ndarray, y: np.ndarray, tmp_path: Path) -> None:
    """Never NaN, never a silent uniform: a network whose weights overflow float32."""
    checkpoint = load_checkpoint("mini", "classification")
    state = {name: t * 1e18 if name.endswith("weight") and t.ndim == 2 else t for name, t in checkpoint.state_dict().items()}
    torch.save({"config": checkpoint.config, "state_dict": state}, tmp_path / "large.ckpt")
    with pytest.raises(ServiceError, match="finite"):
        fit(X, y, model_path=tmp_path / "large.ckpt").predict_proba(X)
