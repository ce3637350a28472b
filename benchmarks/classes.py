"""More classes than the network tells apart, against upstream TabICL without its cache, which it refuses there; and one worker against two.

    python -m benchmarks classes [--runs 3]

classes: 8 members, 2,000 x 20, 12 classes. first: a fit and the predict after it; later: another predict. Upstream's fit computes no
network, each of its predicts does all of it. Two workers of one thread against one process of two threads, fresh in every run, in turn.
workers: 8 members of 500 x 15, fit and predict on one worker and on two, of one thread each, on pools that both stay up.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.overhead import _source, _spread

ROWS, FEATURES, CLASSES, MEMBERS, QUERIES = 2000, 20, 12, 8, 200
LIMITS = {"first": 1.2, "later": 1 / 5}
SPEED_UP = 1.6


def table(rows: int, features: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, features) numbers and labels that the first two say something about."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    score = x[:, 0] + x[:, 1] * x[:, 2]
    return x, np.argsort(np.argsort(score)) * classes // rows


def frame(x: np.ndarray, y: np.ndarray | None = None) -> pa.Table:
    columns = {f"f{i}": x[:, i] for i in range(x.shape[1])}
    return pa.table(columns if y is None else columns | {"y": y})


def run(runs: int) -> None:
    """Prints both, medians with spread, and ratios against the limits."""
    _classes(runs)
    _workers(runs)


def _classes(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "mini.ckpt"
        subprocess.run([sys.executable, "-m", "tabgrpc.checkpoints.convert", *_source(), str(checkpoint)], check=True)
        sides: dict[str, list[dict[str, float]]] = {"upstream": [], "tabgrpc": []}
        for _ in range(runs):
            for side, found in sides.items():
                command = [sys.executable, "-m", "benchmarks.classes", side, str(checkpoint)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found.append(json.loads(done.stdout.splitlines()[-1]))
    print(f"classes: {ROWS} x {FEATURES}, {MEMBERS} members, {CLASSES} classes, {QUERIES} queries, mini; {runs} runs each, in turn")
    for what, limit in LIMITS.items():
        ours, theirs = ([each[what] for each in sides[side]] for side in ("tabgrpc", "upstream"))
        ratio = statistics.median(ours) / statistics.median(theirs)
        verdict = "ok" if ratio <= limit else "MISSED"
        print(f"  {what:6} tabgrpc {_spread(ours)}  upstream {_spread(theirs)}  ratio {ratio:.3f} (limit {limit:.2f}) {verdict}")
    difference = max(each["difference"] for each in sides["tabgrpc"])
    print(f"  largest difference of probabilities to upstream {difference:.1e}", flush=True)


def _workers(runs: int) -> None:
    from tabgrpc import LocalPool

    x, y = table(500, 15, 3, 0)
    asked = frame(table(QUERIES, 15, 3, 1)[0])
    found: dict[tuple[str, int], list[float]] = {}
    with LocalPool(1) as one, LocalPool(2) as two:
        pools = {1: one, 2: two}
        sent = {count: pool.client.upload(frame(x, y)) for count, pool in pools.items()}
        for number in range(runs + 1):  # the first one warms up
            for count, pool in pools.items():
                start = time.perf_counter()
                pool.client.fit("m", sent[count], _options(MEMBERS))
                fitted = time.perf_counter()
                pool.client.predict("m", asked)
                end = time.perf_counter()
                if number:
                    found.setdefault(("fit", count), []).append(fitted - start)
                    found.setdefault(("predict", count), []).append(end - fitted)
    print(f"workers: 500 x 15, {MEMBERS} members, {QUERIES} queries, mini, float32; {runs} runs each, in turn")
    for what in ("fit", "predict"):
        single, both = found[what, 1], found[what, 2]
        ratio, best = statistics.median(single) / statistics.median(both), min(single) / min(both)
        verdict = "ok" if ratio >= SPEED_UP else "MISSED"
        shown = f"one {_spread(single)}  two {_spread(both)}"
        print(f"  {what:7} {shown}  speed-up {ratio:.2f}, best runs {best:.2f} (limit {SPEED_UP}) {verdict}")


def _options(members: int) -> object:
    from tabgrpc.v1.models_pb2 import TASK_CLASSIFICATION, FitOptions

    return FitOptions(target="y", task=TASK_CLASSIFICATION, checkpoint="mini", n_estimators=members)


def _upstream(checkpoint: str) -> dict[str, float]:
    import torch
    from tabicl import TabICLClassifier

    torch.set_num_threads(2)
    x, y = table(ROWS, FEATURES, CLASSES, 0)
    asked, _ = table(QUERIES, FEATURES, CLASSES, 1)
    model = TabICLClassifier(n_estimators=MEMBERS, model_path=checkpoint, device="cpu", random_state=0)
    start = time.perf_counter()
    answers = model.fit(x, y).predict_proba(asked)
    first = time.perf_counter()
    model.predict_proba(asked)
    end = time.perf_counter()
    np.save(Path(checkpoint).with_suffix(".npy"), answers)
    return {"first": first - start, "later": end - first, "difference": 0.0}


def _tabgrpc(checkpoint: str) -> dict[str, float]:
    from tabgrpc import LocalPool

    x, y = table(ROWS, FEATURES, CLASSES, 0)
    asked = frame(table(QUERIES, FEATURES, CLASSES, 1)[0])
    with LocalPool(2) as pool:
        start = time.perf_counter()
        pool.client.fit("classes", pool.client.upload(frame(x, y)), _options(MEMBERS))
        answers = pool.client.predict("classes", asked)
        first = time.perf_counter()
        pool.client.predict("classes", asked)
        end = time.perf_counter()
    mine = np.column_stack([answers[f"proba_{label}"] for label in range(CLASSES)])
    theirs = np.load(Path(checkpoint).with_suffix(".npy"))
    return {"first": first - start, "later": end - first, "difference": float(np.abs(mine - theirs).max())}


if __name__ == "__main__":
    print(json.dumps({"upstream": _upstream, "tabgrpc": _tabgrpc}[sys.argv[1]](sys.argv[2])))
