"""What the pool costs: two workers of one thread against upstream TabICL in one process of two threads, same checkpoint and table.

Each run is a fresh process for upstream and a fresh pool for tabgrpc, in turn. fit: rows in memory to a model that can predict, for us
with its files synced to disk, for upstream with its K/V cache built. predict: all query rows in one call. memory: the most that all
processes of a side held together at any sample, as proportional set size, so that shared pages count once.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

LIMITS = {"fit": 1.15, "predict": 1.15, "memory": 1.5}
_SAMPLE_SECONDS = 0.2


def table(rows: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, features) numbers and two classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    return x, (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)


def run(runs: int, rows: int, features: int, members: int, queries: int) -> None:
    """Prints medians with spread, and ratios against the limits."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "mini.ckpt"
        subprocess.run([sys.executable, "-m", "tabgrpc.checkpoints.convert", *_source(), str(checkpoint)], check=True)
        sides: dict[str, list[dict[str, float]]] = {"upstream": [], "tabgrpc": []}
        sizes = [str(size) for size in (rows, features, members, queries)]
        for _ in range(runs):
            for side, found in sides.items():
                found.append(_measure([sys.executable, "-m", "benchmarks.overhead", side, str(checkpoint), *sizes]))
    print(f"overhead: {rows} x {features}, {members} members, {queries} queries, mini, float32; {runs} runs each, interleaved")
    for what, limit in LIMITS.items():
        ours, theirs = ([each[what] for each in sides[side]] for side in ("tabgrpc", "upstream"))
        ratio = statistics.median(ours) / statistics.median(theirs)
        verdict = "ok" if ratio <= limit else "MISSED"
        print(f"  {what:8} tabgrpc {_spread(ours)}  upstream {_spread(theirs)}  ratio {ratio:.3f} (limit {limit}) {verdict}")
    difference = max(each["difference"] for each in sides["tabgrpc"])
    print(f"  largest difference of probabilities to upstream {difference:.1e}", flush=True)


def _source() -> list[str]:
    import tabgrpc.checkpoints

    return [str(Path(tabgrpc.checkpoints.__file__).parent / "mini-classifier.json")]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):9.2f} ({min(values):.2f} to {max(values):.2f})"


def _measure(command: list[str]) -> dict[str, float]:
    """Runs a side; its own figures, and the memory of it and all its children in MiB."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak, done = [0.0], threading.Event()
        sampler = threading.Thread(target=_sample, args=(process.pid, peak, done))
        sampler.start()
        assert process.stdout is not None
        text = process.stdout.read()
        code = process.wait()
        done.set()
        sampler.join()
    if code:
        raise RuntimeError(f"{command} ended with {code}")
    return {**json.loads(text.splitlines()[-1]), "memory": peak[0]}


def _sample(pid: int, peak: list[float], done: threading.Event) -> None:
    root = psutil.Process(pid)
    while not done.wait(_SAMPLE_SECONDS):
        total = 0.0
        with suppress(psutil.Error):
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    total += process.memory_full_info().pss / 2**20
        peak[0] = max(peak[0], total)


def _upstream(checkpoint: str, rows: int, features: int, members: int, queries: int) -> dict[str, float]:
    import torch
    from tabicl import TabICLClassifier

    torch.set_num_threads(2)
    x, y = table(rows, features, 0)
    asked, _ = table(queries, features, 1)
    model = TabICLClassifier(n_estimators=members, kv_cache="kv", model_path=checkpoint, device="cpu", random_state=0)
    start = time.perf_counter()
    model.fit(x, y)
    fitted = time.perf_counter()
    answers = model.predict_proba(asked)
    end = time.perf_counter()
    np.save(Path(checkpoint).with_suffix(".npy"), answers)
    return {"fit": fitted - start, "predict": end - fitted, "difference": 0.0}


def _tabgrpc(checkpoint: str, rows: int, features: int, members: int, queries: int) -> dict[str, float]:
    import pyarrow as pa

    from tabgrpc import LocalPool
    from tabgrpc.v1.models_pb2 import TASK_CLASSIFICATION, FitOptions

    x, y = table(rows, features, 0)
    asked, _ = table(queries, features, 1)
    names = [f"f{i}" for i in range(features)]
    with LocalPool(2) as pool:
        start = time.perf_counter()
        sent = pool.client.upload(pa.table([*x.T, y], names=[*names, "y"]))
        options = FitOptions(target="y", task=TASK_CLASSIFICATION, checkpoint="mini", n_estimators=members)
        pool.client.fit("overhead", sent, options)
        fitted = time.perf_counter()
        answers = pool.client.predict("overhead", pa.table(list(asked.T), names=names))
        end = time.perf_counter()
    mine = np.column_stack([answers["proba_0"], answers["proba_1"]])
    theirs = np.load(Path(checkpoint).with_suffix(".npy"))
    return {"fit": fitted - start, "predict": end - fitted, "difference": float(np.abs(mine - theirs).max())}


if __name__ == "__main__":
    side, path, *rest = sys.argv[1:]
    print(json.dumps((_upstream if side == "upstream" else _tabgrpc)(path, *(int(each) for each in rest))))
